package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

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

// Rights compares the privileges of the user with those that a running process needs in each collection, which are
// the same for all tasks. Without access control there is no user. hears is the collection of the change stream, or nil.
func Rights(ctx context.Context, collections []*mongo.Collection, hears *mongo.Collection, e *roles.Examination) error {
	var status struct {
		Info struct {
			Users []struct {
				Name     string `bson:"user"`
				Database string `bson:"db"`
			} `bson:"authenticatedUsers"`
			Privileges []grant `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	db := collections[0].Database()
	command := bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}
	if err := db.RunCommand(ctx, command).Decode(&status); err != nil {
		return err
	}
	if len(status.Info.Users) == 0 {
		return nil
	}
	user := status.Info.Users[0].Name
	lacks := func(action, collection string) bool {
		return !slices.ContainsFunc(status.Info.Privileges, func(g grant) bool { return g.allows(action, db.Name(), collection) })
	}
	for _, in := range collections {
		var missing []string
		for _, action := range runningActions {
			if lacks(action, in.Name()) {
				missing = append(missing, action)
			}
		}
		if len(missing) > 0 {
			e.Add(missingRight(user, in, missing, "which every program that publishes or reads needs", true))
		}
	}
	if hears != nil && lacks("changeStream", hears.Name()) {
		e.Add(missingRight(user, hears, []string{"changeStream"}, "so readers poll, and find messages of other processes later", false))
	}
	return nil
}

func missingRight(user string, in *mongo.Collection, actions []string, effect string, failure bool) roles.Finding {
	list := strings.Join(actions, ", ")
	where := in.Database().Name() + "." + in.Name()
	return roles.Finding{
		Code: "right_missing", Failure: failure, Subject: list + " on " + where,
		Text:   fmt.Sprintf("The user %s lacks the actions %s on %s, %s.", user, list, where, effect),
		Remedy: "Grant the role readWrite on the database, or these actions; docs/mongodb.md lists all of them.",
	}
}
