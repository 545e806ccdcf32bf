package mongo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storetest"
)

func Test_a_store_keeps_the_contract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(mongotest.Database(t)))
}

func Test_sagas_of_a_store_keep_the_contract(t *testing.T) {
	t.Parallel()
	storetest.RunSagas(t, harness(mongotest.Database(t)))
}

// harness has a prefix for each store, in one database.
func harness(db *driver.Database) storetest.Harness {
	prefixes := &testenv.Shelf{}
	return storetest.Harness{
		New: func(t *testing.T, options storetest.Options) outmill.Store {
			return fromShelf(t, prefixes, db, options)
		},
		Reopen:     reopen,
		Elapse:     elapse,
		Begin:      begin,
		MaxPayload: mongo.DefaultMaxPayload,
		Apply: func(t *testing.T, store outmill.Store, statements []string) {
			prefixes.Changed(store.(conforming).config.CollectionPrefix)
			apply(t, store, statements)
		},
		MakeNewer: func(t *testing.T, store outmill.Store) {
			prefixes.Changed(store.(conforming).config.CollectionPrefix)
			makeNewer(t, store)
		},
	}
}

// fromShelf is newConforming with collections that were used before, if there are
// any. Their indexes may be those of another Retain: Ensure brings them up to date.
func fromShelf(t *testing.T, prefixes *testenv.Shelf, db *driver.Database, options storetest.Options) outmill.Store {
	t.Helper()
	if options.NoSchema {
		return newConforming(t, db, ownPrefix(t, db), options)
	}
	prefix, found := prefixes.Take()
	if !found {
		prefix = newPrefix()
	}
	prefixes.Return(t, prefix, func() { wipe(t, db, prefix) })
	return newConforming(t, db, prefix, options)
}

// wipe empties the collections, but for what meta says of the schema.
func wipe(t *testing.T, db *driver.Database, prefix string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, name := range collectionsOf(t, db, prefix) {
		if name == prefix+"meta" {
			continue
		}
		_, err := db.Collection(name).DeleteMany(ctx, bson.D{})
		require.NoError(t, err)
	}
	_, err := db.Collection(prefix+"meta").UpdateOne(ctx, bson.D{}, bson.D{
		{Key: "$set", Value: bson.D{{Key: "groups", Value: bson.A{}}}}, {Key: "$inc", Value: bson.D{{Key: "generation", Value: 1}}},
	})
	require.NoError(t, err)
}

func collectionsOf(t *testing.T, db *driver.Database, prefix string) []string {
	t.Helper()
	names, err := db.ListCollectionNames(context.WithoutCancel(t.Context()), bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^" + prefix}}}})
	require.NoError(t, err)
	return names
}

func newPrefix() string {
	return "s" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "") + "_"
}

// ownPrefix is the prefix of collections that go with the test.
func ownPrefix(t *testing.T, db *driver.Database) string {
	t.Helper()
	prefix := newPrefix()
	t.Cleanup(func() {
		for _, name := range collectionsOf(t, db, prefix) {
			_ = db.Collection(name).Drop(context.WithoutCancel(t.Context()))
		}
	})
	return prefix
}

// conforming is a store that remembers how it was made, for Reopen.
type conforming struct {
	*mongo.Store
	db     *driver.Database
	config mongo.Config
}

func newConforming(t *testing.T, db *driver.Database, prefix string, options storetest.Options) outmill.Store {
	t.Helper()
	config := mongo.Config{
		Database: db.Name(), CollectionPrefix: prefix, SagaCollection: func(kind string) string { return prefix + kind },
		Retain: options.Retain, DedupWindow: options.DedupWindow,
	}
	store := newStore(t, db.Client(), config)
	// A claim whose turn ends, as on a busy machine, begins again, and counts twice.
	mongo.SetTurn(store, patience)
	if !options.NoSchema {
		require.NoError(t, store.Ensure(t.Context()))
	}
	return conforming{store, db, config}
}

func newStore(t *testing.T, client *driver.Client, config mongo.Config) *mongo.Store {
	t.Helper()
	store, err := mongo.New(client, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func reopen(t *testing.T, store outmill.Store) outmill.Store {
	t.Helper()
	c := store.(conforming)
	return conforming{newStore(t, c.Client(), c.config), c.db, c.config}
}

func (c conforming) collection(name string) *driver.Collection {
	return c.db.Collection(c.config.CollectionPrefix + name)
}

// elapse moves every time in the collections back by d.
func elapse(t *testing.T, store outmill.Store, d time.Duration) {
	t.Helper()
	c := store.(conforming)
	ctx := context.WithoutCancel(t.Context())
	back := func(field string) bson.D {
		return bson.D{{Key: "$cond", Value: bson.A{
			bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$" + field}}, "missing"}}}, "$$REMOVE",
			bson.D{{Key: "$dateAdd", Value: bson.D{{Key: "startDate", Value: "$" + field}, {Key: "unit", Value: "millisecond"}, {Key: "amount", Value: -d.Milliseconds()}}}},
		}}}
	}
	for name, fields := range map[string][]string{
		"records": {"created_at", "due_at", "next_at", "available_at", "expires_at", "processed_at", "delete_at"},
		"lanes":   {"until"},
		"dedup":   {"expires_at"},
		"workers": {"seen_at"},
		"endings": {"ended_at", "look_at"},
		"joins":   {"deadline", "created_at", "updated_at", "finished_at"},

		"ordersaga": {"_created_at", "_updated_at"},
	} {
		var set bson.D
		for _, field := range fields {
			set = append(set, bson.E{Key: field, Value: back(field)})
		}
		_, err := c.collection(name).UpdateMany(ctx, bson.D{}, driver.Pipeline{{{Key: "$set", Value: set}}})
		require.NoError(t, err)
	}
	var meta struct {
		Groups []bson.M `bson:"groups"`
	}
	err := c.collection("meta").FindOne(ctx, bson.D{}).Decode(&meta)
	require.NoError(t, err)
	for _, g := range meta.Groups {
		for _, field := range []string{"seen_at", "expires_at"} {
			if at, has := g[field]; has {
				g[field] = at.(bson.DateTime).Time().Add(-d)
			}
		}
	}
	_, err = c.collection("meta").UpdateOne(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "groups", Value: meta.Groups}}}})
	require.NoError(t, err)
	c.LookAgain()
}

func begin(t *testing.T, store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	t.Helper()
	c := store.(conforming)
	own := context.WithoutCancel(t.Context())
	session, err := c.Client().StartSession()
	require.NoError(t, err)
	t.Cleanup(func() { session.EndSession(own) })
	require.NoError(t, session.StartTransaction())
	return c.WithTx(t.Context(), session), func() error { return session.CommitTransaction(own) }, func() error { return session.AbortTransaction(own) }
}

func apply(t *testing.T, store outmill.Store, statements []string) {
	t.Helper()
	c := store.(conforming)
	for _, statement := range statements {
		text, ok := strings.CutPrefix(statement, "db.runCommand(")
		require.True(t, ok, statement)
		var command bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(text, ")")), false, &command), statement)
		require.NoError(t, c.db.RunCommand(t.Context(), command).Err(), statement)
	}
}

func makeNewer(t *testing.T, store outmill.Store) {
	t.Helper()
	_, err := store.(conforming).collection("meta").UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}, {Key: "compatible", Value: 1}}}})
	require.NoError(t, err)
}
