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
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
)

// proxyModes are the query modes that work with a proxy that gives a session to one transaction
// at a time.
var proxyModes = []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe}

// proxied returns a pool of up to conns connections through PgBouncer, which has only three to
// the server, and the direct URL of the server.
func proxied(t *testing.T, mode pgx.QueryExecMode, conns int32) (db *pgxpool.Pool, direct string) {
	t.Helper()
	direct = postgrestest.Database(t)
	through := postgrestest.PgBouncer(t, direct, "default_pool_size=3")
	db = connectAs(t, through, func(c *pgxpool.Config) {
		c.MaxConns = conns
		c.ConnConfig.DefaultQueryExecMode = mode
	})
	return db, direct
}

func TestStore_Proxy(t *testing.T) {
	t.Parallel()

	t.Run("many workers share few connections of a proxy", func(t *testing.T) {
		testenv.Long(t, "many workers behind PgBouncer")
		t.Parallel()
		for _, mode := range proxyModes {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				db, direct := proxied(t, mode, 30)
				store := newStore(t, db, postgres.Config{ListenURL: direct})
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				told := testenv.Hints(t.Context(), store)

				r := &running{t: t, store: store, upgraded: make(chan struct{}), seen: map[string]int{}}
				var writers, workers sync.WaitGroup
				for i := range 8 {
					writers.Go(func() { r.publish(fmt.Sprint("writer", i), i%2 == 0) })
					workers.Go(func() { r.work(outmill.OrderKey) })
				}
				<-told
				r.awaitDeliveries(testenv.Steps(100, 600))
				close(r.upgraded)
				writers.Wait()
				r.mu.Lock()
				r.finished = true
				r.mu.Unlock()
				workers.Wait()
				require.Len(t, r.seen, r.written)
				for name, n := range r.seen {
					require.Equal(t, 1, n, name)
				}
			})
		}
	})

	t.Run("a session that others use as well is left as it was", func(t *testing.T) {
		t.Parallel()
		for _, mode := range proxyModes {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				db, direct := proxied(t, mode, 1)
				settings := func() string {
					return valueOf[string](t, db, `SELECT string_agg(name || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session'
						OR name LIKE 'enable%'
	OR name IN ('jit', 'lock_timeout', 'synchronous_commit', 'idle_in_transaction_session_timeout', 'plan_cache_mode', 'search_path')`)
				}
				before := settings()
				store := newStore(t, db, postgres.Config{ListenURL: direct})
				require.NoError(t, store.Ensure(t.Context()))
				everything(t, store)
				require.Equal(t, before, settings())
				require.Zero(t, valueOf[int](t, db, "SELECT count(*) FROM pg_prepared_statements"))
				require.Zero(t, valueOf[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"))
			})
		}
	})

	t.Run("readers behind a proxy are notified of commits of other processes", func(t *testing.T) {
		t.Parallel()
		db, direct := proxied(t, pgx.QueryExecModeExec, 5)
		reader := newStore(t, db, postgres.Config{ListenURL: direct})
		require.NoError(t, reader.Ensure(t.Context()))
		told := testenv.Hints(t.Context(), reader)
		past := connect(t, direct)
		// The first notification comes when it begins to listen.
		<-told
		writer := newStore(t, past, postgres.Config{})
		require.NoError(t, writer.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			return writer.Append(ctx, made("orders", "x", 1)...)
		}))
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Error("not told")
		}
	})

	t.Run("a store works however pgx runs statements", func(t *testing.T) {
		testenv.Long(t, "all ways in which pgx runs statements")
		t.Parallel()
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
			pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			t.Run(strings.ReplaceAll(mode.String(), " ", "_"), func(t *testing.T) {
				t.Parallel()
				db := connectAs(t, readyDatabase(t, postgres.Config{}), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				store := newStore(t, db, postgres.Config{Retain: time.Hour})
				require.NoError(t, store.Ensure(t.Context()))
				everything(t, store)
				everything(t, store)
			})
		}
	})
}

func TestConformanceBehindProxy_Variant(t *testing.T) {
	t.Parallel()

	t.Run("a store keeps the contract behind a proxy that pools transactions", func(t *testing.T) {
		t.Parallel()
		for _, mode := range proxyModes {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				testenv.Unraced(t, "the contract behind PgBouncer")
				// Each open transaction occupies a connection of PgBouncer.
				direct := postgrestest.Database(t)
				through := postgrestest.PgBouncer(t, direct, "default_pool_size=30")
				db := connectAs(t, through, func(c *pgxpool.Config) {
					c.MaxConns = 60
					c.ConnConfig.DefaultQueryExecMode = mode
				})
				e := engineListening(t, db, direct)
				e.Unsupported = leftOut("limits", "topics", "time", "claim", "settle", "suspects", "reap", "order", "park", "topic order",
					"inspect", "janitor", "schema", "calls", "workers", "model")
				t.Run("queue", func(t *testing.T) { storetest.Run(t, e) })
				e.Unsupported = leftOut("settle", "groups", "attach", "report", "finish", "seal", "cancel", "inspect", "wait", "calls", "workers",
					"model")
				t.Run("joins", func(t *testing.T) { joinstest.Run(t, e) })
			})
		}
	})
}

// leftOut are sections of the contract whose statements other sections send too.
func leftOut(names ...string) map[string]string {
	sections := map[string]string{}
	for _, name := range names {
		sections[name] = "left out behind a proxy to save time; everything and the workers below make its statements"
	}
	return sections
}
