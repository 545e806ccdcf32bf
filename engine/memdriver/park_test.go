package memdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// readersOf is a store with a group that reads orders.
func readersOf(t *testing.T, atOnce storekit.BatchSize) *engine.Engine {
	t.Helper()
	e := engine.New(memdriver.Driver{Database: memdriver.New()}, engine.Config{Name: "memory", AtOnce: atOnce})
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Ensure(t.Context()))
	readers := outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}}
	require.NoError(t, e.RegisterGroup(t.Context(), readers))
	return e
}

// The contract lets a store leave later records to the next claim, because a log cannot find them by their key. The engine parks those that
// its rows name, so that an operator sees at once what waits behind a dead letter.
func TestFail_ParksLaterRowsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), readersOf(t, 0)
	records := make([]*outmill.Record, 5)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Key: "k", MessageID: fmt.Sprint(i)}
	}
	require.NoError(t, e.Append(ctx, records...))
	first, err := e.Claim(ctx, outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 1, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
	})
	require.NoError(t, err)
	require.NoError(t, e.Fail(ctx, []outmill.Settlement{{Lease: first[0].Lease(), Err: "bad", Park: true}}))
	dead, err := e.List(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	require.NoError(t, err)
	require.Len(t, dead, len(records))
}

// A record of a parked key waits for a retry, and more are held behind it than a page has. A claim reaches all of them.
func TestClaim_ParksAllBehindARetry(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), readersOf(t, 2)
	const behind = 12
	records := make([]*outmill.Record, 2+behind)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Key: "k", MessageID: fmt.Sprint(i)}
	}
	require.NoError(t, e.Append(ctx, records...))
	claim := func(limit int, policy outmill.KeyPolicy) []*outmill.Record {
		found, err := e.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Limit: limit, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: policy,
		})
		require.NoError(t, err)
		return found
	}
	first := claim(2, outmill.KeyBlock)
	require.Len(t, first, 2)
	require.Empty(t, claim(100, outmill.KeyBlock), "the others are held behind these leases")
	require.NoError(t, e.Fail(ctx, []outmill.Settlement{{Lease: first[0].Lease(), Err: "bad", Park: true}}))
	require.NoError(t, e.Abandon(ctx, []outmill.Settlement{{Lease: first[1].Lease(), Err: "boom", Delay: time.Hour}}))
	require.Empty(t, claim(100, outmill.KeyPark))
	dead, err := e.List(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	require.NoError(t, err)
	require.Len(t, dead, 1+behind, "all but the one that waits for its retry")
}

// Records of many parked keys are held for the pause of their tenant, behind a record that waits for a retry. A claim goes on to the
// records of others, and looks at the keys no more.
func TestClaim_ParksNothingThatIsPaused(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), readersOf(t, 2)
	claim := func(ctx context.Context, limit int, policy outmill.KeyPolicy) ([]*outmill.Record, error) {
		return e.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Limit: limit, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: policy,
		})
	}
	const keys = 10
	var firsts []*outmill.Record
	for i := range keys {
		for range 12 {
			require.NoError(t, e.Append(ctx, &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), TenantID: "acme"}))
		}
		found, err := claim(ctx, 2, outmill.KeyBlock)
		require.NoError(t, err)
		require.Len(t, found, 2)
		firsts = append(firsts, found...)
	}
	_, err := claim(ctx, 100, outmill.KeyBlock) // holds the others
	require.NoError(t, err)
	require.NoError(t, e.Pause(ctx, roles.PauseScope{TenantID: "acme"}, "ann", ""))
	for i, r := range firsts {
		if i%2 == 0 {
			require.NoError(t, e.Fail(ctx, []outmill.Settlement{{Lease: r.Lease(), Err: "bad", Park: true}}))
		} else {
			require.NoError(t, e.Abandon(ctx, []outmill.Settlement{{Lease: r.Lease(), Err: "boom", Delay: time.Hour}}))
		}
	}
	require.NoError(t, e.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "free"}))
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	found, err := claim(within, 1, outmill.KeyPark)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "free", found[0].MessageID)
	_, err = claim(within, 1, outmill.KeyPark)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 20*time.Second, "the claims went round until half of their time was over")
}
