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
)

// maxPayload is small, so that a test need not hold what SQL Server could.
const maxPayload = 16 << 20

func Test_a_store_keeps_the_contract(t *testing.T) {
	t.Parallel()
	db := pool(t)
	h := harness(db)
	h.Unsupported = maps.Clone(unsupported)
	if sqlservertest.IsBabelfish(t, db) {
		maps.Copy(h.Unsupported, onBabelfish)
	}
	storetest.Run(t, h)
}

// unsupported is what SQL Server has nothing for.
var unsupported = map[string]string{
	"wake: a hint comes after the commit of a caller's transaction, where the engine can tell": "SQL Server has no LISTEN: readers poll",
}

// onBabelfish is what takes longer there than a test has.
var onBabelfish = map[string]string{
	"order: a huge backlog behind one blocked key does not hold up other keys": "Babelfish 4.4 needs minutes for the 20,000 records",
}

// harness has tables of their own for each store, in one database.
func harness(db *sql.DB) storetest.Harness {
	tables := &testenv.Shelf{}
	return storetest.Harness{
		New: func(t *testing.T, options storetest.Options) outmill.Store {
			return fromShelf(t, tables, db, options)
		},
		Reopen:     reopen,
		Elapse:     elapse,
		Begin:      begin,
		MaxPayload: maxPayload,
		Apply: func(t *testing.T, store outmill.Store, statements []string) {
			tables.Changed(store.(conforming).config.Table)
			apply(t, store, statements)
		},
		MakeNewer: func(t *testing.T, store outmill.Store) {
			tables.Changed(store.(conforming).config.Table)
			makeNewer(t, store)
		},
		Readable: readable,
	}
}

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
	// Few, since each session of Babelfish compiles each procedure for itself, for seconds
	// at first.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// conforming is a store that remembers how it was made, for Reopen.
type conforming struct {
	*sqlserver.Store
	config sqlserver.Config
}

func newConforming(t *testing.T, db *sql.DB, options storetest.Options) outmill.Store {
	t.Helper()
	config := conformingConfig(options)
	store := newStore(t, db, config)
	if !options.NoSchema {
		require.NoError(t, store.Ensure(t.Context()))
	}
	return conforming{store, config}
}

// wipe empties the tables. Numbers of the groups' generation and of places go on.
const wipe = `DELETE FROM {}JoinMember; DELETE FROM {}Join; DELETE FROM {}Dedup; DELETE FROM {}Group; DELETE FROM {}Worker; DELETE FROM {}Ending; DELETE FROM {}Lane; DELETE FROM {};`

// fromShelf is newConforming with tables that were used before, if there are any.
func fromShelf(t *testing.T, tables *testenv.Shelf, db *sql.DB, options storetest.Options) outmill.Store {
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
	// Names of tables, and no schemas: a new schema has Babelfish plan statements
	// again, and it cannot do that with an UPDATE that has an OUTPUT.
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

func reopen(t *testing.T, store outmill.Store) outmill.Store {
	t.Helper()
	c := store.(conforming)
	return conforming{newStore(t, c.DB(), c.config), c.config}
}

func elapse(t *testing.T, store outmill.Store, d time.Duration) {
	t.Helper()
	c := store.(conforming)
	passTime(t, c.DB(), c.config.Table, d)
}

// passTime moves every time in the tables back by d.
func passTime(t *testing.T, db *sql.DB, table string, d time.Duration) {
	t.Helper()
	for name, columns := range map[string][]string{
		"":       {"CreatedAt", "DueTimeUtc", "NextAttemptAt", "AvailableAt", "ExpiresAt", "ProcessedAt"},
		"Lane":   {"Until"},
		"Group":  {"SeenAt", "ExpiresAt"},
		"Worker": {"SeenAt"},
		"Ending": {"EndedAt", "LookAt"},
		"Dedup":  {"ExpiresAt"},
		"Join":   {"Deadline", "CreatedUtc", "LastUpdatedUtc", "FinishedUtc"},
	} {
		set := make([]string, len(columns))
		for i, column := range columns {
			set[i] = fmt.Sprintf("%[1]s = DATEADD(MICROSECOND, -CAST(@us %% 1000000 AS INT), DATEADD(SECOND, -CAST(@us / 1000000 AS INT), %[1]s))", column)
		}
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "UPDATE "+table+name+" SET "+strings.Join(set, ", "), sql.Named("us", d.Microseconds()))
		require.NoError(t, err)
	}
}

func begin(t *testing.T, store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	t.Helper()
	c := store.(conforming)
	tx, err := c.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return c.WithTx(t.Context(), tx), tx.Commit, tx.Rollback
}

func apply(t *testing.T, store outmill.Store, statements []string) {
	t.Helper()
	for _, statement := range statements {
		_, err := store.(conforming).DB().ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// readable is what the view for people shows.
func readable(t *testing.T, store outmill.Store) []storetest.Shown {
	t.Helper()
	c := store.(conforming)
	rows, err := c.DB().QueryContext(t.Context(), "SELECT LOWER(CAST(Id AS CHAR(36))), GroupName, Topic, StatusText FROM "+c.config.Table+"Readable")
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
	c := store.(conforming)
	_, err := c.DB().ExecContext(t.Context(), "UPDATE "+c.config.Table+"Meta SET Version = Version + 1, Compatible = Version + 1")
	require.NoError(t, err)
}
