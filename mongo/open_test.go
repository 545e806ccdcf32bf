package mongo_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// inDatabase is the server's URL with a database and further parameters.
func inDatabase(t *testing.T, server, database string, parameters ...string) string {
	t.Helper()
	parsed, err := url.Parse(server)
	require.NoError(t, err)
	parsed.Path = "/" + database
	parsed.RawQuery = strings.Join(append([]string{parsed.RawQuery}, parameters...), "&")
	return parsed.String()
}

func TestStore_Open(t *testing.T) {
	t.Parallel()

	t.Run("a store is opened by its URL", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		at := inDatabase(t, mongotest.Server(t), db.Name(), "name=shop", "collection_prefix=shop_", "retain=1h", "dedup_window=2h",
			"ensure_schema=true", "embed_json=true", "appName=a+test", "change_stream=false")
		store, err := outmill.Open(t.Context(), at, nil)
		require.NoError(t, err)
		require.Equal(t, "shop", store.Name())
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		object := one("one")
		object.Payload = []byte("{}")
		require.NoError(t, store.Append(t.Context(), object))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		require.Equal(t, []string{"one"}, listed(t, store), "retain")
		n, err := db.Collection("shop_records").CountDocuments(t.Context(), bson.D{{Key: "content.payload", Value: bson.D{}}})
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		require.Equal(t, db.Name(), store.(*mongo.Store).Database().Name())
		client := store.(*mongo.Store).Client()
		require.NoError(t, store.Close())
		require.NoError(t, store.Close())
		require.ErrorIs(t, store.Append(t.Context(), one("late")), outmill.ErrClosed)
		require.ErrorIs(t, client.Ping(t.Context(), nil), driver.ErrClientDisconnected, "the store owned its client")
	})

	t.Run("a store without a schema returns an error, or makes one if EnsureSchema is set", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		at := inDatabase(t, mongotest.Server(t), db.Name())
		store, err := mongo.Open(t.Context(), at, mongo.Config{Database: db.Name()}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.Equal(t, "mongo:"+db.Name(), store.Name())
		require.ErrorIs(t, store.Append(t.Context(), one("one")), outmill.ErrSchemaMissing)
		lazy := newStore(t, db.Client(), mongo.Config{Database: db.Name(), EnsureSchema: true})
		require.NoError(t, lazy.Append(t.Context(), one("one")))
		require.NoError(t, store.Append(t.Context(), one("two")))
		require.Equal(t, []string{"one", "two"}, listed(t, store))
	})

	t.Run("an invalid parameter is refused by its name", func(t *testing.T) {
		t.Parallel()
		for parameter, want := range map[string]string{
			"retain=often":          "retain",
			"retain=-1s":            "Config.Retain",
			"dedup_window=1":        "dedup_window",
			"transactions=false":    "transactions",
			"change_stream=2":       "change_stream",
			"ensure_schema=":        "ensure_schema",
			"collection_prefix=%24": "CollectionPrefix",
			"w=1%":                  "parameters of the URL",
		} {
			_, err := outmill.Open(t.Context(), "mongodb://user:secret@127.0.0.1:1/orders?"+parameter, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, parameter)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
		}
	})

	t.Run("passwords are in no error", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for _, uri := range []string{
			"mongodb://user:secret@127.0.0.1:1/orders?serverSelectionTimeoutMS=100",
			"mongodb://user:secret@127.0.0.1:1/orders?serverSelectionTimeoutMS=often",
			"mongodb://user:sec/secret@127.0.0.1:1/orders",
			"mongodb://user:secret@127.0.0.1:port/orders",
			"mongodb://user:sec%zzsecret@127.0.0.1:1/orders",
			"mongodb://user:secret@/orders",
			"mongodb+srv://user:secret@127.0.0.1/orders",
			"mongodb://user:secret@127.0.0.1:1/orders?authMechanism=NONE",
			"mongodb://user:secret@127.0.0.1:1/a.b",
			"mongodb://user:secret@127.0.0.1:1,127.0.0.1:2/orders?directConnection=true",
		} {
			_, err := outmill.Open(ctx, uri, nil)
			require.Error(t, err, uri)
			require.NotContains(t, err.Error(), "secret")
			_, err = mongo.Open(ctx, uri, mongo.Config{}, nil)
			require.Error(t, err, uri)
			require.NotContains(t, err.Error(), "secret")
		}
	})

	t.Run("a URL may name all members of a replica set", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		at := inDatabase(t, mongotest.Server(t), db.Name(), "ensure_schema=true")
		parsed, err := url.Parse(at)
		require.NoError(t, err)
		// The list names the same member twice, because there are no others.
		at = strings.Replace(at, parsed.Host, parsed.Host+","+parsed.Host, 1)
		store, err := outmill.Open(t.Context(), at, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Append(t.Context(), one("one")))
		require.Equal(t, []string{"one"}, listed(t, stand{store.(*mongo.Store), db}))
		n, err := db.Collection("outmill_records").CountDocuments(t.Context(), struct{}{})
		require.NoError(t, err)
		require.Equal(t, int64(1), n, "the path names the database")
	})

	t.Run("New without a client makes a client and does not connect", func(t *testing.T) {
		t.Parallel()
		store, err := mongo.New(nil, mongo.Config{}, nil)
		require.NoError(t, err)
		require.Equal(t, "mongo:outmill", store.Name())
		require.NoError(t, store.Close())
		require.ErrorIs(t, store.Client().Ping(t.Context(), nil), driver.ErrClientDisconnected)
	})

	t.Run("Close does not disconnect the user's client", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		s.Wake(t.Context(), func(string) {})
		require.NoError(t, s.Close())
		require.NoError(t, s.Client().Ping(t.Context(), nil))
		_, err := s.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
		require.ErrorIs(t, err, outmill.ErrClosed)
		require.ErrorIs(t, s.InTx(t.Context(), func(context.Context) error { return nil }), outmill.ErrClosed)
		require.ErrorIs(t, s.Ensure(t.Context()), outmill.ErrClosed)
	})

	t.Run("an unreachable server is an error within the context's deadline", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := mongo.Open(ctx, "mongodb://127.0.0.1:1/", mongo.Config{}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		store := newStore(t, clientOf(t, options.Client().ApplyURI("mongodb://127.0.0.1:1/")), mongo.Config{})
		require.ErrorIs(t, store.Append(ctx, one("never")), context.DeadlineExceeded)
	})
}
