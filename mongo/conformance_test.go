package mongo_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/suites"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	name := mongotest.Database(t).Name()
	engine := engine(0, clientOf(t,
		mongooptions.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: noteTrip})).Database(name))
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, suites.Queue(engine))
	})
	t.Run("joins", func(t *testing.T) {
		t.Parallel()
		joinstest.Run(t, suites.Joins(engine))
	})
	t.Run("transactions", func(t *testing.T) {
		t.Parallel()
		txtest.Run(t, suites.Transactions(engine))
	})
}

// engine has a prefix for each store, in one database.
func engine(atOnce int, db *driver.Database) storetest.Engine {
	prefixes := &testenv.Shelf{}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			return harness{t, fromShelf(t, prefixes, db, options, atOnce), prefixes}
		},
	}
}

// A store that works in small steps keeps the order of each key.
func TestStoreInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "random walks and pauses in small steps on MongoDB")
	storetest.WalkInSteps(t, engine(2, mongotest.Database(t)))
}

// harness is a store for one test, and the prefixes that other tests reuse after the test.
type harness struct {
	t        *testing.T
	store    conforming
	prefixes *testenv.Shelf
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store {
	return conforming{newStore(h.t, h.store.Client(), h.store.config), h.store.db, h.store.config}
}

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.store.config
	config.FairTopics = topics
	return conforming{newStore(h.t, h.store.Client(), config), h.store.db, config}
}

func (h harness) Tap(ctx context.Context) (tapped context.Context, sent func() [][]any) {
	trips := &trips{}
	return context.WithValue(ctx, tapKey{}, trips), trips.list
}

type tapKey struct{}

// trips counts commands.
type trips struct{ n atomic.Int64 }

func (t *trips) list() [][]any { return make([][]any, t.n.Load()) }

func noteTrip(ctx context.Context, _ *event.CommandStartedEvent) {
	if t, ok := ctx.Value(tapKey{}).(*trips); ok {
		t.n.Add(1)
	}
}

// EndTx has the ways in which the server aborts a transaction. A client cannot send a commit or an
// abort as a command of the transaction without its session.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	of := func(ctx context.Context) (context.Context, *driver.Session) {
		carried, err := store.TxOf(ctx)
		require.NoError(h.t, err)
		session, ok := carried.(*driver.Session)
		require.True(h.t, ok, "the context carries a %T", carried)
		return driver.NewSessionContext(h.t.Context(), session), session
	}
	users := h.store.db.Collection(h.store.config.CollectionPrefix + "ended")
	// It exists if another test has used the prefix.
	_ = h.store.db.CreateCollection(h.t.Context(), users.Name())
	return []storetest.TxEnd{
		{Name: "a statement that was refused", End: func(ctx context.Context) {
			within, _ := of(ctx)
			_, err := users.InsertMany(within, []any{bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "_id", Value: 1}}})
			require.Error(h.t, err)
		}},
		{Name: "a session that was killed", End: func(ctx context.Context) {
			within, session := of(ctx)
			// The transaction begins on the server with its first statement.
			_, err := users.InsertOne(within, bson.D{{Key: "_id", Value: 2}})
			require.NoError(h.t, err)
			require.NoError(h.t, h.store.Client().Database("admin").RunCommand(h.t.Context(),
				bson.D{{Key: "killSessions", Value: bson.A{session.ID()}}}).Err())
		}},
	}
}

func (h harness) Passing(context.Context, outmill.Store) error {
	return driver.CommandError{Code: 112, Message: "write conflict", Labels: []string{"TransientTransactionError"}}
}

// Doubtful uses a server of its own, whose answer to the next commit is cut off.
func (h harness) Doubtful() outmill.Store {
	const app = "doubtful"
	server := mongotest.Own(h.t)
	store := newConforming(h.t, victimOf(h.t, server.URL, app).Database("test"), newPrefix(), storetest.Options{DedupWindow: time.Hour}, 0)
	failing(h.t, clientOf(h.t, mongooptions.Client().ApplyURI(server.URL)), app, 1, bson.D{
		{Key: "failCommands", Value: bson.A{"commitTransaction"}},
		{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 91}, {Key: "errmsg", Value: "shutting down"}}},
	})
	return store
}

func (h harness) MaxPayload() int { return mongo.DefaultMaxPayload }

// fromShelf is newConforming with used collections, if there are any. Their indexes may be those
// of another Retain. Ensure brings them up to date.
func fromShelf(t *testing.T, prefixes *testenv.Shelf, db *driver.Database, options storetest.Options, atOnce int) conforming {
	t.Helper()
	if options.NoSchema {
		return newConforming(t, db, ownPrefix(t, db), options, atOnce)
	}
	prefix, found := prefixes.Take()
	if !found {
		prefix = newPrefix()
	}
	prefixes.Return(t, prefix, func() { wipe(t, db, prefix) })
	return newConforming(t, db, prefix, options, atOnce)
}

// dropsFrom is the number of documents from which it takes less to drop a collection, which Ensure
// then makes again, than to delete each document with its entries in a dozen indexes.
const dropsFrom = 1000

// wipe empties the collections, but keeps the version of the schema in meta.
func wipe(t *testing.T, db *driver.Database, prefix string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, name := range collectionsOf(t, db, prefix) {
		if name == prefix+"meta" {
			continue
		}
		in := db.Collection(name)
		count, err := in.EstimatedDocumentCount(ctx)
		require.NoError(t, err)
		if count > dropsFrom {
			require.NoError(t, in.Drop(ctx))
			continue
		}
		_, err = in.DeleteMany(ctx, bson.D{})
		require.NoError(t, err)
	}
	_, err := db.Collection(prefix+"meta").UpdateOne(ctx, state, bson.D{
		{Key: "$inc", Value: bson.D{{Key: "routes", Value: 1}, {Key: "pauses", Value: 1}}},
		{Key: "$unset", Value: bson.D{{Key: "ahead", Value: ""}}},
	})
	require.NoError(t, err)
}

// state selects the document of the version and the groups in meta.
var state = bson.D{{Key: "_id", Value: "outmill"}}

func collectionsOf(t *testing.T, db *driver.Database, prefix string) []string {
	t.Helper()
	names, err := db.ListCollectionNames(context.WithoutCancel(t.Context()),
		bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^" + prefix}}}})
	require.NoError(t, err)
	return names
}

func newPrefix() string {
	return "s" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "") + "_"
}

// ownPrefix is the prefix of collections that are dropped with the test.
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

// conforming is a store with its Config, for Reopen.
type conforming struct {
	*mongo.Store
	db     *driver.Database
	config mongo.Config
}

func newConforming(t *testing.T, db *driver.Database, prefix string, options storetest.Options, atOnce int) conforming {
	t.Helper()
	config := mongo.Config{
		Database: db.Name(), CollectionPrefix: prefix, SagaCollection: func(kind string) string { return prefix + kind },
		Retain: options.Retain, DedupWindow: options.DedupWindow,
	}
	config = mongo.AtOnce(config, atOnce)
	store := newStore(t, db.Client(), config)
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

func (c conforming) collection(name string) *driver.Collection {
	return c.db.Collection(c.config.CollectionPrefix + name)
}

// Elapse moves the time of the database, and those of the sagas, which the server itself deletes.
func (h harness) Elapse(store outmill.Store, d time.Duration) {
	c, t := store.(conforming), h.t
	ctx := context.WithoutCancel(t.Context())
	_, err := c.collection("meta").UpdateOne(ctx, state, bson.D{{Key: "$inc", Value: bson.D{{Key: "ahead", Value: d.Microseconds()}}}})
	require.NoError(t, err)
	var set bson.D
	for _, field := range []string{"_created_at", "_updated_at", "_delete_at"} {
		set = append(set, bson.E{Key: field, Value: bson.D{{Key: "$cond", Value: bson.A{
			bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$" + field}}, "missing"}}}, "$$REMOVE",
			bson.D{{Key: "$dateAdd", Value: bson.D{{Key: "startDate", Value: "$" + field}, {Key: "unit", Value: "millisecond"},
				{Key: "amount", Value: -d.Milliseconds()}}}},
		}}}})
	}
	_, err = c.collection("ordersaga").UpdateMany(ctx, bson.D{}, driver.Pipeline{{{Key: "$set", Value: set}}})
	require.NoError(t, err)
}

func (h harness) GuardSagas(store outmill.Store, kind, field string) {
	c := store.(conforming)
	h.prefixes.Changed(c.config.CollectionPrefix)
	_, err := c.db.Collection(c.config.SagaCollection(kind)).Indexes().CreateOne(h.t.Context(), driver.IndexModel{
		Keys: bson.D{{Key: field, Value: 1}}, Options: mongooptions.Index().SetUnique(true),
	})
	require.NoError(h.t, err)
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	c := store.(conforming)
	own := context.WithoutCancel(h.t.Context())
	session, err := c.Client().StartSession()
	require.NoError(h.t, err)
	h.t.Cleanup(func() { session.EndSession(own) })
	require.NoError(h.t, session.StartTransaction())
	return c.WithTx(h.t.Context(), session), func() error { return session.CommitTransaction(own) }, func() error {
		return session.AbortTransaction(own)
	}
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(conforming).InTx(ctx, do)
}

func (h harness) Apply(statements []string) {
	h.prefixes.Changed(h.store.config.CollectionPrefix)
	for _, statement := range statements {
		text, ok := strings.CutPrefix(statement, "db.runCommand(")
		require.True(h.t, ok, statement)
		var command bson.D
		require.NoError(h.t, bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(text, ")")), false, &command), statement)
		require.NoError(h.t, h.store.db.RunCommand(h.t.Context(), command).Err(), statement)
	}
}

func (h harness) MakeNewer() {
	h.prefixes.Changed(h.store.config.CollectionPrefix)
	_, err := h.store.collection("meta").UpdateOne(h.t.Context(), state,
		bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}, {Key: "compatible", Value: 1}}}})
	require.NoError(h.t, err)
}

// wrong has a value that no store writes, for each field that can have one.
var wrong = map[string]any{
	"created": "yesterday", "next": int64(-9223372036854775807), "expires": "never", "attempts": -1, "expiries": "many", "size": "-1",
	"tenant": 7, "worker": 7, "content.due": "now", "content.joins": bson.A{7}, "content.metadata": "[1]", "content.payload": 7,
	"content.error": bson.D{},
}

func (h harness) Columns() (columns []string) {
	for column := range wrong {
		columns = append(columns, column)
	}
	return columns
}

func (h harness) Break(_ outmill.Store, id outmill.WorkItemID, column string) {
	_, err := h.store.collection("records").UpdateOne(h.t.Context(),
		bson.D{{Key: "_id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: column, Value: wrong[column]}}}})
	require.NoError(h.t, err)
}
