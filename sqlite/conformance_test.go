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
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
)

// maxPayload is small, so that a test need not hold what SQLite could.
const maxPayload = 16 << 20

func Test_a_store_keeps_the_contract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

func Test_transactions_of_a_store_keep_the_contract(t *testing.T) {
	t.Parallel()
	storetest.RunTransactions(t, harness())
}

func Test_sagas_of_a_store_keep_the_contract(t *testing.T) {
	t.Parallel()
	storetest.RunSagas(t, harness())
}

func harness() storetest.Harness {
	return storetest.Harness{
		New:        newConforming,
		Reopen:     reopen,
		Elapse:     elapse,
		Begin:      begin,
		MaxPayload: maxPayload,
		Apply:      apply,
		MakeNewer:  makeNewer,
		Readable:   readable,
		Unsupported: map[string]string{
			"transactions: a transaction that has appended and is open stalls no append, claim or registration":          "SQLite has one writer at a time",
			"join workers: a user's transaction that starts joins and attaches steps stalls nothing while it is open":    "SQLite has one writer at a time",
			"acks in transactions: two transactions ack two records of one claim at the same time":                       "SQLite has one writer at a time",
			"acks in transactions: no claim or reaper waits for an ack in an open transaction, or hands its record out":  "SQLite has one writer at a time",
			"acks in transactions: the later records of a key wait until the transaction with the ack has ended":         "SQLite has one writer at a time",
			"acks in transactions: an open transaction with the ack of a step stalls no ack of another step of the join": "SQLite has one writer at a time",
		},
	}
}

// file is a store that remembers how it was opened, for Reopen.
type file struct {
	*sqlite.Store
	path   string
	config sqlite.Config
}

func newConforming(t *testing.T, options storetest.Options) outmill.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	if !options.NoSchema {
		require.NoError(t, os.WriteFile(path, template(), 0o600))
	}
	store := openFile(t, path, sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow, MaxPayload: maxPayload})
	return store
}

// template is an empty database with the schema: to copy it is quicker than to
// make one for each sentence.
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

// openFile leaves out the fsync of each commit, which no sentence is about.
func openFile(t *testing.T, path string, config sqlite.Config) file {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return file{store, path, config}
}

func reopen(t *testing.T, store outmill.Store) outmill.Store {
	t.Helper()
	f := store.(file)
	return openFile(t, f.path, f.config)
}

func elapse(t *testing.T, store outmill.Store, d time.Duration) {
	t.Helper()
	passTime(t, store.(file).DB(), d)
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
		"joins":   {"deadline", "created_at", "updated_at", "finished_at"},
		"sagas":   {"created_at", "updated_at"},
	} {
		for _, column := range columns {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()),
				fmt.Sprintf(`UPDATE outmill_%s SET %s = %s - ? WHERE %s IS NOT NULL`, table, column, column, column), d.Microseconds())
			require.NoError(t, err)
		}
	}
}

func begin(t *testing.T, store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	t.Helper()
	f := store.(file)
	tx, err := f.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return f.WithTx(t.Context(), tx), tx.Commit, tx.Rollback
}

func apply(t *testing.T, store outmill.Store, statements []string) {
	t.Helper()
	for _, statement := range statements {
		_, err := store.(file).DB().ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// readable is what the view for people shows.
func readable(t *testing.T, store outmill.Store) []storetest.Shown {
	t.Helper()
	rows, err := store.(file).DB().QueryContext(t.Context(), "SELECT id, grp, topic, status FROM outmill_readable")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var shown []storetest.Shown
	for rows.Next() {
		var row storetest.Shown
		require.NoError(t, rows.Scan(&row.ID, &row.Group, &row.Topic, &row.Status))
		shown = append(shown, row)
	}
	require.NoError(t, rows.Err())
	return shown
}

func makeNewer(t *testing.T, store outmill.Store) {
	t.Helper()
	_, err := store.(file).DB().ExecContext(t.Context(), `UPDATE outmill_meta SET version = version + 1`)
	require.NoError(t, err)
}
