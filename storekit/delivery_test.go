package storekit_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestDelivery(t *testing.T) {
	t.Parallel()

	t.Run("a message from elsewhere has no delivery", func(t *testing.T) {
		t.Parallel()
		info, ok := outmill.Delivery(t.Context())
		require.False(t, ok)
		require.Zero(t, info)
	})

	t.Run("a delivery describes the record", func(t *testing.T) {
		t.Parallel()
		created := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		rec := &outmill.Record{
			ID: outmill.NewWorkItemID(), Topic: "orders", Group: "g", Key: "k", DedupKey: "d", Attempts: 2, Claims: 7,
			CreatedAt: created, DueAt: created.Add(time.Minute), ExpiresAt: created.Add(time.Hour),
			Joins: []outmill.JoinID{outmill.NewJoinID(), outmill.NewJoinID()}, WaitsFor: outmill.NewJoinID(), LastError: "boom",
		}
		joins := slices.Clone(rec.Joins)
		clock := &storekit.LeaseClock{}
		clock.Set(created.Add(30 * time.Second))
		ctx := storekit.NewHandling("main", rec, clock).Context(t.Context())

		info, ok := outmill.Delivery(context.WithoutCancel(ctx))
		require.True(t, ok)
		require.Equal(t, rec.ID, info.ID)
		require.Equal(t, "main", info.Store)
		require.Equal(t, []string{"orders", "g", "k", "d"}, []string{info.Topic, info.Group, info.Key, info.DedupKey})
		require.Equal(t, 3, info.Attempt, "two were abandoned, this is the third")
		require.Equal(t, 7, info.Claims)
		require.Equal(t, []time.Time{rec.CreatedAt, rec.DueAt, rec.ExpiresAt}, []time.Time{info.CreatedAt, info.DueAt, info.ExpiresAt})
		require.Equal(t, joins, info.Joins)
		require.Equal(t, rec.WaitsFor, info.WaitsFor)
		require.Equal(t, "boom", info.LastError)
		require.Equal(t, created.Add(30*time.Second), info.LeaseUntil())

		clock.Set(created.Add(time.Minute))
		require.Equal(t, created.Add(time.Minute), info.LeaseUntil(), "it moves while the lease is extended")

		rec.Topic, rec.Joins[0] = "changed", outmill.NewJoinID()
		require.Equal(t, "orders", info.Topic, "it keeps no reference to the record")
		require.Equal(t, joins, info.Joins)
	})

	t.Run("a handling begins when it is started or first asked for", func(t *testing.T) {
		t.Parallel()
		startedAt := func(ctx context.Context) time.Time {
			info, ok := outmill.Delivery(ctx)
			require.True(t, ok)
			return info.StartedAt
		}
		for name, begin := range map[string]func(h *storekit.Handling, ctx context.Context){
			"started": func(h *storekit.Handling, _ context.Context) { h.Start() },
			"asked":   func(_ *storekit.Handling, ctx context.Context) { startedAt(ctx) },
		} {
			handling := storekit.NewHandling("main", &outmill.Record{}, nil)
			ctx := handling.Context(t.Context())
			made := time.Now()
			for time.Since(made) < time.Microsecond { // the clock has to move on
			}
			begin(handling, ctx)
			at := startedAt(ctx)
			require.True(t, at.After(made.Round(0)), "%s: %s is not after %s, when the context was made", name, at, made)
			require.False(t, at.After(time.Now()), name)
			handling.Start()
			require.Equal(t, at, startedAt(ctx), "%s: only the first counts", name)
		}
	})

	t.Run("an unset end of a lease is zero", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, outmill.DeliveryInfo{}.LeaseUntil())
		require.Zero(t, (&storekit.LeaseClock{}).Until())
		info, ok := outmill.Delivery(storekit.NewHandling("main", &outmill.Record{}, nil).Context(t.Context()))
		require.True(t, ok)
		require.Zero(t, info.LeaseUntil())
		require.Equal(t, 1, info.Attempt)
	})

	t.Run("a lease clock may be moved while it is read", func(t *testing.T) {
		t.Parallel()
		var clock storekit.LeaseClock
		base := time.Unix(1, 0)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 1000 {
				clock.Set(base.Add(time.Duration(i)))
			}
		})
		var last time.Time
		for range 1000 {
			until := clock.Until()
			require.False(t, until.Before(last))
			last = until
		}
		wg.Wait()
		require.Equal(t, base.Add(999), clock.Until())
	})
}
