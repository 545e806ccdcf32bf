package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	outmillmongo "github.com/outmill/outmill/mongo"
)

// argsVariable makes the test binary run as the tool.
const argsVariable = "OUTMILL_TEST_MIGRATE_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(argsVariable); args != "" {
		if run(context.Background(), strings.Split(args, "\n"), os.Stdout, os.Stderr) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// world has an outbox, and an old one next to it.
type world struct {
	*testing.T
	db    *mongo.Database
	store *outmillmongo.Store
	url   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := mongotest.Database(t)
	store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	parsed, err := url.Parse(mongotest.Server(t))
	require.NoError(t, err)
	parsed.Path = "/" + db.Name()
	return &world{t, db, store, parsed.String()}
}

// tool runs the tool and returns its lines.
func (w *world) tool(ctx context.Context, args ...string) (lines []string, err error) {
	w.Helper()
	var out, errOut bytes.Buffer
	err = run(ctx, append([]string{"-store", w.url, "-every", "10ms"}, args...), &out, &errOut)
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}

// events and entries are arguments for the two layouts, in the test's database.
func (w *world) events() []string { return []string{"-layout", "outbox-event-bus"} }

func (w *world) entries() []string {
	return []string{"-layout", "koan", "-database", w.db.Name()}
}

// load writes the documents of a file into a collection.
func (w *world) load(file, collection string) []bson.D {
	w.Helper()
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(w, err)
	var docs []bson.D
	require.NoError(w, bson.UnmarshalExtJSON(text, false, &docs))
	w.insert(collection, docs...)
	return docs
}

func (w *world) insert(collection string, docs ...bson.D) {
	w.Helper()
	_, err := w.db.Collection(collection).InsertMany(w.Context(), docs)
	require.NoError(w, err)
}

// records returns the records of the outbox, in the order of the appends.
func (w *world) records() []*outmill.Record {
	w.Helper()
	ctx := context.WithoutCancel(w.Context())
	require.NoError(w, w.store.RegisterGroup(ctx, outmill.Registration{}))
	var all []*outmill.Record
	owner := outmill.NewOwnerToken()
	for {
		claimed, err := w.store.Claim(ctx, outmill.ClaimRequest{Owner: owner, Limit: 1000, Lease: time.Minute})
		require.NoError(w, err)
		if len(claimed) == 0 {
			return all
		}
		all = append(all, claimed...)
	}
}

func ids(records []*outmill.Record) []string {
	list := []string{}
	for _, r := range records {
		list = append(list, r.MessageID)
	}
	return list
}

// of returns the records of a topic.
func of(topic string, records []*outmill.Record) []*outmill.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r *outmill.Record) bool { return r.Topic != topic })
}

func (w *world) count(collection string) int {
	w.Helper()
	n, err := w.db.Collection(collection).CountDocuments(context.WithoutCancel(w.Context()), bson.D{})
	require.NoError(w, err)
	return int(n)
}

func (w *world) statuses(collection, field string) []string {
	w.Helper()
	var list []string
	require.NoError(w, w.db.Collection(collection).Distinct(w.Context(), field, bson.D{}).Decode(&list))
	slices.Sort(list)
	return list
}

func last(lines []string) string { return lines[len(lines)-1] }
