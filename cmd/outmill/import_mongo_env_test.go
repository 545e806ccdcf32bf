package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	outmillmongo "github.com/outmill/outmill/mongo"
)

// oldMongo has an outbox on MongoDB, and an old one next to it.
type oldMongo struct {
	*testing.T
	db    *mongo.Database
	store *outmillmongo.Store
	url   string
}

func newOldMongo(t *testing.T) *oldMongo {
	t.Helper()
	db := mongotest.Database(t)
	store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return &oldMongo{t, db, store, urlOf(t, db)}
}

// command is the command of the arguments, which begin with the layout.
func (w *oldMongo) command(args []string) []string {
	return append([]string{"import", args[0], w.url, "--every", "10ms"}, args[1:]...)
}

// tool runs the tool and returns what it has skipped, and behind that the counts of its result.
func (w *oldMongo) tool(ctx context.Context, args ...string) (lines []string, err error) {
	w.Helper()
	got := outmillTool(ctx, append(w.command(args), "-o", "json")...)
	for line := range strings.Lines(got.stderr) {
		if strings.HasPrefix(line, "skipped ") {
			lines = append(lines, line)
		}
	}
	if got.code != exitOK {
		err = errors.New(got.stderr)
	}
	var r importedDocuments
	require.NoError(w, json.Unmarshal([]byte(got.stdout), &r), "%s %s", got.stdout, got.stderr)
	counts := fmt.Sprintf("moved=%d repeated=%d leased=%d dead=%d malformed=%d", r.Moved, r.Known, r.Leased, r.Dead, r.Malformed)
	return append(lines, counts), err
}

// events and entries are arguments for the two layouts, in the test's database.
func (w *oldMongo) events() []string { return []string{"outbox-event-bus"} }

func (w *oldMongo) entries() []string { return []string{"koan", "--database", w.db.Name()} }

// load writes the documents of a file into a collection.
func (w *oldMongo) load(file, collection string) []bson.D {
	w.Helper()
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(w, err)
	var docs []bson.D
	require.NoError(w, bson.UnmarshalExtJSON(text, false, &docs))
	w.insert(collection, docs...)
	return docs
}

func (w *oldMongo) insert(collection string, docs ...bson.D) {
	w.Helper()
	_, err := w.db.Collection(collection).InsertMany(w.Context(), docs)
	require.NoError(w, err)
}

// records returns the records of the outbox, in the order of the appends.
func (w *oldMongo) records() []*outmill.Record {
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

func messageIDs(records []*outmill.Record) []string {
	list := []string{}
	for _, r := range records {
		list = append(list, r.MessageID)
	}
	return list
}

// ofTopic returns the records of a topic.
func ofTopic(topic string, records []*outmill.Record) []*outmill.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r *outmill.Record) bool { return r.Topic != topic })
}

func (w *oldMongo) count(collection string) int {
	w.Helper()
	n, err := w.db.Collection(collection).CountDocuments(context.WithoutCancel(w.Context()), bson.D{})
	require.NoError(w, err)
	return int(n)
}

func (w *oldMongo) statuses(collection, field string) []string {
	w.Helper()
	var list []string
	require.NoError(w, w.db.Collection(collection).Distinct(w.Context(), field, bson.D{}).Decode(&list))
	slices.Sort(list)
	return list
}

func lastLine(lines []string) string { return lines[len(lines)-1] }
