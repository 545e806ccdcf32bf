package tenants_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/internal/testenv/sqlitetest"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
	"github.com/outmill/outmill/tenants"
)

const oneWriter = "SQLite has one writer at a time"

// TestConformance_Joins runs the suite of joins over a set with one member on SQLite.
func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, onSQLite(map[string]string{
		"workers: a user's transaction that starts joins and attaches steps stalls nothing while it is open": oneWriter,
	}))
}

// TestConformance_Transactions runs the suite of transactions, inbox and sagas over such a set.
func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, onSQLite(map[string]string{
		"inbox: a transaction waits for the note of another one for a bounded time":                                oneWriter,
		"notes: a message whose handler is stopped is handled once, also after something was done with its record": oneWriter,
		"notes: an open transaction with a note stalls neither the lease of its record nor claims":                 oneWriter,
	}))
}

func onSQLite(unsupported map[string]string) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			config := sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow}
			h := fileHarness{t, filepath.Join(t.TempDir(), "outbox.db"), config, &clock.Clock{}, nil}
			h.set = h.open(!options.NoSchema)
			return h
		},
		Unsupported: unsupported,
	}
}

// fileHarness is a set over one file.
type fileHarness struct {
	t      *testing.T
	path   string
	config sqlite.Config
	clock  *clock.Clock
	set    *fileSet
}

type fileSet struct {
	*tenants.Set
	file *sqlite.Store
}

func (s *fileSet) DB() *sql.DB { return s.file.DB() }

func (h fileHarness) open(ensure bool) *fileSet {
	h.t.Helper()
	file, err := sqlite.Open(clock.With(h.t.Context(), h.clock), "file:"+h.path+"?_pragma=synchronous(OFF)", h.config, nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, file.Close()) })
	set, err := tenants.New(h.t.Context(), tenants.Config{
		Discovery: tenants.Static{{Key: "a", Store: file}}, Ensure: ensure, DefaultTenant: "a", KeyOf: func(string) string { return "a" },
		CallTimeout: patient,
	}, nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, set.Close()) })
	return &fileSet{set, file}
}

func (h fileHarness) Store() outmill.Store { return h.set }

func (h fileHarness) Reopen() outmill.Store { return h.open(false) }

func (h fileHarness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	file := store.(*fileSet).file
	tx, err := file.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return file.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h fileHarness) EndTx(store outmill.Store) []storetest.TxEnd {
	return sqlitetest.EndTx[storetest.TxEnd](h.t, store.(*fileSet))
}

// Elapse moves the clock of all stores on the file.
func (h fileHarness) Elapse(_ outmill.Store, d time.Duration) { h.clock.Elapse(d) }
