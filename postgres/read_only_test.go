package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// failover is a server whose existing sessions turn read-only, and whose new ones can write, as
// behind the address of a cluster whose former primary keeps its connections.
type failover struct {
	t     *testing.T
	admin *pgx.Conn
	url   string
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	admin := postgrestest.DatabaseOn(t, postgrestest.Own(t).URL)
	conn, err := pgx.Connect(t.Context(), admin)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	u, err := url.Parse(admin)
	require.NoError(t, err)
	f := &failover{t, conn, ""}
	f.exec(`CREATE ROLE app LOGIN SUPERUSER`)
	u.User = url.User("app")
	f.url = u.String()
	return f
}

func (f *failover) exec(statement string) {
	f.t.Helper()
	_, err := f.admin.Exec(f.t.Context(), statement)
	require.NoError(f.t, err)
}

// happen turns the existing sessions of the application read-only.
func (f *failover) happen(witness *pgx.Conn) {
	f.t.Helper()
	f.exec(`ALTER ROLE app SET default_transaction_read_only = off`)
	f.exec(`ALTER SYSTEM SET default_transaction_read_only = on`)
	f.t.Cleanup(func() {
		_, err := f.admin.Exec(context.WithoutCancel(f.t.Context()), `ALTER SYSTEM RESET default_transaction_read_only`)
		require.NoError(f.t, err)
		_, err = f.admin.Exec(context.WithoutCancel(f.t.Context()), `SELECT pg_reload_conf()`)
		require.NoError(f.t, err)
	})
	f.exec(`SELECT pg_reload_conf()`)
	require.Eventually(f.t, func() bool {
		var on string
		return witness.QueryRow(f.t.Context(), `SHOW transaction_read_only`).Scan(&on) == nil && on == "on"
	}, patience, 5*time.Millisecond)
}

func (f *failover) session() *pgx.Conn {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), f.url)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.t.Context())) })
	return conn
}

// dialAll has the pool open its connections.
func dialAll(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	conns := make([]*pgxpool.Conn, n)
	for i := range conns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		conns[i] = conn
	}
	for _, conn := range conns {
		conn.Release()
	}
}

func TestStore_ReadOnly(t *testing.T) {
	t.Parallel()
	const conns = 4
	f := newFailover(t)
	parameters := fmt.Sprintf("&pool_max_conns=%d", conns)
	own, err := postgres.Open(t.Context(), f.url+parameters, postgres.Config{EnsureSchema: true}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Close()) }()
	own.Impatient(time.Second, 300*time.Millisecond)
	pool := connect(t, f.url+parameters)
	users, err := postgres.New(pool, postgres.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, users.Close()) }()
	db, err := sql.Open("pgx", f.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	db.SetMaxIdleConns(conns)
	standard, err := postgres.New(pool, postgres.Config{DB: db}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, standard.Close()) }()

	onlyDB, err := sql.Open("pgx", f.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, onlyDB.Close()) }()
	onlyDB.SetMaxIdleConns(conns)
	byDB, err := postgres.NewFromDB(onlyDB, postgres.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, byDB.Close()) }()

	stores := map[string]*postgres.Store{
		"of a pool that the store opened": own, "of a pool of the user": users, "of two pools": standard, "of a *sql.DB": byDB,
	}
	require.NoError(t, own.RegisterGroup(t.Context(), outmill.Registration{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	woken := make(chan string, 1000)
	own.Wake(ctx, func(topic string) { woken <- topic })
	require.Eventually(t, func() bool { return listeningSessions(t, own) == 1 }, patience, 5*time.Millisecond)
	health, err := monitor.NewHealth(own, monitor.HealthConfig{})
	require.NoError(t, err)
	insert := func(store *postgres.Store) func(ctx context.Context) error {
		return func(ctx context.Context) error { return store.Append(ctx, made("orders", "m", 1)...) }
	}
	for _, store := range stores {
		require.NoError(t, store.Append(t.Context(), made("orders", "before", 1)...))
		require.NoError(t, store.Transact(t.Context(), insert(store)))
	}
	dialAll(t, own.Pool(), conns)
	dialAll(t, pool, conns)
	openAll(t, onlyDB, conns)
	mine, witness := f.session(), f.session()
	f.happen(witness)

	// The error of a transaction of the user's own says what to do.
	tx, err := mine.Begin(t.Context())
	require.NoError(t, err)
	err = own.Append(own.WithTx(t.Context(), tx), made("orders", "mine", 1)...)
	require.ErrorIs(t, err, storekit.ErrReadOnly)
	require.ErrorContains(t, err, "Reset of a pgxpool.Pool")
	require.NoError(t, tx.Rollback(t.Context()))

	// Doctor names a server that accepts no writes, and health does so after a refused write.
	stuck, err := postgres.New(onlyPool(t, f), postgres.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, stuck.Close()) }()
	examination, err := stuck.Examine(t.Context(), roles.ExamineRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, examination.Findings, "%v", examination)
	require.Equal(t, "read_only", examination.Findings[0].Code)
	report, err := monitor.NewHealth(stuck, monitor.HealthConfig{})
	require.NoError(t, err)
	before, err := report.Check(t.Context())
	require.NoError(t, err)
	require.True(t, before.Ready(), "it has refused nothing yet: %v", before.Problems)
	require.ErrorIs(t, stuck.Append(t.Context(), made("orders", "stuck", 1)...), storekit.ErrReadOnly)
	after, err := report.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, "read_only", after.Problems[0].Kind)
	require.False(t, after.Ready())

	// The stores' own calls open other connections.
	for name, store := range stores {
		require.NoError(t, store.Append(t.Context(), made("orders", "after", 1)...), name)
		require.NoError(t, store.Transact(t.Context(), insert(store)), name)
		_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders"))
		require.NoError(t, err, name)
	}
	well, err := health.Check(t.Context())
	require.NoError(t, err)
	require.True(t, well.Ready(), "%v", well.Problems)

	// The listening connection is made again, and hears a session of the new primary.
	require.Eventually(t, func() bool {
		return valueOf[int](t, own.Pool(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND query LIKE '%transaction_read_only%' AND backend_start > now() - interval '10 s'`) > 0
	}, patience, 5*time.Millisecond)
	require.NoError(t, users.Append(t.Context(), made("news", "m", 1)...))
	for deadline := time.After(patience); ; {
		select {
		case topic := <-woken:
			if topic == "news" {
				return
			}
		case <-deadline:
			require.FailNow(t, "no notification")
		}
	}
}

// onlyPool is a pool each connection of which is read-only, as on a standby.
func onlyPool(t *testing.T, f *failover) *pgxpool.Pool {
	t.Helper()
	return connectAs(t, f.url, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})
}

// openAll has a pool of database/sql open so many connections, and keep them.
func openAll(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	opened := make([]*sql.Conn, n)
	for i := range opened {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		opened[i] = conn
	}
	for _, conn := range opened {
		require.NoError(t, conn.Close())
	}
	require.Equal(t, n, db.Stats().OpenConnections)
}
