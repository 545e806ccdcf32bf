package driver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// Claims, acks and extensions do not wait for the disk, and all other settlements do.
func TestDriver_WhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	store := storeOn(t, connect(t, postgrestest.Database(t), 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} }))
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	require.NoError(t, store.Append(t.Context(), made("orders", "", 6)...))
	// waits reports whether each transaction of a call waits.
	waits := func(call func(ctx context.Context) error) bool {
		ctx, seen := tapped(t.Context())
		require.NoError(t, call(ctx))
		var all []any
		for _, sent := range seen.list() {
			for i, value := range sent {
				if text, isText := value.(string); isText && strings.Contains(text, "/* outmill settings */") {
					all = append(all, sent[i+1])
				}
			}
		}
		require.NotEmpty(t, all)
		for _, durable := range all {
			require.Equal(t, all[0], durable)
		}
		return all[0].(bool)
	}
	var leases []outmill.Lease
	require.False(t, waits(func(ctx context.Context) error {
		got, err := store.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 6, Lease: time.Hour, Order: outmill.OrderKey,
			Topics: outmill.Topics{Include: []string{"orders"}},
		})
		leases = leasesOf(got)
		return err
	}), "Claim")
	require.Len(t, leases, 6)
	require.False(t, waits(func(ctx context.Context) error {
		_, err := store.Extend(ctx, time.Hour, leases)
		return err
	}), "Extend")
	require.False(t, waits(func(ctx context.Context) error { return store.Ack(ctx, "", leases[:1]) }), "Ack")
	one := func(i int) []outmill.Settlement { return []outmill.Settlement{{Lease: leases[i]}} }
	require.True(t, waits(func(ctx context.Context) error { return store.Abandon(ctx, one(1)) }), "Abandon")
	require.True(t, waits(func(ctx context.Context) error { return store.Snooze(ctx, one(2)) }), "Snooze")
	require.True(t, waits(func(ctx context.Context) error { return store.Fail(ctx, one(3)) }), "Fail")
	require.True(t, waits(func(ctx context.Context) error { return store.Release(ctx, leases[4:5]) }), "Release")
}
