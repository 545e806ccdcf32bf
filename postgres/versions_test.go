package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Versions(t *testing.T) {
	t.Parallel()

	// TestConformance already runs on the machine's version.
	t.Run("a store keeps the contract on each version that the environment names", func(t *testing.T) {
		t.Parallel()
		postgrestest.Each(t, func(t *testing.T, url string) {
			db := connect(t, url)
			t.Log(valueOf[string](t, db, "SELECT version()"))
			store := newStore(t, db, postgres.Config{})
			require.NoError(t, store.Ensure(t.Context()))
			everything(t, store)
			if os.Getenv("OUTMILL_TEST_POSTGRES_VERSIONS") != "" {
				conform(t, engine(t, db))
			}
		})
	})

	// If the queue of notifications cannot be made small, filling it takes 8 GB.
	t.Run("an append succeeds though a session that listens keeps the queue of notifications full", func(t *testing.T) {
		t.Parallel()
		const version = "17"
		if !strings.Contains(os.Getenv("OUTMILL_TEST_POSTGRES_VERSIONS"), version) {
			t.Skipf("skipped: a server of version %s, which has max_notify_queue_pages; OUTMILL_TEST_POSTGRES_VERSIONS=%s has it run", version,
				version)
		}
		ctx := t.Context()
		bin, err := postgresengine.BinariesOf(ctx, version)
		require.NoError(t, err)
		dir, err := os.MkdirTemp("", "outmill-postgres-") //nolint:usetesting // the server's account may not look into the test's own directory
		require.NoError(t, err)
		engine, err := postgresengine.Prepare(ctx, bin, dir, "max_notify_queue_pages=64")
		require.NoError(t, err)
		t.Cleanup(engine.End)
		require.NoError(t, engine.Start(ctx))
		db := connect(t, engine.URL)
		store := newStore(t, db, postgres.Config{NotifyInterval: time.Nanosecond})
		require.NoError(t, store.Ensure(ctx))
		require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers}))

		listening, err := db.Acquire(ctx)
		require.NoError(t, err)
		defer listening.Release()
		_, err = listening.Exec(ctx, "LISTEN other")
		require.NoError(t, err)
		tx, err := listening.Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		for n := 0; err == nil; n++ {
			_, err = db.Exec(ctx, "SELECT pg_notify('other', $1)", fmt.Sprint(n)+strings.Repeat("x", 7900))
		}
		require.ErrorContains(t, err, "too many notifications")

		for range 20 {
			require.NoError(t, store.Append(ctx, made("orders", "own", 1)...))
			require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return store.Append(ctx, made("orders", "in", 1)...) }))
		}
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 100, outmill.OrderKey, "orders")), 40)
	})
}
