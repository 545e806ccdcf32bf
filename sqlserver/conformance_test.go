package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
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
	db := pool(t)
	engine := engine(db)
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		engine := engine
		engine.Unsupported = maps.Clone(unsupported)
		if sqlservertest.IsBabelfish(t, db) {
			maps.Copy(engine.Unsupported, onBabelfish)
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

// unsupported names the sentences that SQL Server cannot fulfil.
var unsupported = map[string]string{
	"wake: a hint comes after the commit of a caller's transaction, where the engine can tell": "SQL Server has no LISTEN: readers poll",
}

// onBabelfish names the sentences that take longer there than a test may.
var onBabelfish = map[string]string{
	"order: a huge backlog behind one blocked key does not hold up other keys": "Babelfish 4.4 needs minutes for the 20,000 records",
}

// engine makes tables for each store, in one database.
func engine(db *sql.DB) storetest.Engine {
	tables := &testenv.Shelf{}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			return harness{t, fromShelf(t, tables, db, options), tables}
		},
	}
}

// harness is a store for one test, and the tables that other tests reuse after the test.
type harness struct {
	t      *testing.T
	store  conforming
	tables *testenv.Shelf
}

func (h harness) Store() outmill.Store { return h.store }

// Old says that the store is not on package engine yet.
func (harness) Old() {}

func (h harness) Reopen() outmill.Store {
	return conforming{newStore(h.t, h.store.DB(), h.store.config), h.store.config}
}

func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	passTime(h.t, h.store.DB(), h.store.config.Table, d)
}

func (h harness) GuardSagas(store outmill.Store, kind, field string) {
	c := store.(conforming)
	h.tables.Changed(c.config.Table)
	for _, statement := range []string{
		fmt.Sprintf("ALTER TABLE %sSaga ADD Mine AS CAST(JSON_VALUE(State, '$.%s') AS NVARCHAR(100))", c.config.Table, field),
		fmt.Sprintf("CREATE UNIQUE INDEX Mine ON %sSaga (Mine, Type)", c.config.Table),
	} {
		_, err := c.DB().ExecContext(h.t.Context(), statement)
		require.NoError(h.t, err, kind)
	}
}

func (h harness) MaxPayload() int { return maxPayload }

// pool returns a pool on a database that is dropped with the test.
func pool(t *testing.T) *sql.DB {
	t.Helper()
	server, name := sqlservertest.Server(t), unique("outmill_")
	onServer(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { onServer(t, server, "DROP DATABASE "+name) })
	return connect(t, withParameters(t, server, "database="+name))
}

func connect(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlserver", url)
	require.NoError(t, err)
	// A small pool, because each session of Babelfish compiles each procedure itself, which takes
	// seconds at first.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// conforming is a store with its Config, for Reopen.
type conforming struct {
	*sqlserver.Store
	config sqlserver.Config
}

func newConforming(t *testing.T, db *sql.DB, options storetest.Options) conforming {
	t.Helper()
	config := conformingConfig(options)
	store := newStore(t, db, config)
	if !options.NoSchema {
		require.NoError(t, store.Ensure(t.Context()))
	}
	return conforming{store, config}
}

// wipe empties the tables. The generation of the groups, the counter of the pauses and the places
// continue.
const wipe = `DELETE FROM {}Audit; DELETE FROM {}Pause; DELETE FROM {}Inbox; DELETE FROM {}Saga;
	DELETE FROM {}JoinMember; DELETE FROM {}Join; DELETE FROM {}Dedup; DELETE FROM {}Group; DELETE FROM {}Worker;
	DELETE FROM {}Ending; DELETE FROM {}Lane; DELETE FROM {};`

// fromShelf is newConforming with used tables, if there are any.
func fromShelf(t *testing.T, tables *testenv.Shelf, db *sql.DB, options storetest.Options) conforming {
	t.Helper()
	if options.NoSchema {
		return newConforming(t, db, options)
	}
	config := conformingConfig(options)
	name, found := tables.Take()
	if found {
		config.Table = name
	}
	tables.Return(t, config.Table, func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), strings.ReplaceAll(wipe, "{}", config.Table))
		require.NoError(t, err)
	})
	store := newStore(t, db, config)
	if !found {
		require.NoError(t, store.Ensure(t.Context()))
	}
	return conforming{store, config}
}

func conformingConfig(options storetest.Options) sqlserver.Config {
	// Stores differ by their tables, not by their schemas: a new schema makes Babelfish plan
	// statements again, and it cannot do that for an UPDATE with an OUTPUT.
	return sqlserver.Config{
		Table:  "T" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", ""),
		Retain: options.Retain, MaxPayload: maxPayload, DedupWindow: options.DedupWindow,
	}
}

func newStore(t *testing.T, db *sql.DB, config sqlserver.Config) *sqlserver.Store {
	t.Helper()
	store, err := sqlserver.New(db, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// passTime moves every time in the tables back by d.
func passTime(t *testing.T, db *sql.DB, table string, d time.Duration) {
	t.Helper()
	for name, columns := range map[string][]string{
		"":       {"CreatedAt", "DueTimeUtc", "NextAttemptAt", "AvailableAt", "ExpiresAt", "ProcessedAt"},
		"Lane":   {"Until"},
		"Pause":  {"PausedAt"},
		"Audit":  {"ChangedAt"},
		"Group":  {"SeenAt", "ExpiresAt"},
		"Worker": {"SeenAt"},
		"Ending": {"EndedAt", "LookAt"},
		"Dedup":  {"ExpiresAt"},
		"Inbox":  {"DeleteAt"},
		"Saga":   {"CreatedAt", "UpdatedAt", "DeleteAt"},
		"Join":   {"Deadline", "CreatedUtc", "LastUpdatedUtc", "FinishedUtc"},
	} {
		set := make([]string, len(columns))
		for i, column := range columns {
			set[i] = fmt.Sprintf("%[1]s = DATEADD(MICROSECOND, -CAST(@us %% 1000000 AS INT), DATEADD(SECOND, -CAST(@us / 1000000 AS INT), %[1]s))",
				column)
		}
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "UPDATE "+table+name+" SET "+strings.Join(set, ", "),
			sql.Named("us", d.Microseconds()))
		require.NoError(t, err)
	}
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	c := store.(conforming)
	tx, err := c.DB().BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return c.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
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
			if strings.Contains(statement, "THROW") {
				require.Error(h.t, err, statement)
			} else {
				require.NoError(h.t, err, statement)
			}
		}}
	}
	return []storetest.TxEnd{
		way("a ROLLBACK as a statement", false, "ROLLBACK TRANSACTION"),
		way("a COMMIT as a statement", true, "COMMIT TRANSACTION"),
		way("an error under XACT_ABORT", false, "SET XACT_ABORT ON; THROW 50001, N'refused', 1;"),
	}
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(conforming).InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return do(ctx) })
}

func (h harness) Apply(statements []string) {
	h.tables.Changed(h.store.config.Table)
	for _, statement := range statements {
		_, err := h.store.DB().ExecContext(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.store.DB().QueryContext(h.t.Context(),
		"SELECT LOWER(CAST(Id AS CHAR(36))), GroupName, Topic, StatusText FROM "+h.store.config.Table+"Readable")
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
	h.tables.Changed(h.store.config.Table)
	_, err := h.store.DB().ExecContext(h.t.Context(),
		"UPDATE "+h.store.config.Table+"Meta SET Version = Version + 1, Compatible = Version + 1")
	require.NoError(h.t, err)
}
