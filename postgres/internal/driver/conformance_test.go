package driver_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// Package postgres has the suites with messages that go to the log. The records keep the contract, too, whatever goes there.
func TestConformance_Records_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the contract on PostgreSQL's records alone")
	storetest.Run(t, recordsOn(t, connect(t, postgrestest.Database(t), 40, nil)))
}

func TestConformance_RecordsJoins_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "joins on PostgreSQL's records alone")
	joinstest.Run(t, recordsOn(t, connect(t, postgrestest.Database(t), 40, nil)))
}

func TestConformance_RecordsTransactions_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "transactions on PostgreSQL's records alone")
	txtest.Run(t, recordsOn(t, connect(t, postgrestest.Database(t), 40, nil)))
}

// connect returns a pool, which change may set up.
func connect(t testing.TB, url string, most int32, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = most
	if change != nil {
		change(config)
	}
	db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// suite makes stores in schemas of one database, which later tests use again.
type suite struct {
	t       testing.TB
	config  *pgxpool.Config
	schemas testenv.Shelf
	// records has all appends write records.
	records bool
	// pages has all claims go by pages, and takes none that can be one of its own.
	pages, takes bool
	// pools has a pool for each schema, because a session plans each statement again for each schema.
	pools sync.Map
}

// recordsOn is the suite whose appends write records.
func recordsOn(t testing.TB, db *pgxpool.Pool) storetest.Engine {
	return (&suite{t: t, config: db.Config(), records: true}).engine()
}

func (s *suite) engine() storetest.Engine {
	return storetest.Engine{New: func(t *testing.T, options storetest.Options) storetest.Harness {
		name, found := s.schemas.Take()
		if !found || options.NoSchema {
			name = "s" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
		}
		s.pool(name)
		h := harness{t: t, suite: s, config: engine.Config{Retain: options.Retain, DedupWindow: options.DedupWindow}}
		s.schemas.Return(t, name, func() { s.wipe(t, name) })
		h.store = h.open(name, h.config)
		if options.NoSchema {
			s.schemas.Changed(name)
		} else {
			if !found {
				require.NoError(t, h.store.Ensure(t.Context()))
			}
			h.setClock(0)
		}
		return h
	}}
}

func (s *suite) pool(schema string) *pgxpool.Pool {
	if found, ok := s.pools.Load(schema); ok {
		return found.(*pgxpool.Pool)
	}
	config := s.config.Copy()
	config.ConnConfig.Tracer = tap{}
	db, err := pgxpool.NewWithConfig(context.WithoutCancel(s.t.Context()), config)
	require.NoError(s.t, err)
	s.t.Cleanup(db.Close)
	s.pools.Store(schema, db)
	return db
}

const sqlWipe = `DELETE FROM {}.records; DELETE FROM {}.notes; DELETE FROM {}.entries; UPDATE {}.meta SET routes = 0, pauses = 0;
	TRUNCATE {}.log_0, {}.log_1, {}.log_2; DELETE FROM {}.batches;
	DELETE FROM {}.ended; DELETE FROM {}.left_rows; DELETE FROM {}.skips; DELETE FROM {}.skip_ranges; DELETE FROM {}.readings;
	UPDATE {}.events SET last = 0, stamp = 0`

func (s *suite) wipe(t testing.TB, schema string) {
	_, err := s.pool(schema).Exec(context.WithoutCancel(t.Context()), strings.ReplaceAll(sqlWipe, "{}", schema))
	require.NoError(t, err)
}

// opened is a store with what it was made of.
type opened struct {
	*engine.Engine
	driver *driver.Driver
	db     *pgxpool.Pool
	schema string
}

func (o opened) WithTx(ctx context.Context, tx any) context.Context { return o.driver.WithTx(ctx, tx) }

type harness struct {
	t      *testing.T
	suite  *suite
	config engine.Config
	store  opened
}

func (h harness) open(schema string, config engine.Config) opened {
	db := h.suite.pool(schema)
	config.Name = "postgres:" + schema
	own := driver.Config{Name: config.Name, Schema: schema}
	pool := driver.PoolOf(db)
	var err error
	own.Listen, err = pool.Beside("", "")
	require.NoError(h.t, err)
	d := driver.New(pool, own)
	if h.suite.records {
		d.RecordsOnly()
	}
	o := opened{engine.New(d, config), d, db, schema}
	if h.suite.pages {
		o.Engine = engine.New(byPages{d}, config)
	}
	if h.suite.takes {
		o.Engine = engine.New(tryTake{d}, config)
	}
	h.t.Cleanup(func() { require.NoError(h.t, o.Close()) })
	return o
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store { return h.open(h.store.schema, h.config) }

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.config
	config.FairTopics = topics
	return h.open(h.store.schema, config)
}

// Elapse moves the clock of the schema.
func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	var ahead int64
	require.NoError(h.t, h.store.db.QueryRow(h.t.Context(), "SELECT "+h.store.schema+
		".now() - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&ahead))
	h.setClock(time.Duration(ahead)*time.Microsecond + d)
}

func (h harness) setClock(ahead time.Duration) {
	_, err := h.store.db.Exec(h.t.Context(), fmt.Sprintf("CREATE OR REPLACE FUNCTION %s.now() RETURNS bigint LANGUAGE sql VOLATILE "+
		"PARALLEL SAFE RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + %d", h.store.schema, ahead.Microseconds()))
	require.NoError(h.t, err)
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	own := context.WithoutCancel(h.t.Context())
	tx, err := store.(opened).db.Begin(own)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback(own) })
	return store.(opened).WithTx(h.t.Context(), tx), func() error { return tx.Commit(own) }, func() error { return tx.Rollback(own) }
}

// InTx is a transaction that no default of the session makes SERIALIZABLE: such a one the caller would have to repeat.
func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(opened).driver.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return do(ctx) })
}

func (h harness) Tap(ctx context.Context) (tapped context.Context, sent func() [][]any) {
	// Times of the database are sent. From now on they are not those of the process.
	h.setClock(72 * time.Hour)
	trips := &trips{}
	return context.WithValue(ctx, tapKey{}, trips), trips.list
}

func (h harness) Apply(statements []string) {
	h.suite.schemas.Changed(h.store.schema)
	for _, statement := range statements {
		_, err := h.store.db.Exec(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

func (h harness) MakeNewer() {
	h.suite.schemas.Changed(h.store.schema)
	_, err := h.store.db.Exec(h.t.Context(), "UPDATE "+h.store.schema+".meta SET version = version + 1, compatible = version + 1")
	require.NoError(h.t, err)
}

func (h harness) Readable() []storetest.Shown {
	rows, err := h.store.db.Query(h.t.Context(), "SELECT id::text, grp, topic, status FROM "+h.store.schema+".readable")
	require.NoError(h.t, err)
	shown, err := pgx.CollectRows(rows, pgx.RowToStructByPos[storetest.Shown])
	require.NoError(h.t, err)
	return shown
}

// wrong has a value that no store writes, for each column that can have one: PostgreSQL's types refuse most.
var wrong = map[string]string{
	"created_at": "9223372036854775807", "next_at": "-9223372036854775807", "expires_at": "9223372036854775807", "attempts": "-1",
	"claims": "-2", "expiries": "-1", "size": "-1", "due_at": "9223372036854775807", "joins": "'none'", "metadata": "'[1]'",
}

func (h harness) Columns() (columns []string) {
	for column := range wrong {
		columns = append(columns, column)
	}
	return columns
}

func (h harness) Break(_ outmill.Store, id outmill.WorkItemID, column string) {
	require.NoError(h.t, h.store.driver.ToRecord(h.t.Context(), id))
	_, err := h.store.db.Exec(h.t.Context(),
		"UPDATE "+h.store.schema+".records SET "+column+" = "+wrong[column]+" WHERE id = $1::text::uuid", id.String())
	require.NoError(h.t, err)
}

// GuardSagas has a unique index for a field of the sagas of a kind.
func (h harness) GuardSagas(_ outmill.Store, kind, field string) {
	h.suite.schemas.Changed(h.store.schema)
	// An index is also built of rows that were deleted lately, such as those of an earlier test.
	_, err := h.store.db.Exec(h.t.Context(), "TRUNCATE "+h.store.schema+".entries")
	require.NoError(h.t, err)
	_, err = h.store.db.Exec(h.t.Context(), fmt.Sprintf(
		"CREATE UNIQUE INDEX mine ON %[1]s.entries ((value::jsonb -> 'State' ->> '%[2]s')) WHERE kind = 'saga' AND key LIKE '%[3]d:%[4]s%%'",
		h.store.schema, field, len(kind), kind))
	require.NoError(h.t, err)
}

// EndTx returns the ways in which PostgreSQL ends a transaction.
func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	exec := func(ctx context.Context, text string) error {
		tx, err := store.TxOf(ctx)
		require.NoError(h.t, err)
		return execIn(ctx, tx, text)
	}
	pid := func(ctx context.Context) (pid int) {
		tx, err := store.TxOf(ctx)
		require.NoError(h.t, err)
		if own, ok := tx.(*sql.Tx); ok {
			require.NoError(h.t, own.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid))
			return pid
		}
		return int(tx.(pgx.Tx).Conn().PgConn().PID())
	}
	waitForEnd := func(pid int) {
		require.Eventually(h.t, func() bool {
			n := 0
			err := h.store.db.QueryRow(h.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n)
			return err == nil && n == 0
		}, time.Minute, 5*time.Millisecond, "the session goes on")
	}
	return []storetest.TxEnd{
		{Name: "a ROLLBACK as a statement", End: func(ctx context.Context) { require.NoError(h.t, exec(ctx, "ROLLBACK")) }},
		{Name: "a COMMIT as a statement", Commits: true, End: func(ctx context.Context) { require.NoError(h.t, exec(ctx, "COMMIT")) }},
		{Name: "a statement that failed", End: func(ctx context.Context) { require.Error(h.t, exec(ctx, "SELECT 1/0")) }},
		{Name: "a session that was terminated", End: func(ctx context.Context) {
			process := pid(ctx)
			_, err := h.store.db.Exec(h.t.Context(), "SELECT pg_terminate_backend($1)", process)
			require.NoError(h.t, err)
			waitForEnd(process)
		}},
	}
}

// Passing is the error of a transaction that may succeed if it runs again.
func (h harness) Passing(ctx context.Context, store outmill.Store) error {
	tx, err := store.TxOf(ctx)
	require.NoError(h.t, err)
	return execIn(ctx, tx, "DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '40001'; END $$")
}

func execIn(ctx context.Context, tx any, text string) (err error) {
	if own, ok := tx.(*sql.Tx); ok {
		_, err = own.ExecContext(ctx, text)
	} else {
		_, err = tx.(pgx.Tx).Exec(ctx, text)
	}
	return err
}
