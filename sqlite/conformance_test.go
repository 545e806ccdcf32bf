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
	"github.com/outmill/outmill/internal/clock"
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
			return harness{t: t, file: newConforming(t, options)}
		},
		Unsupported: unsupported,
	}
}

// harness is a store for one test.
type harness struct {
	sqlitetest.Breaker
	t    *testing.T
	file file
}

func (h harness) Store() outmill.Store { return h.file }

func (h harness) Reopen() outmill.Store { return openAt(h.t, h.file.path, h.file.config, h.file.clock) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.file.config
	config.FairTopics = topics
	return openAt(h.t, h.file.path, config, h.file.clock)
}

// Elapse moves the clock of all stores on the file.
func (h harness) Elapse(_ outmill.Store, d time.Duration) { h.file.clock.Elapse(d) }

func (h harness) GuardSagas(store outmill.Store, kind, field string) {
	prefix := fmt.Sprintf("%d:%s", len(kind), kind)
	_, err := store.(file).DB().ExecContext(h.t.Context(), fmt.Sprintf("CREATE UNIQUE INDEX mine ON outmill_entries "+
		"(json_extract(value, '$.State.%s')) WHERE kind = 'saga' AND substr(key, 1, %d) = '%s'", field, len(prefix), prefix))
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
	clock  *clock.Clock
}

func newConforming(t *testing.T, options storetest.Options, change ...func(sqlite.Config) sqlite.Config) file {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	if !options.NoSchema {
		require.NoError(t, os.WriteFile(path, template(), 0o600))
	}
	config := sqlite.Config{Retain: options.Retain, DedupWindow: options.DedupWindow, MaxPayload: maxPayload, BusyTimeout: time.Minute}
	for _, c := range change {
		config = c(config)
	}
	return openFile(t, path, config)
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

func openFile(t *testing.T, path string, config sqlite.Config) file {
	t.Helper()
	return openAt(t, path, config, &clock.Clock{})
}

// openAt turns off the fsync of each commit, because no sentence depends on it.
func openAt(t *testing.T, path string, config sqlite.Config, at *clock.Clock) file {
	t.Helper()
	store, err := sqlite.Open(clock.With(t.Context(), at), "file:"+path+"?_pragma=synchronous(OFF)", config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return file{store, path, config, at}
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

func (h harness) Break(store outmill.Store, id outmill.WorkItemID, column string) {
	sqlitetest.BreakColumn(h.t, store.(file).DB(), id.String(), column)
}
