package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

func TestStore_PausesAtOnce(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]outmill.Order{"without an order": outmill.OrderNone, "by topic": outmill.OrderTopic} {
		t.Run("claims "+name+" while pauses come and go hand out each record once", func(t *testing.T) {
			testenv.Long(t, "pauses that come and go, in two more orders")
			t.Parallel()
			db := pool(t)
			claimUnderPauses(t, db, postgres.Config{}, order)
		})
	}
}

// claimUnderPauses has three workers, each with a store of its own, that claim while pauses come
// and go. It ends when all records are acked.
func claimUnderPauses(t *testing.T, db *pgxpool.Pool, config postgres.Config, order outmill.Order) {
	t.Helper()
	const n = 300
	store := newStore(t, db, config)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, store.Ensure(ctx))
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	records := made("orders", "m", n)
	for i, r := range records {
		r.TenantID = fmt.Sprint("t", i%3)
	}
	require.NoError(t, store.Append(ctx, records...))

	var mu sync.Mutex
	handed := map[string]int{}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handed) == n
	}
	var workers errgroup.Group
	for range 3 {
		one := newStore(t, db, config)
		workers.Go(func() error {
			owner := outmill.NewOwnerToken()
			for !done() {
				found, err := one.Claim(ctx, claimOf(owner, 5, order, "orders"))
				if err != nil {
					return err
				}
				mu.Lock()
				for _, r := range found {
					handed[r.MessageID]++
				}
				mu.Unlock()
				if err := one.Ack(ctx, "", leasesOf(found)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	scopes := []roles.PauseScope{{TenantID: "t1"}, {Topic: "orders", Key: "key3"}, {Topic: "orders"}, {Group: readers, TenantID: "t2"}}
	for i := 0; !done() && ctx.Err() == nil; i++ {
		scope := scopes[i%len(scopes)]
		require.NoError(t, store.Pause(ctx, scope, "ann", ""))
		_, err := store.Paused(ctx)
		require.NoError(t, err)
		_, err = store.Resume(ctx, scope)
		require.NoError(t, err)
	}
	require.NoError(t, workers.Wait())
	for name, times := range handed {
		require.Equal(t, 1, times, name)
	}
	stats, err := store.Stats(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, stats, "nothing is left")
}
