package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlitetest"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// maxPayload is small, so that tests need not hold the largest payload that SQLite takes.
const maxPayload = 16 << 20

const oneWriter = "SQLite has one writer at a time"

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, engine(map[string]string{
		"transactions: a transaction that has appended and is open stalls no append, claim or registration": oneWriter,
	}))
}

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, engine(map[string]string{
		"workers: a user's transaction that starts joins and attaches steps stalls nothing while it is open": oneWriter,
	}))
}

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, engine(map[string]string{
		"inbox: a transaction waits for the note of another one for a bounded time":                                oneWriter,
		"notes: a message whose handler is stopped is handled once, also after something was done with its record": oneWriter,
		"notes: an open transaction with a note stalls neither the lease of its record nor claims":                 oneWriter,
	}))
}

// engine has a file for each store.
func engine(unsupported map[string]string) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			return harness{t, newConforming(t, options)}
		},
		Unsupported: unsupported,
	}
}

// harness is a store for one test.
type harness struct {
	t    *testing.T
	file file
}

func (h harness) Store() outmill.Store { return h.file }

// Old says that the store is not on package engine yet.
func (harness) Old() {}

func (h harness) Reopen() outmill.Store { return openFile(h.t, h.file.path, h.file.config) }

func (h harness) Elapse(store outmill.Store, d time.Duration) { passTime(h.t, store.(file).DB(), d) }

func (h harness) GuardSagas(store outmill.Store, kind, field string) {
	_, err := store.(file).DB().ExecContext(h.t.Context(), fmt.Sprintf(
		"CREATE UNIQUE INDEX mine ON outmill_sagas (json_extract(state, '$.%s')) WHERE type = '%s'", field, kind))
	require.NoError(h.t, err)
}

func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	return sqlitetest.EndTx[storetest.TxEnd](h.t, store.(file))
}

func (h harness) MaxPayload() int { return maxPayload }

// file is a store that remembers how it was opened, for Reopen.
type file struct {
	*sqlite.Store
	path   string
	config sqlite.Config
}

func newConforming(t *testing.T, options storetest.Options) file {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	if !options.NoSchema {
		require.NoError(t, os.WriteFile(path, template(), 0o600))
	}
	store := openFile(t, path, sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow, MaxPayload: maxPayload})
	return store
}

// template is an empty database with the schema. A copy of it is faster than a new schema for
// each sentence.
var template = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "outmill-sqlite-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "template.db")
	ctx := context.Background()
	store, err := sqlite.Open(ctx, file, sqlite.Config{}, nil)
	if err == nil {
		err = errors.Join(store.Ensure(ctx), store.Close())
	}
	content, readErr := os.ReadFile(file)
	if err = errors.Join(err, readErr); err != nil {
		panic(err)
	}
	return content
})

// openFile turns off the fsync of each commit, because no sentence depends on it.
func openFile(t *testing.T, path string, config sqlite.Config) file {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return file{store, path, config}
}

// passTime moves every time in the tables back by d.
func passTime(t *testing.T, db *sql.DB, d time.Duration) {
	t.Helper()
	for table, columns := range map[string][]string{
		"records": {"created_at", "due_at", "next_at", "available_at", "expires_at", "processed_at"},
		"lanes":   {"until"},
		"groups":  {"seen_at", "expires_at"},
		"workers": {"seen_at"},
		"endings": {"ended_at", "look_at"},
		"dedup":   {"expires_at"},
		"inbox":   {"delete_at"},
		"sagas":   {"created_at", "updated_at", "delete_at"},
		"audit":   {"changed_at"},
		"joins":   {"deadline", "created_at", "updated_at", "finished_at"},
	} {
		for _, column := range columns {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()),
				fmt.Sprintf(`UPDATE outmill_%s SET %s = %s - ? WHERE %s IS NOT NULL`, table, column, column, column), d.Microseconds())
			require.NoError(t, err)
		}
	}
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	f := store.(file)
	tx, err := f.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return f.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(file).InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return do(ctx) })
}

func (h harness) Apply(statements []string) {
	for _, statement := range statements {
		_, err := h.file.DB().ExecContext(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.file.DB().QueryContext(h.t.Context(), "SELECT id, grp, topic, status FROM outmill_readable")
	require.NoError(h.t, err)
	defer func() { require.NoError(h.t, rows.Close()) }()
	var shown []storetest.Shown
	for rows.Next() {
		var row storetest.Shown
		require.NoError(h.t, rows.Scan(&row.ID, &row.Group, &row.Topic, &row.Status))
		shown = append(shown, row)
	}
	require.NoError(h.t, rows.Err())
	return shown
}

func (h harness) MakeNewer() {
	_, err := h.file.DB().ExecContext(h.t.Context(), `UPDATE outmill_meta SET version = version + 1`)
	require.NoError(h.t, err)
}
