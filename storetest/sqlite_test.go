package storetest

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is a store as its own tests have it, for mutants to be made of.
type file struct {
	*sqlite.Store
	path   string
	config sqlite.Config
}

// holder is what wraps a file.
type holder interface{ opened() file }

func (f file) opened() file { return f }

func fileOf(store outmill.Store) file { return store.(holder).opened() }

// sqliteHarness is a harness whose stores are as change makes them.
func sqliteHarness(change func(file) outmill.Store) Harness {
	return Harness{
		New: func(t *testing.T, options Options) outmill.Store {
			f := openFile(t, filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow})
			if !options.NoSchema {
				require.NoError(t, f.Ensure(t.Context()))
			}
			return change(f)
		},
		Reopen: func(t *testing.T, store outmill.Store) outmill.Store {
			f := fileOf(store)
			return change(openFile(t, f.path, f.config))
		},
		Elapse: passTime,
		Begin: func(t *testing.T, store outmill.Store) (context.Context, func() error, func() error) {
			f := fileOf(store)
			tx, err := f.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return f.WithTx(t.Context(), tx), tx.Commit, tx.Rollback
		},
	}
}

func openFile(t *testing.T, path string, config sqlite.Config) file {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return file{store, path, config}
}

// passTime moves every time in the tables back by d. Columns that hold times
// are those whose names end in _at.
func passTime(t *testing.T, store outmill.Store, d time.Duration) {
	t.Helper()
	db := fileOf(store).DB()
	rows, err := db.QueryContext(t.Context(), `SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
		WHERE t.type = 'table' AND c.name LIKE '%\_at' ESCAPE '\'`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var updates []string
	for rows.Next() {
		var table, column string
		require.NoError(t, rows.Scan(&table, &column))
		updates = append(updates, fmt.Sprintf(`UPDATE %s SET %s = %s - ? WHERE %s IS NOT NULL`, table, column, column, column))
	}
	require.NoError(t, rows.Err())
	for _, update := range updates {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), update, d.Microseconds())
		require.NoError(t, err)
	}
}
