package memstore_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const noSchema = "a database in memory has no statements"

func TestConformance(t *testing.T) {
	storetest.Run(t, harness())
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

func harness() storetest.Harness {
	return storetest.Harness{
		New: func(t *testing.T, options storetest.Options) outmill.Store {
			s := open(t, memstore.NewDatabase(), memstore.Options{Retain: options.Retain, DedupWindow: options.DedupWindow})
			if !options.NoSchema {
				if err := s.Ensure(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return s
		},
		Reopen: func(t *testing.T, store outmill.Store) outmill.Store {
			s := store.(*opened)
			return open(t, s.db, s.options)
		},
		Elapse: func(_ *testing.T, store outmill.Store, d time.Duration) { store.(*opened).db.Elapse(d) },
		Begin: func(t *testing.T, store outmill.Store) (context.Context, func() error, func() error) {
			s := store.(*opened)
			tx := s.db.Begin()
			return s.WithTx(t.Context(), tx), tx.Commit, tx.Rollback
		},
		Unsupported: map[string]string{
			"schema: Statements returns the schema as text, always the same":                      noSchema,
			"schema: Statements make a schema that the store works on":                            noSchema,
			"schema: StatementsFrom returns the end of Statements, less for each later version":   noSchema,
			"schema: StatementsFrom makes the newest schema of each version before":               noSchema,
			"schema: StatementsFrom refuses a version that is negative or newer than the program": noSchema,
		},
	}
}
