package mongo_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/subscriber"
)

const fullApp = "full"

// streamsIn are the change streams that a server has open: those whose client waits for an event, and the others.
func streamsIn(t *testing.T, admin *driver.Database) []bson.M {
	t.Helper()
	cursor, err := admin.Aggregate(t.Context(), driver.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleCursors", Value: true}}}},
		{{Key: "$match", Value: bson.D{
			{Key: "cursor.originatingCommand.pipeline.0.$changeStream", Value: bson.D{{Key: "$exists", Value: true}}},
		}}},
	})
	require.NoError(t, err)
	var found []bson.M
	require.NoError(t, cursor.All(t.Context(), &found))
	return found
}

// killStream kills the wait of a change stream for an event.
func killStream(t *testing.T, admin *driver.Database) {
	t.Helper()
	require.True(t, eventually(t.Context(), patience, func() bool {
		for _, stream := range streamsIn(t, admin) {
			if stream["type"] == "op" {
				require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "killOp", Value: 1}, {Key: "op", Value: stream["opid"]}}).Err())
				return true
			}
		}
		return false
	}))
}

// readsWhenFree ends the change stream of a subscriber that is full, and appends what it would have told.
func readsWhenFree(t *testing.T, end func(admin *driver.Database)) {
	t.Helper()
	s, server := ownStand(t, mongo.Config{})
	admin := s.Client().Database("admin")
	heard := &errorsHeard{told: make(chan struct{}, 100)}
	store, err := mongo.New(victimOf(t, server.URL, fullApp), mongo.Config{Database: s.db.Name()}, heard)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	wake := testenv.Hints(t.Context(), store)
	told(t, wake)
	sub, err := subscriber.New(store, subscriber.Config{
		Group: readers, MaxInFlight: 1, BatchSize: 1, PollInterval: time.Hour, UpkeepInterval: -1,
	}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close()) }()
	messages, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	next := func(name string) *message.Message {
		t.Helper()
		select {
		case msg := <-messages:
			require.Equal(t, name, msg.UUID)
			return msg
		case <-time.After(patience):
			require.FailNow(t, name+" was not read")
			return nil
		}
	}
	require.NoError(t, s.Append(t.Context(), one("first")))
	first := next("first")
	told(t, wake)
	end(admin)
	told(t, heard.told)
	require.NoError(t, s.Append(t.Context(), one("second")))
	told(t, wake) // the stream is there again
	first.Ack()
	second := next("second")
	require.NoError(t, s.Append(t.Context(), one("third")))
	second.Ack()
	next("third").Ack()
	require.Len(t, streamsIn(t, admin), 1)
	require.Empty(t, heard.told, "it is logged once")
	require.NoError(t, sub.Close())
	require.NoError(t, store.Close())
	require.True(t, eventually(t.Context(), patience/6, func() bool { return len(streamsIn(t, admin)) == 0 }), "the server keeps no cursor")
}
