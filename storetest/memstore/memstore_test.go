package memstore_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/storetest/txtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const noSchema = "a database in memory has no statements"

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Engine{
		New: newHarness,
		Unsupported: map[string]string{
			"schema: Statements returns the schema as text, always the same":                      noSchema,
			"schema: StatementsFrom returns the end of Statements, less for each later version":   noSchema,
			"schema: StatementsFrom refuses a version that is negative or newer than the program": noSchema,
		},
	})
}

func TestConformance_Transactions(t *testing.T) {
	txtest.Run(t, storetest.Engine{New: newHarness})
}

func newHarness(t *testing.T, options storetest.Options) storetest.Harness {
	t.Helper()
	s := open(t, memstore.NewDatabase(), memstore.Options{Retain: options.Retain, DedupWindow: options.DedupWindow})
	if !options.NoSchema {
		if err := s.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return harness{t, s}
}

// harness is a store for one test.
type harness struct {
	t     *testing.T
	store *opened
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store { return open(h.t, h.store.db, h.store.options) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	options := h.store.options
	options.FairTopics = topics
	return open(h.t, h.store.db, options)
}

func (h harness) Elapse(_ outmill.Store, d time.Duration) { h.store.db.Elapse(d) }

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	tx := h.store.db.Begin()
	return store.(*opened).WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) GuardSagas(_ outmill.Store, kind, field string) { h.store.db.GuardSagas(kind, field) }

// EndTx has no way of an engine's own: memory ends no transaction by itself.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	end := func(by func(*memstore.Tx) error) func(ctx context.Context) {
		return func(ctx context.Context) {
			tx, ok := store.(*opened).Tx(ctx)
			if !ok {
				h.t.Fatal("the context carries no transaction")
			}
			if err := by(tx); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	return []storetest.TxEnd{
		{Name: "a rollback", End: end((*memstore.Tx).Rollback)},
		{Name: "a commit", Commits: true, End: end((*memstore.Tx).Commit)},
	}
}

// Passing is what an append gets whose dedup key another open transaction has.
func (h harness) Passing(ctx context.Context, store outmill.Store) error {
	other := h.store.db.Begin()
	record := func() *outmill.Record { return &outmill.Record{Topic: "passing", DedupKey: "key"} }
	if err := h.store.Append(h.store.WithTx(h.t.Context(), other), record()); err != nil {
		h.t.Fatal(err)
	}
	err := store.Append(ctx, record())
	if err := other.Rollback(); err != nil {
		h.t.Fatal(err)
	}
	return err
}

// opened is a store with what it was made of.
type opened struct {
	*memstore.Store
	db      *memstore.Database
	options memstore.Options
}

func open(t *testing.T, db *memstore.Database, options memstore.Options) *opened {
	s := &opened{memstore.New(db, options), db, options}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
