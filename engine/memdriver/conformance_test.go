package memdriver_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const noSchema = "a database in memory has no statements"

func suiteOf(atOnce storekit.BatchSize, lose func() bool) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			h := newHarness(t, options, atOnce)
			h.store.db.Lose(lose)
			return h
		},
		Unsupported: map[string]string{
			"schema: Statements returns the schema as text, always the same":                      noSchema,
			"schema: StatementsFrom returns the end of Statements, less for each later version":   noSchema,
			"schema: StatementsFrom refuses a version that is negative or newer than the program": noSchema,
		},
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, suiteOf(0, nil)) }

func TestConformance_Walk(t *testing.T) { storetest.WalkInSteps(t, suiteOf(2, nil)) }

type store struct {
	*engine.Engine
	db *memdriver.Database
}

func (s store) WithTx(ctx context.Context, tx *memdriver.Tx) context.Context {
	return memdriver.Driver{Database: s.db}.WithTx(ctx, tx)
}

type harness struct {
	t       *testing.T
	store   store
	options storetest.Options
	atOnce  storekit.BatchSize
}

func open(t *testing.T, db *memdriver.Database, o storetest.Options, atOnce storekit.BatchSize, fair ...string) store {
	t.Helper()
	config := engine.Config{Name: "memory", Retain: o.Retain, DedupWindow: o.DedupWindow, AtOnce: atOnce, FairTopics: fair}
	s := store{engine.New(serial{memdriver.Driver{Database: db}, t}, config), db}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newHarness(t *testing.T, o storetest.Options, atOnce storekit.BatchSize) harness {
	t.Helper()
	s := open(t, memdriver.New(), o, atOnce)
	if !o.NoSchema {
		if err := s.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return harness{t, s, o, atOnce}
}

func (h harness) Store() outmill.Store  { return h.store }
func (h harness) Reopen() outmill.Store { return open(h.t, h.store.db, h.options, h.atOnce) }
func (h harness) ReopenFair(topics ...string) outmill.Store {
	return open(h.t, h.store.db, h.options, h.atOnce, topics...)
}

func (h harness) Elapse(_ outmill.Store, d time.Duration) { h.store.db.Elapse(d) }

func (harness) Columns() (columns []string) {
	for _, c := range memdriver.Columns() {
		columns = append(columns, string(c))
	}
	return columns
}

func (h harness) Break(_ outmill.Store, id outmill.WorkItemID, column string) {
	if err := h.store.db.Break(id, memdriver.Column(column)); err != nil {
		h.t.Fatal(err)
	}
}

func (h harness) Begin(s outmill.Store) (ctx context.Context, commit, rollback func() error) {
	tx := h.store.db.Begin()
	return s.(store).WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}
