package mutants

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlitetest"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// File is a sound store, for mutants to embed.
type File struct {
	*sqlite.Store
	path   string
	config sqlite.Config
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
		f := open(t, filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow})
		if !options.NoSchema {
			require.NoError(t, f.Ensure(t.Context()))
		}
		return &harnessOf{t, f, change(f), change}
	}
}

func open(t *testing.T, path string, config sqlite.Config) File {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return File{store, path, config}
}

func (h *harnessOf) Store() outmill.Store { return h.store }

// Old says that the store is not on package engine yet.
func (*harnessOf) Old() {}

func (h *harnessOf) Reopen() outmill.Store { return h.change(open(h.t, h.file.path, h.file.config)) }

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

// Elapse moves every time in the tables back by d. Columns that hold times are those
// whose names end in _at.
func (h *harnessOf) Elapse(store outmill.Store, d time.Duration) {
	db := store.(file).opened().DB()
	rows, err := db.QueryContext(h.t.Context(), `SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
		WHERE t.type = 'table' AND c.name LIKE '%\_at' ESCAPE '\'`)
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, rows.Close()) }()
	var updates []string
	for rows.Next() {
		var table, column string
		require.NoError(h.t, rows.Scan(&table, &column))
		updates = append(updates, fmt.Sprintf(`UPDATE %s SET %s = %s - ? WHERE %s IS NOT NULL`, table, column, column, column))
	}
	require.NoError(h.t, rows.Err())
	for _, update := range updates {
		_, err := db.ExecContext(context.WithoutCancel(h.t.Context()), update, d.Microseconds())
		require.NoError(h.t, err)
	}
}

// ReopenFair is Reopen with a store that serves turns.
func (h *harnessOf) ReopenFair(topics ...string) outmill.Store {
	config := h.file.config
	config.FairTopics = topics
	return h.change(open(h.t, h.file.path, config))
}
