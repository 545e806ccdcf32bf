package driver_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver of database/sql

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/sqlitetest"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func suiteOf(atOnce storekit.BatchSize) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness { return newHarness(t, options, atOnce) },
		Unsupported: map[string]string{
			"transactions: a transaction that has appended and is open stalls no append, claim or registration": "SQLite has one writer at a time",
		},
	}
}

// store is a store on a file.
type store struct {
	*engine.Engine
	driver *driver.Driver
}

func (s store) WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return s.driver.WithTx(ctx, tx)
}

func (s store) DB() *sql.DB { return s.driver.DB() }

// openFile turns off the fsync of each commit, because no sentence depends on it.
func openFile(t testing.TB, path string, config engine.Config, ahead *atomic.Int64) store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)"+
		"&_txlock=immediate&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	db.SetMaxIdleConns(8)
	if config.Name == "" {
		config.Name = "sqlite:" + filepath.Base(path)
	}
	d := driver.New(db, driver.Config{Name: config.Name, Prefix: "outmill_", BusyTimeout: time.Minute, Owned: true,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s := store{engine.New(d, config), d}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type harness struct {
	sqlitetest.Breaker
	t      *testing.T
	path   string
	config engine.Config
	// clock is how far that of the stores is ahead.
	clock *atomic.Int64
	store store
}

func newHarness(t *testing.T, o storetest.Options, atOnce storekit.BatchSize) harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	if !o.NoSchema {
		require.NoError(t, os.WriteFile(path, template(t), 0o600))
	}
	config := engine.Config{Retain: o.Retain, DedupWindow: o.DedupWindow, AtOnce: atOnce}
	clock := &atomic.Int64{}
	return harness{t: t, path: path, config: config, clock: clock, store: openFile(t, path, config, clock)}
}

func (h harness) Store() outmill.Store { return h.store }
func (h harness) Break(s outmill.Store, id outmill.WorkItemID, column string) {
	sqlitetest.BreakColumn(h.t, s.(store).DB(), id.String(), column)
}

func (h harness) Reopen() outmill.Store { return openFile(h.t, h.path, h.config, h.clock) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.config
	config.FairTopics = topics
	return openFile(h.t, h.path, config, h.clock)
}

// Elapse moves the clock of all stores on the file.
func (h harness) Elapse(_ outmill.Store, d time.Duration) { h.clock.Add(int64(d)) }

func (h harness) Begin(s outmill.Store) (ctx context.Context, commit, rollback func() error) {
	tx, err := s.(store).driver.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return s.(store).WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) Apply(statements []string) {
	for _, statement := range statements {
		_, err := h.store.driver.DB().ExecContext(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

func (h harness) MakeNewer() {
	_, err := h.store.driver.DB().ExecContext(h.t.Context(), `UPDATE outmill_meta SET version = version + 1`)
	require.NoError(h.t, err)
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.store.driver.DB().QueryContext(h.t.Context(), "SELECT id, grp, topic, status FROM outmill_readable")
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
