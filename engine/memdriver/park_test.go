package memdriver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
)

// The contract lets a store leave later records to the next claim, because a log cannot find them by their key. The engine parks those that
// its rows name, so that an operator sees at once what waits behind a dead letter.
func TestFail_ParksLaterRowsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := engine.New(memdriver.Driver{Database: memdriver.New()}, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Ensure(ctx))
	require.NoError(t, e.RegisterGroup(ctx, outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}}))
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
