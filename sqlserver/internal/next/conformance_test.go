package next_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver/internal/next"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := connect(t)
	drivertest.Run(t, func(t *testing.T) driver.DB {
		d := next.New(db, next.Config{Name: "driver", Schema: "dbo", Prefix: "driver_"})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suiteOn(connect(t), 0))
}

// Work that is done in several transactions does the same.
func TestConformance_Steps(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "walks in small steps")
	storetest.WalkInSteps(t, suiteOn(connect(t), 2))
}

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suiteOn(connect(t), 0))
}

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suiteOn(connect(t), 0))
}

// connect returns a pool on a database of its own, which keeps versions of rows. Without a server it skips the test.
func connect(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	require.NoError(t, err)
	db.SetMaxOpenConns(40)
	db.SetMaxIdleConns(40)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	if !sqlservertest.IsBabelfish(t, db) {
		_, err := db.ExecContext(t.Context(), "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE")
		require.NoError(t, err)
	}
	return db
}

// suiteOn makes stores on tables of one database, which later tests use again.
func suiteOn(db *sql.DB, atOnce storekit.BatchSize) storetest.Engine {
	tables := &testenv.Shelf{}
	return storetest.Engine{
		Unsupported: map[string]string{
			"wake: a hint comes after the commit of a caller's transaction, where the engine can tell": "SQL Server has no LISTEN: readers poll",
		},
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			prefix, found := tables.Take()
			if !found || options.NoSchema {
				prefix = "t" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "") + "_"
			}
			h := harness{
				t: t, db: db, tables: tables, prefix: prefix,
				config: engine.Config{Retain: options.Retain, DedupWindow: options.DedupWindow, AtOnce: atOnce},
			}
			tables.Return(t, prefix, h.wipe)
			h.store = h.open(h.config)
			if options.NoSchema {
				tables.Changed(prefix)
				return h
			}
			if !found {
				require.NoError(t, h.store.Ensure(t.Context()))
			}
			h.setClock(0)
			return h
		},
	}
}

// opened is a store with its driver.
type opened struct {
	*engine.Engine
	driver *next.Driver
}

func (o opened) WithTx(ctx context.Context, tx any) context.Context { return o.driver.WithTx(ctx, tx) }

type harness struct {
	t      *testing.T
	db     *sql.DB
	tables *testenv.Shelf
	prefix string
	config engine.Config
	store  opened
}

func (h harness) open(config engine.Config) opened {
	config.Name = "sqlserver:" + h.prefix
	d := next.New(h.db, next.Config{Name: config.Name, Schema: "dbo", Prefix: h.prefix})
	o := opened{engine.New(d, config), d}
	h.t.Cleanup(func() { require.NoError(h.t, o.Close()) })
	return o
}

// exec runs a text in which {} stands for the beginning of the names of all tables.
func (h harness) exec(text string, args ...any) {
	h.t.Helper()
	_, err := h.db.ExecContext(context.WithoutCancel(h.t.Context()), strings.ReplaceAll(text, "{}", "dbo."+h.prefix), args...)
	require.NoError(h.t, err, text)
}

func (h harness) wipe() {
	h.exec("DELETE FROM {}records; DELETE FROM {}notes; DELETE FROM {}entries; UPDATE {}meta SET routes = 0, pauses = 0")
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store { return h.open(h.config) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.config
	config.FairTopics = topics
	return h.open(config)
}

// clock is that of the schema, and more.
const clock = "DATEDIFF_BIG(MICROSECOND, CAST('1970-01-01T00:00:00' AS DATETIME2(7)), SYSUTCDATETIME())"

// Elapse moves the clock of the tables.
func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	var ahead int64
	require.NoError(h.t, h.db.QueryRowContext(h.t.Context(), "SELECT dbo."+h.prefix+"now() - "+clock).Scan(&ahead))
	h.setClock(time.Duration(ahead)*time.Microsecond + d)
}

func (h harness) setClock(ahead time.Duration) {
	h.exec(fmt.Sprintf("CREATE OR ALTER FUNCTION {}now() RETURNS BIGINT AS BEGIN RETURN %s + %d; END", clock, ahead.Microseconds()))
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	tx, err := h.db.BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return store.(opened).WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) Apply(statements []string) {
	h.tables.Changed(h.prefix)
	for _, statement := range statements {
		h.exec(statement)
	}
}

func (h harness) MakeNewer() {
	h.tables.Changed(h.prefix)
	h.exec("UPDATE {}meta SET version = version + 1, compatible = version + 1")
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.db.QueryContext(h.t.Context(), "SELECT id, grp, topic, status FROM dbo."+h.prefix+"readable")
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

// wrong has a value that no store writes, for each column that can have one: SQL Server's types refuse most.
var wrong = map[string]string{
	"created_at": "9223372036854775807", "next_at": "-9223372036854775807", "expires_at": "9223372036854775807", "attempts": "-1",
	"claims": "-2", "expiries": "-1", "size": "-1", "due_at": "9223372036854775807", "joins": "N'none'", "metadata": "N'[1]'",
}

func (h harness) Columns() (columns []string) {
	for column := range wrong {
		columns = append(columns, column)
	}
	return columns
}

func (h harness) Break(_ outmill.Store, id outmill.WorkItemID, column string) {
	h.exec("UPDATE {}records SET "+column+" = "+wrong[column]+" WHERE id = CAST(@id AS BINARY(16))", sql.Named("id", id[:]))
}

// EndTx has the ways in which SQL Server ends a transaction without a call of its methods.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	way := func(name string, commits bool, statement string) storetest.TxEnd {
		return storetest.TxEnd{Name: name, Commits: commits, End: func(ctx context.Context) {
			carried, err := store.TxOf(ctx)
			require.NoError(h.t, err)
			tx, ok := carried.(*sql.Tx)
			require.True(h.t, ok, "the context carries a %T", carried)
			_, err = tx.ExecContext(h.t.Context(), statement)
			require.Equal(h.t, strings.Contains(statement, "THROW"), err != nil, "%s: %v", statement, err)
		}}
	}
	return []storetest.TxEnd{
		way("a ROLLBACK as a statement", false, "ROLLBACK TRANSACTION"),
		way("a COMMIT as a statement", true, "COMMIT TRANSACTION"),
		way("an error under XACT_ABORT", false, "SET XACT_ABORT ON; THROW 50001, N'refused', 1;"),
	}
}

// Passing is the error of a transaction that may succeed if it runs again.
func (h harness) Passing(ctx context.Context, store outmill.Store) error {
	tx, err := store.TxOf(ctx)
	require.NoError(h.t, err)
	_, err = tx.(*sql.Tx).ExecContext(ctx, "THROW 50901, N'raised', 1;")
	return err
}
