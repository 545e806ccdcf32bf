package mutants

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
	"github.com/outmill/outmill/storetest/internal/suite"
)

// File is a sound store, for mutants to embed.
type File struct {
	*sqlite.Store
	path   string
	config sqlite.Config
	clock  *clock.Clock
}

// file is implemented by stores that wrap a File.
type file interface{ opened() File }

func (f File) opened() File { return f }

// harnessOf is a suite.Harness whose stores change has made.
type harnessOf struct {
	t      *testing.T
	file   File
	store  outmill.Store
	change func(File) outmill.Store
}

// InFile makes harnesses of mutants.
func InFile(change func(File) outmill.Store) func(*testing.T, suite.Options) suite.Harness {
	return harness(change)
}

func harness(change func(File) outmill.Store) func(*testing.T, suite.Options) suite.Harness {
	return func(t *testing.T, options suite.Options) suite.Harness {
		t.Helper()
		config := sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow}
		f := open(t, filepath.Join(t.TempDir(), "outbox.db"), config, &clock.Clock{})
		if !options.NoSchema {
			require.NoError(t, f.Ensure(t.Context()))
		}
		return &harnessOf{t, f, change(f), change}
	}
}

func open(t *testing.T, path string, config sqlite.Config, at *clock.Clock) File {
	t.Helper()
	store, err := sqlite.Open(clock.With(t.Context(), at), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return File{store, path, config, at}
}

func (h *harnessOf) Store() outmill.Store { return h.store }

func (h *harnessOf) Reopen() outmill.Store {
	return h.change(open(h.t, h.file.path, h.file.config, h.file.clock))
}

// ReopenFair is that of storetest.Fair.
func (h *harnessOf) ReopenFair(topics ...string) outmill.Store {
	config := h.file.config
	config.FairTopics = topics
	return h.change(open(h.t, h.file.path, config, h.file.clock))
}

func (h *harnessOf) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	f := store.(file).opened()
	tx, err := f.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return f.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h *harnessOf) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(file).opened().InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return do(ctx) })
}

// EndTx is that of storetest.TxEnder.
func (h *harnessOf) EndTx(store outmill.Store) []suite.TxEnd {
	return sqlitetest.EndTx[suite.TxEnd](h.t, store.(file).opened())
}

// Elapse moves the clock of all stores on the file.
func (h *harnessOf) Elapse(_ outmill.Store, d time.Duration) { h.file.clock.Elapse(d) }
