package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/suites"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// The suites run on the store as users have it. The walks through small steps, and the sentences of work in steps, are here as well. Only
// the searches, pages and changes have a suite of their own, in package mysql/internal/driver.
func TestConformance(t *testing.T) {
	t.Parallel()
	engine := suite(t, 0)
	engine.Unsupported = map[string]string{
		"wake: a hint comes after the commit of a caller's transaction, where the engine can tell": "MySQL has no LISTEN: readers poll",
	}
	storetest.Run(t, suites.Queue(engine))
}

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suites.Joins(suite(t, 0)))
}

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suites.Transactions(suite(t, 0)))
}

// Work that is done in several transactions does the same.
func TestStoreInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "walks in small steps")
	storetest.WalkInSteps(t, suite(t, 2))
}

// hostile are parameters of a URL: a DBA may have changed any setting of a session.
const hostile = "autocommit=0&clientFoundRows=true" +
	"&sql_mode='ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE,HIGH_NOT_PRECEDENCE'" +
	"&time_zone='-11:30'&charset=latin1&parseTime=true&loc=Asia%2FTokyo&interpolateParams=true"

// suite makes stores on tables of one database, which later tests use again. Those that keep nothing on ack have hostile sessions, and
// those that retain have the sessions that users have, so that a whole run has each sentence on both.
func suite(t *testing.T, atOnce storekit.BatchSize) storetest.Engine {
	t.Helper()
	database := mysqltest.Database(t)
	tables, usual, changed := &testenv.Shelf{}, pool(t, database), pool(t, database+"?"+hostile)
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			prefix, found := tables.Take()
			if !found || options.NoSchema {
				prefix = "t" + testenv.Suffix("_") + "_"
			}
			config := mysql.Config{Retain: options.Retain, DedupWindow: options.DedupWindow, TablePrefix: prefix, MaxPayload: 9 << 20}
			config = config.InSteps(atOnce)
			h := harness{t: t, tables: tables, admin: usual, db: changed, config: config, clock: &clock.Clock{}}
			if options.Retain > 0 {
				h.db = usual
			}
			h.store = h.open(config)
			tables.Return(t, prefix, h.wipe)
			if options.NoSchema {
				tables.Changed(prefix)
			} else if !found {
				require.NoError(t, h.store.Ensure(t.Context()))
			}
			return h
		},
	}
}

// pool is that of a store that is opened by its URL.
func pool(t *testing.T, url string) *sql.DB {
	t.Helper()
	store, err := mysql.Open(t.Context(), url, mysql.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	store.DB().SetMaxOpenConns(60)
	store.DB().SetMaxIdleConns(60)
	return store.DB()
}

// harness is a store for one test.
type harness struct {
	t      *testing.T
	tables *testenv.Shelf
	// admin is for the test itself, and db for its stores.
	admin, db *sql.DB
	config    mysql.Config
	clock     *clock.Clock
	store     *mysql.Store
}

func (h harness) open(config mysql.Config) *mysql.Store {
	store := mysql.NewAhead(clock.With(h.t.Context(), h.clock), h.db, config)
	h.t.Cleanup(func() { require.NoError(h.t, store.Close()) })
	return store
}

// exec runs a statement.
func (h harness) exec(format string, args ...any) {
	h.t.Helper()
	_, err := h.admin.ExecContext(context.WithoutCancel(h.t.Context()), fmt.Sprintf(format, args...))
	require.NoError(h.t, err)
}

func (h harness) wipe() {
	for _, table := range []string{"records", "notes", "entries", "lines"} {
		h.exec("DELETE FROM %s%s", h.config.TablePrefix, table)
	}
	h.exec("UPDATE %smeta SET routes = 0, pauses = 0", h.config.TablePrefix)
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store { return h.open(h.config) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.config
	config.FairTopics = topics
	return h.open(config)
}

// Elapse moves the clock of all stores on the tables.
func (h harness) Elapse(_ outmill.Store, d time.Duration) { h.clock.Elapse(d) }

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	s := store.(*mysql.Store)
	tx, err := s.DB().BeginTx(context.WithoutCancel(h.t.Context()), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return s.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(*mysql.Store).InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return do(ctx) })
}

func (h harness) Apply(statements []string) {
	h.tables.Changed(h.config.TablePrefix)
	for _, statement := range statements {
		h.exec("%s", statement)
	}
}

func (h harness) MakeNewer() {
	h.tables.Changed(h.config.TablePrefix)
	h.exec("UPDATE %smeta SET version = version + 1, compatible = version + 1", h.config.TablePrefix)
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.admin.QueryContext(h.t.Context(), "SELECT id, grp, topic, status FROM "+h.config.TablePrefix+"readable")
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

// wrong has a value that no store writes, for each column that can have one: the types of the columns refuse most.
var wrong = map[string]string{
	"created_at": "9223372036854775807", "next_at": "-9223372036854775807", "expires_at": "9223372036854775807", "attempts": "-1",
	"claims": "-2", "expiries": "-1", "size": "-1", "due_at": "9223372036854775807", "joins": "'none'", "metadata": "'[1]'",
}

func (h harness) Columns() []string { return slices.Collect(maps.Keys(wrong)) }

func (h harness) Break(_ outmill.Store, id outmill.WorkItemID, column string) {
	h.exec("UPDATE %srecords SET %s = %s WHERE id = x'%x'", h.config.TablePrefix, column, wrong[column], id[:])
}

func (h harness) MaxPayload() int { return h.config.MaxPayload }

// EndTx has the ways in which the server ends a transaction without a call of its methods.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	way := func(name string, commits bool, statement string) storetest.TxEnd {
		return storetest.TxEnd{Name: name, Commits: commits, End: func(ctx context.Context) {
			tx, ok := store.(*mysql.Store).Tx(ctx)
			require.True(h.t, ok)
			_, err := tx.ExecContext(h.t.Context(), statement)
			require.NoError(h.t, err, statement)
		}}
	}
	return []storetest.TxEnd{
		way("a ROLLBACK as a statement", false, "ROLLBACK"),
		way("a COMMIT as a statement", true, "COMMIT"),
		way("a statement of DDL", true, "ANALYZE TABLE "+h.config.TablePrefix+"meta"),
	}
}
