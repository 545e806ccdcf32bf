package mongo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// openAll opens the stores of a discovery's tenants, which are to be n, and has each listen. The
// streams stand.
func openAll(t *testing.T, d mongo.Databases, n int) (stores []*mongo.Store, hints []<-chan struct{}) {
	t.Helper()
	found, err := d.Tenants(t.Context())
	require.NoError(t, err)
	require.Len(t, found, n)
	for _, tenant := range found {
		store, err := d.Open(t.Context(), tenant)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		stores = append(stores, store.(*mongo.Store))
		hints = append(hints, testenv.Hints(t.Context(), store.(*mongo.Store)))
	}
	for i, store := range stores {
		told(t, hints[i])
		require.Eventually(t, func() bool { return mongo.Listens(store) }, time.Minute, 5*time.Millisecond)
	}
	return stores, hints
}

func TestDatabases_Wake(t *testing.T) {
	t.Parallel()

	t.Run("the stores of one cluster share a change stream, and a commit wakes those of its database", func(t *testing.T) {
		t.Parallel()
		const n = 10
		streams := &streamsOf{}
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(streams.monitor()))
		prefix := testenv.DatabaseName()
		for i := range n {
			name := fmt.Sprintf("%s_%d", prefix, i)
			require.NoError(t, newStore(t, client, mongo.Config{Database: name}).Ensure(t.Context()))
			t.Cleanup(func() { _ = client.Database(name).Drop(context.WithoutCancel(t.Context())) })
		}
		stores, hints := openAll(t, mongo.Databases{Client: client, Pattern: prefix + "_*"}, n)
		require.Equal(t, int64(1), streams.opened.Load())

		another := newStore(t, clientOf(t, options.Client().ApplyURI(mongotest.Server(t))),
			mongo.Config{Database: stores[3].Database().Name()})
		require.NoError(t, another.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		for _, hint := range hints {
			for len(hint) > 0 {
				<-hint
			}
		}
		require.NoError(t, another.Append(t.Context(), one("one")))
		told(t, hints[3])
		require.Empty(t, hints[4], "another database's readers were woken")
		require.Len(t, claimed(t, stores[3], claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)), 1)
		require.Equal(t, int64(1), streams.opened.Load())
	})

	t.Run("a user without the right for all databases gets a change stream for each", func(t *testing.T) {
		t.Parallel()
		g := guard(t)
		privileges := bson.A{bson.D{{Key: "resource", Value: bson.D{{Key: "cluster", Value: true}}},
			{Key: "actions", Value: bson.A{"listDatabases"}}}}
		for _, name := range []string{"t1", "t2"} {
			require.NoError(t, newStore(t, g.root, mongo.Config{Database: name}).Ensure(t.Context()))
			privileges = append(privileges, bson.D{
				{Key: "resource", Value: bson.D{{Key: "db", Value: name}, {Key: "collection", Value: ""}}},
				{Key: "actions", Value: bson.A{"find", "insert", "update", "remove", "changeStream"}},
			})
		}
		admin := g.root.Database("admin")
		require.NoError(t, admin.RunCommand(t.Context(),
			bson.D{{Key: "createRole", Value: "two"}, {Key: "privileges", Value: privileges}, {Key: "roles", Value: bson.A{}}}).Err())
		require.NoError(t, admin.RunCommand(t.Context(),
			bson.D{{Key: "createUser", Value: "two"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"two"}}}).Err())
		streams := &streamsOf{}
		client := clientOf(t, g.as(t, "two").SetMonitor(streams.monitor()))
		stores, hints := openAll(t, mongo.Databases{Client: client, Pattern: "t*"}, 2)
		require.Equal(t, int64(2), streams.opened.Load())
		require.NoError(t, newStore(t, g.root, mongo.Config{Database: "t2"}).RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		for len(hints[1]) > 0 {
			<-hints[1]
		}
		require.NoError(t, newStore(t, g.root, mongo.Config{Database: "t2"}).Append(t.Context(), one("one")))
		told(t, hints[1])
		require.Equal(t, "t2", stores[1].Database().Name())
	})
}
