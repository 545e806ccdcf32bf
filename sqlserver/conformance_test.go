package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// maxPayload is small, so that a test need not hold the largest payload of SQL Server.
const maxPayload = 16 << 20

func TestConformance(t *testing.T) {
	t.Parallel()
	engine := engine(pool(t), 0)
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		engine := engine
		engine.Unsupported = map[string]string{
			"wake: a hint comes after the commit of a caller's transaction, where the engine can tell": "SQL Server has no LISTEN: readers poll",
		}
		storetest.Run(t, engine)
	})
	t.Run("joins", func(t *testing.T) {
		t.Parallel()
		joinstest.Run(t, engine)
	})
	t.Run("transactions", func(t *testing.T) {
		t.Parallel()
		txtest.Run(t, engine)
	})
}

// Work that is done in several transactions does the same.
func TestStoreInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "walks in small steps")
	storetest.WalkInSteps(t, engine(pool(t), 2))
}

// engine makes tables for each store, in one database.
func engine(db *sql.DB, atOnce int) storetest.Engine {
	tables := &testenv.Shelf{}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			config := sqlserver.Config{Retain: options.Retain, MaxPayload: maxPayload, DedupWindow: options.DedupWindow}.InSteps(atOnce)
			table, found := tables.Take()
			if config.Table = table; !found || options.NoSchema {
				config.Table = unique("T")
			}
			h := harness{t, conforming{newStore(t, db, config), config}, tables}
			tables.Return(t, config.Table, func() { wipe(t, db, config.Table) })
			if options.NoSchema {
				tables.Changed(config.Table)
				return h
			}
			if !found {
				require.NoError(t, h.store.Ensure(t.Context()))
			}
			setClock(t, db, config.Table, 0)
			return h
		},
	}
}

// conforming is a store with its Config, for Reopen.
type conforming struct {
	*sqlserver.Store
	config sqlserver.Config
}

// harness is a store for one test, and the tables that other tests reuse after the test.
type harness struct {
	t      *testing.T
	store  conforming
	tables *testenv.Shelf
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store {
	return conforming{newStore(h.t, h.store.DB(), h.store.config), h.store.config}
}

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.store.config
	config.FairTopics = topics
	return conforming{newStore(h.t, h.store.DB(), config), config}
}

func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	passTime(h.t, h.store.DB(), h.store.config.Table, d)
}

func (h harness) MaxPayload() int { return maxPayload }

// exec runs a text in which {} stands for the beginning of the names of all tables.
func (h harness) exec(text string, args ...any) {
	h.t.Helper()
	text = strings.ReplaceAll(text, "{}", "dbo."+h.store.config.Table)
	_, err := h.store.DB().ExecContext(context.WithoutCancel(h.t.Context()), text, args...)
	require.NoError(h.t, err, text)
}

// pool returns a pool on a database that is dropped with the test.
func pool(t *testing.T) *sql.DB {
	t.Helper()
	return connect(t, sqlservertest.Database(t))
}

func connect(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlserver", url)
	require.NoError(t, err)
	db.SetMaxOpenConns(40)
	db.SetMaxIdleConns(40)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func newStore(t *testing.T, db *sql.DB, config sqlserver.Config) *sqlserver.Store {
	t.Helper()
	store, err := sqlserver.New(db, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// wipe empties the tables.
func wipe(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	const statements = "DELETE FROM {}; DELETE FROM {}Note; DELETE FROM {}Entry; " +
		"UPDATE {}Meta SET version = 1, compatible = 1, routes = 0, pauses = 0"
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), strings.ReplaceAll(statements, "{}", "dbo."+table))
	require.NoError(t, err)
}

// clock is that of the schema, and more.
const clock = "DATEDIFF_BIG(MICROSECOND, CAST('1970-01-01T00:00:00' AS DATETIME2(7)), SYSUTCDATETIME())"

// passTime moves the clock of the tables.
func passTime(t *testing.T, db *sql.DB, table string, d time.Duration) {
	t.Helper()
	var ahead int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT dbo."+table+"_Now() - "+clock).Scan(&ahead))
	setClock(t, db, table, time.Duration(ahead)*time.Microsecond+d)
}

func setClock(t *testing.T, db *sql.DB, table string, ahead time.Duration) {
	t.Helper()
	statement := "CREATE OR ALTER FUNCTION dbo.%s_Now() RETURNS BIGINT AS BEGIN RETURN %s + %d; END"
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), fmt.Sprintf(statement, table, clock, ahead.Microseconds()))
	require.NoError(t, err)
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	c := store.(conforming)
	tx, err := c.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return c.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(conforming).InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return do(ctx) })
}

// EndTx has the ways in which SQL Server ends a transaction without a call of its methods.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	way := func(name string, commits bool, statement string) storetest.TxEnd {
		return storetest.TxEnd{Name: name, Commits: commits, End: func(ctx context.Context) {
			tx, ok := store.(conforming).Tx(ctx)
			require.True(h.t, ok)
			_, err := tx.ExecContext(h.t.Context(), statement)
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
	tx, _ := store.(conforming).Tx(ctx)
	_, err := tx.ExecContext(ctx, "THROW 50901, N'raised', 1;")
	return err
}

func (h harness) Apply(statements []string) {
	h.tables.Changed(h.store.config.Table)
	for _, statement := range statements {
		h.exec(statement)
	}
}

func (h harness) MakeNewer() {
	h.tables.Changed(h.store.config.Table)
	h.exec("UPDATE {}Meta SET version = version + 1, compatible = version + 1")
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.store.DB().QueryContext(h.t.Context(), "SELECT id, grp, topic, status FROM dbo."+h.store.config.Table+"Readable")
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
	h.exec("UPDATE {} SET "+column+" = "+wrong[column]+" WHERE id = CAST(@id AS BINARY(16))", sql.Named("id", id[:]))
}
