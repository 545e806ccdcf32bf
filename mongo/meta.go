package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// metaID is the id of the only document of the meta collection. The document has the version of
// the schema, and the registrations, in their order.
const metaID = "outmill"

// state is that document, and the server's time when it was read.
type state struct {
	Version    int            `bson:"version"`
	Compatible int            `bson:"compatible"`
	Generation int64          `bson:"generation"`
	Groups     []registration `bson:"groups"`
	Now        time.Time      `bson:"now"`
}

type registration struct {
	Group   string    `bson:"group"`
	Include []string  `bson:"include"`
	Exclude []string  `bson:"exclude"`
	SeenAt  time.Time `bson:"seen_at"`
	// ExpiresAt is the end of the registration. It is absent if the registration never ends.
	ExpiresAt time.Time `bson:"expires_at,omitempty"`
	// Holding says that the registration does not take what waits for a first group.
	Holding bool `bson:"holding,omitempty"`
}

func (r registration) topics() outmill.Topics {
	return outmill.Topics{Include: orNil(r.Include), Exclude: orNil(r.Exclude)}
}

// loadState reads the state, in the transaction of ctx if it has one. It returns an error if this
// program must not work with the schema.
func (s *Store) loadState(ctx context.Context) (*state, error) {
	asked := time.Now()
	found, err := s.findState(ctx)
	if err != nil {
		return &state{}, err
	}
	if err := schemaError(found); err != nil {
		return found, err
	}
	s.clock.set(found.Now, asked)
	return found, nil
}

// findState returns a state of version 0 if there is none.
func (s *Store) findState(ctx context.Context) (*state, error) {
	cursor, err := s.meta.Aggregate(ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: metaID}}}},
		{{Key: "$set", Value: bson.D{{Key: "now", Value: "$$NOW"}}}},
	})
	if err != nil {
		return nil, err
	}
	var found []*state
	if err := cursor.All(ctx, &found); err != nil || len(found) == 0 {
		return &state{}, err
	}
	return found[0], nil
}

func (s *state) table() *storekit.RoutingTable {
	table := &storekit.RoutingTable{Generation: s.Generation}
	for _, r := range s.Groups {
		table.Registrations = append(table.Registrations, storekit.StoredRegistration{
			Group: r.Group, SeenAt: r.SeenAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(), Topics: r.topics(), Holding: r.Holding,
		})
	}
	return table
}

func orNil(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// setMeta updates the document of the state, and reports whether the filter selected it.
func (s *Store) setMeta(ctx context.Context, filter bson.D, update any) (bool, error) {
	result, err := s.meta.UpdateOne(ctx, append(bson.D{{Key: "_id", Value: metaID}}, filter...), update)
	return err == nil && result.MatchedCount > 0, err
}
