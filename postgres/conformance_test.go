package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/suites"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// maxPayload is small, so that tests need not hold the largest payload that PostgreSQL takes.
const maxPayload = 16 << 20

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, engine(t, pool(t)))
}

// conform tests the contract of the queue and that of joins.
func conform(t *testing.T, engine storetest.Engine) {
	t.Helper()
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, suites.Queue(engine))
	})
	t.Run("joins", func(t *testing.T) {
		t.Parallel()
		joinstest.Run(t, suites.Joins(engine))
	})
	t.Run("transactions", func(t *testing.T) {
		t.Parallel()
		txtest.Run(t, suites.Transactions(engine))
	})
}

// engine has a schema for each store, in one database.
func engine(t *testing.T, db *pgxpool.Pool) storetest.Engine {
	t.Helper()
	return engineListening(t, db, "")
}

// engineListening returns an engine whose stores listen on a direct connection, if db goes
// through a proxy.
func engineListening(t *testing.T, db *pgxpool.Pool, listenURL string) storetest.Engine {
	t.Helper()
	schemas := &testenv.Shelf{}
	pools := &poolsOfSchemas{t: t, config: db.Config()}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			if options.NoSchema {
				return harness{t, newConforming(t, db, conformingConfig(ownSchema(t, db), listenURL, options)), schemas}
			}
			name, found := schemas.Take()
			if !found {
				name = schemaName()
			}
			schemas.Return(t, name, func() { wipe(t, db, name) })
			store := newConforming(t, pools.of(name), conformingConfig(name, listenURL, options))
			if !found {
				require.NoError(t, store.Ensure(t.Context()))
			}
			setClock(t, store.Pool(), name, 0)
			return harness{t, store, schemas}
		},
	}
}

// harness is a store for one test. Its schemas are used by other tests after the test's end.
type harness struct {
	t       *testing.T
	store   conforming
	schemas *testenv.Shelf
}

func (h harness) Store() outmill.Store { return h.store }

func (h harness) Reopen() outmill.Store { return reopen(h.t, h.store) }

func (h harness) Elapse(store outmill.Store, d time.Duration) { elapse(h.t, store.(conforming), d) }

// GuardSagas has a unique index for a field of the sagas of a kind.
func (h harness) GuardSagas(store outmill.Store, kind, field string) {
	c := store.(conforming)
	h.schemas.Changed(c.config.Schema)
	// An index is also built of rows that were deleted lately, such as those of an earlier test.
	_, err := c.Pool().Exec(h.t.Context(), fmt.Sprintf("TRUNCATE %s.entries", c.config.Schema))
	require.NoError(h.t, err)
	_, err = c.Pool().Exec(h.t.Context(), fmt.Sprintf(
		"CREATE UNIQUE INDEX mine ON %[1]s.entries ((value::jsonb -> 'State' ->> '%[2]s')) WHERE kind = 'saga' AND key LIKE '%[3]d:%[4]s%%'",
		c.config.Schema, field, len(kind), kind))
	require.NoError(h.t, err)
}

// ReopenFair returns a store on the tables of the harness that serves topics in turn.
func (h harness) ReopenFair(topics ...string) outmill.Store {
	c := h.store
	c.config.FairTopics = topics
	return reopen(h.t, c)
}

func (h harness) MaxPayload() int { return maxPayload }

func (h harness) Readable() []storetest.Shown {
	return readable(h.t, h.store.Pool(), h.store.config.Schema)
}

func (h harness) EndTx(store outmill.Store) []storetest.TxEnd {
	return endTx(h.t, h.store.Pool(), func(ctx context.Context, text string) error {
		return execIn(ctx, store.(conforming).Store, text)
	})
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	c := store.(conforming)
	own := context.WithoutCancel(h.t.Context())
	tx, err := c.Pool().Begin(own)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback(own) })
	return c.WithTx(h.t.Context(), tx), func() error { return tx.Commit(own) }, func() error { return tx.Rollback(own) }
}

func (h harness) InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	return store.(conforming).InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return do(ctx) })
}

func (h harness) Tap(ctx context.Context) (tapped context.Context, sent func() [][]any) {
	// Times of the database are sent. From now on they are not those of the process.
	setClock(h.t, h.store.Pool(), h.store.config.Schema, 72*time.Hour)
	trips := &trips{}
	return context.WithValue(ctx, tapKey{}, trips), trips.list
}

func (h harness) Passing(ctx context.Context, store outmill.Store) error {
	return raise(ctx, store.(conforming).Store, "40001")
}

func (h harness) Apply(statements []string) {
	h.schemas.Changed(h.store.config.Schema)
	for _, statement := range statements {
		_, err := h.store.Pool().Exec(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

func (h harness) MakeNewer() {
	h.schemas.Changed(h.store.config.Schema)
	_, err := h.store.Pool().Exec(h.t.Context(), "UPDATE "+h.store.config.Schema+".meta SET version = version + 1, compatible = version + 1")
	require.NoError(h.t, err)
}

// poolsOfSchemas has a pool for each schema, because a session plans each statement again for
// each schema.
type poolsOfSchemas struct {
	t      *testing.T
	config *pgxpool.Config
	pools  sync.Map
}

func (p *poolsOfSchemas) of(schema string) *pgxpool.Pool {
	if found, ok := p.pools.Load(schema); ok {
		return found.(*pgxpool.Pool)
	}
	config := p.config.Copy()
	config.ConnConfig.Tracer = tap{}
	db, err := pgxpool.NewWithConfig(context.WithoutCancel(p.t.Context()), config)
	require.NoError(p.t, err)
	p.t.Cleanup(db.Close)
	p.pools.Store(schema, db)
	return db
}

// readable reads the view for people.
func readable(t *testing.T, db *pgxpool.Pool, schema string) []storetest.Shown {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT id::text, grp, topic, status FROM "+schema+".readable")
	require.NoError(t, err)
	shown, err := pgx.CollectRows(rows, pgx.RowToStructByPos[storetest.Shown])
	require.NoError(t, err)
	return shown
}

// sqlWipe empties the tables of a schema, except the settings in meta; the sequence of places
// continues.
const sqlWipe = `DELETE FROM {}.records; DELETE FROM {}.notes; DELETE FROM {}.entries; UPDATE {}.meta SET routes = 0, pauses = 0;
	TRUNCATE {}.log_0, {}.log_1, {}.log_2; DELETE FROM {}.batches;
	DELETE FROM {}.ended; DELETE FROM {}.left_rows; DELETE FROM {}.skips; DELETE FROM {}.skip_ranges; DELETE FROM {}.readings;
	UPDATE {}.events SET last = 0, stamp = 0`

func wipe(t *testing.T, db *pgxpool.Pool, schema string) {
	t.Helper()
	_, err := db.Exec(context.WithoutCancel(t.Context()), strings.ReplaceAll(sqlWipe, "{}", schema))
	require.NoError(t, err)
}

// pool returns a pool on a database that is dropped at the end of the test.
func pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return connect(t, postgrestest.Database(t))
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	return connectAs(t, url, atMost(40))
}

func atMost(connections int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = connections }
}

// conforming is a store that remembers how it was made, for Reopen.
type conforming struct {
	*postgres.Store
	config postgres.Config
	// byDB has the pools of a store on a *sql.DB; nil elsewhere.
	byDB *pools
}

// Pool returns a pool of pgx for the test's own statements.
func (c conforming) Pool() *pgxpool.Pool {
	if c.byDB != nil {
		return c.byDB.pgx
	}
	return c.Store.Pool()
}

func newConforming(t *testing.T, db *pgxpool.Pool, config postgres.Config) conforming {
	t.Helper()
	return conforming{Store: newStore(t, db, config), config: config}
}

func conformingConfig(schema string, listenURL string, options storetest.Options) postgres.Config {
	return postgres.Config{
		Schema: schema, ListenURL: listenURL,
		Retain: options.Retain, MaxPayload: maxPayload, DedupWindow: options.DedupWindow,
	}
}

func schemaName() string { return "s" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "") }

// ownSchema returns the name of a schema that is dropped at the end of the test.
func ownSchema(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	name := schemaName()
	t.Cleanup(func() {
		_, err := db.Exec(context.WithoutCancel(t.Context()), `DROP SCHEMA IF EXISTS `+name+` CASCADE`)
		require.NoError(t, err)
	})
	return name
}

func newStore(t *testing.T, db *pgxpool.Pool, config postgres.Config) *postgres.Store {
	t.Helper()
	store, err := postgres.New(db, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func reopen(t *testing.T, c conforming) conforming {
	t.Helper()
	if c.byDB != nil {
		return c.byDB.conforming(t, c.config)
	}
	return conforming{Store: newStore(t, c.Pool(), c.config), config: c.config}
}

func elapse(t *testing.T, c conforming, d time.Duration) {
	t.Helper()
	passTime(t, c.Pool(), c.config.Schema, d)
}

// passTime moves the clock of a schema on by d.
func passTime(t *testing.T, db *pgxpool.Pool, schema string, d time.Duration) {
	t.Helper()
	var ahead int64
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, db.QueryRow(ctx, "SELECT "+schema+".now() - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&ahead))
	setClock(t, db, schema, time.Duration(ahead)*time.Microsecond+d)
}

func setClock(t *testing.T, db *pgxpool.Pool, schema string, ahead time.Duration) {
	t.Helper()
	_, err := db.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("CREATE OR REPLACE FUNCTION %s.now() RETURNS bigint "+
		"LANGUAGE sql VOLATILE PARALLEL SAFE RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + %d", schema,
		ahead.Microseconds()))
	require.NoError(t, err)
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
	require.NoError(h.t, h.store.ToRecord(h.t.Context(), id))
	_, err := h.store.Pool().Exec(h.t.Context(),
		"UPDATE "+h.store.config.Schema+".records SET "+column+" = "+wrong[column]+" WHERE id = $1::text::uuid", id.String())
	require.NoError(h.t, err)
}
