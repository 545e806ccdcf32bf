package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/roles"
)

// runningActions are what a running process does in each collection of the store.
var runningActions = []string{"find", "insert", "update", "remove"}

// grant is a privilege of the user.
type grant struct {
	Resource struct {
		Database    *string `bson:"db"`
		Collection  *string `bson:"collection"`
		AnyResource bool    `bson:"anyResource"`
	} `bson:"resource"`
	Actions []string `bson:"actions"`
}

// allows reports whether the privilege has the action on a collection. An empty name stands for
// all databases, or all collections.
func (g grant) allows(action, database, collection string) bool {
	covers := func(name *string, wanted string) bool { return name != nil && (*name == "" || *name == wanted) }
	return slices.Contains(g.Actions, action) &&
		(g.Resource.AnyResource || covers(g.Resource.Database, database) && covers(g.Resource.Collection, collection))
}

// examineRights compares the privileges of the user with those of the documentation, which are
// the same for all tasks. Without access control there is no user.
func (s *Store) examineRights(ctx context.Context, e *roles.Examination) error {
	var status struct {
		Info struct {
			Users []struct {
				Name     string `bson:"user"`
				Database string `bson:"db"`
			} `bson:"authenticatedUsers"`
			Privileges []grant `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	command := bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}
	if err := s.db.RunCommand(ctx, command).Decode(&status); err != nil {
		return err
	}
	if len(status.Info.Users) == 0 {
		return nil
	}
	user := status.Info.Users[0].Name
	lacks := func(action, collection string) bool {
		return !slices.ContainsFunc(status.Info.Privileges, func(g grant) bool { return g.allows(action, s.db.Name(), collection) })
	}
	for _, name := range collectionNames {
		collection := s.config.CollectionName(name)
		var missing []string
		for _, action := range runningActions {
			if lacks(action, collection) {
				missing = append(missing, action)
			}
		}
		if len(missing) > 0 {
			e.Add(s.missingRight(user, collection, missing, "which every program that publishes or reads needs", true))
		}
	}
	records := s.config.CollectionName("records")
	if !s.config.WithoutChangeStream && !s.config.WithoutTransactions && lacks("changeStream", records) {
		e.Add(s.missingRight(user, records, []string{"changeStream"}, "so readers poll, and find messages of other processes later", false))
	}
	return nil
}

func (s *Store) missingRight(user, collection string, actions []string, effect string, failure bool) roles.Finding {
	list := strings.Join(actions, ", ")
	where := s.db.Name() + "." + collection
	return roles.Finding{
		Code: "right_missing", Failure: failure, Subject: list + " on " + where,
		Text:   fmt.Sprintf("The user %s lacks the actions %s on %s, %s.", user, list, where, effect),
		Remedy: "Grant the role readWrite on the database, or these actions; docs/mongodb.md lists all of them.",
	}
}
