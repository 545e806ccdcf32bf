package outmill_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func Test_a_message_from_elsewhere_has_no_delivery(t *testing.T) {
	t.Parallel()
	info, ok := outmill.Delivery(t.Context())
	require.False(t, ok)
	require.Zero(t, info)
}

func Test_a_delivery_tells_what_is_known_of_the_record(t *testing.T) {
	t.Parallel()
	created := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	rec := &outmill.Record{
		ID: outmill.NewWorkItemID(), Topic: "orders", Group: "g", Key: "k", DedupKey: "d", Attempts: 2, Claims: 7,
		CreatedAt: created, DueAt: created.Add(time.Minute), ExpiresAt: created.Add(time.Hour),
		Joins: []outmill.JoinID{outmill.NewJoinID(), outmill.NewJoinID()}, WaitsFor: outmill.NewJoinID(), LastError: "boom",
	}
	joins := slices.Clone(rec.Joins)
	clock := &outmill.LeaseClock{}
	clock.Set(created.Add(30 * time.Second))
	ctx := outmill.WithDelivery(t.Context(), "main", rec, clock)

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
}

func Test_a_handling_begins_when_it_is_started_or_first_asked_for(t *testing.T) {
	t.Parallel()
	outmill.StartDelivery(t.Context()) // is none

	startedAt := func(ctx context.Context) time.Time {
		info, ok := outmill.Delivery(ctx)
		require.True(t, ok)
		return info.StartedAt
	}
	for name, begin := range map[string]func(ctx context.Context){
		"started": outmill.StartDelivery,
		"asked":   func(ctx context.Context) { startedAt(ctx) },
	} {
		ctx := outmill.WithDelivery(t.Context(), "main", &outmill.Record{}, nil)
		made := time.Now()
		for time.Since(made) < time.Microsecond { // the clock has to move on
		}
		begin(ctx)
		at := startedAt(ctx)
		require.True(t, at.After(made.Round(0)), "%s: %s is not after %s, when the context was made", name, at, made)
		require.False(t, at.After(time.Now()), name)
		outmill.StartDelivery(ctx)
		require.Equal(t, at, startedAt(ctx), "%s: only the first counts", name)
	}
}

func Test_a_lease_end_that_nobody_set_is_zero(t *testing.T) {
	t.Parallel()
	require.Zero(t, outmill.DeliveryInfo{}.LeaseUntil())
	require.Zero(t, (&outmill.LeaseClock{}).Until())
	info, ok := outmill.Delivery(outmill.WithDelivery(t.Context(), "main", &outmill.Record{}, nil))
	require.True(t, ok)
	require.Zero(t, info.LeaseUntil())
	require.Equal(t, 1, info.Attempt)
}

func Test_a_lease_clock_may_be_moved_while_it_is_read(t *testing.T) {
	t.Parallel()
	var clock outmill.LeaseClock
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
}
