package next_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/next"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suiteOn(t, 0, longest...))
}

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suiteOn(t, 0, "model", "workers", "append", "attach", "report", "finish", "groups", "undeliverable"))
}

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suiteOn(t, 0, "notes"))
}

// Work that is done in several transactions does the same.
func TestConformance_Steps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "random walks in small steps on the next driver of MongoDB")
	storetest.WalkInSteps(t, suiteOn(t, 2))
}

// longest are the sections and sentences that take two thirds of the time, because they are thousands of transactions.
var longest = []string{
	"model", "topic age", "workers",
	"stress: repairs of dead records and pauses at once lose no record and no edit, and keys keep their order",
	"parts: due again, leased or held, each record of each part comes, in the order of its key, by key",
	"parts: due again, leased or held, each record of each part comes, in the order of its key, without an order",
	"find: Find takes texts as they are",
	"giving back: an interrupted drop goes on as it began, although another group has registered since",
	"giving back: a group that registers after an interrupted drop keeps what it still has",
	"giving back: the end of registrations leaves a drop that was interrupted alone",
	"topics: a registration routes the topics that its patterns match and no others",
	"pause: Resume hands out to claims by key in order what many pauses have held, also after the first record of each is deleted",
	"pause: Resume hands out thousands of records, each once and in the order of their keys",
	"pause: a claim finds a record behind thousands of paused ones",
	"pause: claims while pauses come and go hand out each record once and in the order of its key",
	"unreadable: what waits behind a record that cannot be decoded follows it to death with KeyPark, and is delivered otherwise",
}

// suite makes stores with prefixes in one database, which later tests use again.
type suite struct {
	db       *mongo.Database
	prefixes testenv.Shelf
	atOnce   storekit.BatchSize
}

// suiteOn leaves the long sections and sentences out, unless all tests run.
func suiteOn(t testing.TB, atOnce storekit.BatchSize, long ...string) storetest.Engine {
	t.Helper()
	name := mongotest.Database(t).Name()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: noteTrip}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	s := &suite{db: client.Database(name), atOnce: atOnce}
	left := map[string]string{}
	for _, name := range long {
		if !testenv.All() {
			left[name] = testenv.Shorter("it takes thousands of transactions")
		}
	}
	return storetest.Engine{New: s.open, Unsupported: left}
}

func (s *suite) open(t *testing.T, o storetest.Options) storetest.Harness {
	prefix, found := s.prefixes.Take()
	if !found || o.NoSchema {
		prefix = "s" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "") + "_"
	}
	h := harness{t: t, suite: s, config: engine.Config{Retain: o.Retain, DedupWindow: o.DedupWindow, MaxPayload: maxPayload, AtOnce: s.atOnce}}
	h.store = h.opened(prefix, h.config)
	s.prefixes.Return(t, prefix, func() { s.wipe(t, prefix) })
	if o.NoSchema {
		s.prefixes.Changed(prefix)
	} else if !found {
		require.NoError(t, h.store.Ensure(t.Context()))
	}
	return h
}

var metaID = bson.D{{Key: "_id", Value: "outmill"}}

func (s *suite) wipe(t testing.TB, prefix string) {
	ctx := context.WithoutCancel(t.Context())
	for _, name := range []string{"records", "notes", "entries", "lines"} {
		_, err := s.db.Collection(prefix+name).DeleteMany(ctx, bson.D{})
		require.NoError(t, err)
	}
	_, err := s.db.Collection(prefix+"meta").UpdateOne(ctx, metaID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "routes", Value: int64(0)}, {Key: "pauses", Value: int64(0)}, {Key: "ahead", Value: int64(0)},
	}}})
	require.NoError(t, err)
}

// opened is a store with what it was made of.
type opened struct {
	*engine.Engine
	driver *next.Driver
	prefix string
}

type harness struct {
	t      *testing.T
	suite  *suite
	config engine.Config
	store  opened
}

func (h harness) opened(prefix string, config engine.Config) opened {
	config.Name = "mongo:" + prefix
	d := next.New(h.suite.db.Client(), next.Config{Name: config.Name, Database: h.suite.db.Name(), Prefix: prefix})
	o := opened{engine.New(d, config), d, prefix}
	h.t.Cleanup(func() { require.NoError(h.t, o.Close()) })
	return o
}

func (h harness) in(name string) *mongo.Collection {
	return h.suite.db.Collection(h.store.prefix + name)
}

func (h harness) Store() outmill.Store { return h.store }

// maxPayload leaves room for the other fields of a document.
const maxPayload = 15 << 20

func (h harness) MaxPayload() int { return maxPayload }

func (h harness) Reopen() outmill.Store { return h.opened(h.store.prefix, h.config) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.config
	config.FairTopics = topics
	return h.opened(h.store.prefix, config)
}

// Elapse moves the clock of the database.
func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	_, err := h.in("meta").UpdateOne(h.t.Context(), metaID, bson.D{{Key: "$inc", Value: bson.D{{Key: "ahead", Value: d.Microseconds()}}}})
	require.NoError(h.t, err)
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	own := context.WithoutCancel(h.t.Context())
	session, err := h.suite.db.Client().StartSession()
	require.NoError(h.t, err)
	h.t.Cleanup(func() { session.EndSession(own) })
	require.NoError(h.t, session.StartTransaction())
	return store.(opened).driver.WithTx(h.t.Context(), session),
		func() error { return session.CommitTransaction(own) }, func() error { return session.AbortTransaction(own) }
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(opened).driver.Transact(ctx, do)
}

// EndTx has the ways in which the server aborts a transaction.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	of := func(ctx context.Context) (context.Context, *mongo.Session) {
		carried, err := store.TxOf(ctx)
		require.NoError(h.t, err)
		session, ok := carried.(*mongo.Session)
		require.True(h.t, ok, "the context carries a %T", carried)
		return mongo.NewSessionContext(h.t.Context(), session), session
	}
	users := h.in("ended")
	// It exists if another test has used the prefix.
	_ = h.suite.db.CreateCollection(h.t.Context(), users.Name())
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
			require.NoError(h.t, h.suite.db.Client().Database("admin").RunCommand(h.t.Context(),
				bson.D{{Key: "killSessions", Value: bson.A{session.ID()}}}).Err())
		}},
	}
}

// Passing is the error of a transaction that may succeed if it runs again.
func (h harness) Passing(context.Context, outmill.Store) error {
	return mongo.CommandError{Code: 112, Message: "write conflict", Labels: []string{"TransientTransactionError"}}
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

func (h harness) Tap(ctx context.Context) (tapped context.Context, sent func() [][]any) {
	trips := &trips{}
	return context.WithValue(ctx, tapKey{}, trips), trips.list
}

func (h harness) Apply(statements []string) {
	h.suite.prefixes.Changed(h.store.prefix)
	for _, statement := range statements {
		text, ok := strings.CutPrefix(statement, "db.runCommand(")
		require.True(h.t, ok, statement)
		var command bson.D
		require.NoError(h.t, bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(text, ")")), false, &command), statement)
		require.NoError(h.t, h.suite.db.RunCommand(h.t.Context(), command).Err(), statement)
	}
}

func (h harness) MakeNewer() {
	h.suite.prefixes.Changed(h.store.prefix)
	_, err := h.in("meta").UpdateOne(h.t.Context(), metaID,
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
	_, err := h.in("records").UpdateOne(h.t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: column, Value: wrong[column]}}}})
	require.NoError(h.t, err)
}
