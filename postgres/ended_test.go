package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver "postgres"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/txtest"
)

// endTx returns the ways in which PostgreSQL ends a transaction, or leaves it open only to be rolled
// back: see storetest.TxEnder. exec sends a statement in the transaction that ctx carries.
func endTx(t *testing.T, pool *pgxpool.Pool, exec func(ctx context.Context, text string) error) []storetest.TxEnd {
	t.Helper()
	// session returns the backend's process and when it began, because another one may get its number.
	session := func(ctx context.Context) string {
		name := fmt.Sprintf("ended %d", time.Now().UnixNano())
		require.NoError(t, exec(ctx, "SET application_name = '"+name+"'"))
		return name
	}
	waitForEnd := func(name string) {
		require.Eventually(t, func() bool {
			n := 0
			err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n)
			return err == nil && n == 0
		}, time.Minute, 5*time.Millisecond, "the session goes on")
	}
	return []storetest.TxEnd{
		{Name: "a ROLLBACK as a statement", End: func(ctx context.Context) { require.NoError(t, exec(ctx, "ROLLBACK")) }},
		{Name: "a COMMIT as a statement", Commits: true, End: func(ctx context.Context) { require.NoError(t, exec(ctx, "COMMIT")) }},
		{Name: "a statement that failed", End: func(ctx context.Context) { require.Error(t, exec(ctx, "SELECT 1/0")) }},
		{Name: "a session that was terminated", End: func(ctx context.Context) {
			name := session(ctx)
			_, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
			require.NoError(t, err)
			waitForEnd(name)
		}},
		{Name: "idle_in_transaction_session_timeout", End: func(ctx context.Context) {
			name := session(ctx)
			require.NoError(t, exec(ctx, "SET idle_in_transaction_session_timeout = '1ms'"))
			waitForEnd(name)
		}},
	}
}

// TestConformance_DatabaseSQL has the sentences about transactions that have ended, for transactions
// of database/sql: with pgx, which knows its transaction, and with another driver.
func TestConformance_DatabaseSQL(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	base := engine(t, connect(t, database))
	const byPgx = "TestConformance has them with transactions of pgx"
	for name, driver := range map[string]string{"pgx": "pgx", "another driver": "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(driver, database)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			txtest.Run(t, storetest.Engine{
				New: func(t *testing.T, options storetest.Options) storetest.Harness {
					h := base.New(t, options).(harness)
					h.store.config.DB = db
					h.store.Store = newStore(t, h.store.Pool(), h.store.config)
					return sqlHarness{h}
				},
				Unsupported: map[string]string{
					"transact": byPgx, "notes": byPgx, "inbox": byPgx, "sagas": byPgx, "retention": byPgx,
				},
			})
		})
	}
}

// sqlHarness is a harness whose transactions are those of database/sql.
type sqlHarness struct{ harness }

func (h sqlHarness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	c := store.(conforming)
	tx, err := c.config.DB.BeginTx(context.WithoutCancel(h.t.Context()), nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return c.WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}
