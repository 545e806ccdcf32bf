package storetest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// closeWaitsForWorkers: subscribers and forwarders lose no ack when their store is closed first.
func closeWaitsForWorkers(e *env) {
	if _, ok := outmill.As[storekit.Attacher](e.Store); !ok {
		e.T.Skip("the store is no storekit.Attacher: its Close does not wait for workers")
	}
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"))
	other := e.Reopen()
	claimed := e.Claim(outmill.NewOwnerToken())
	require.Len(e.T, claimed, 2)
	calls := 0
	_, err := storekit.Attach(e.Store, func(ctx context.Context) {
		calls++
		require.NoError(e.T, e.Store.Ack(ctx, worker, []outmill.Lease{claimed[0].Lease()}), "Ack while the store closes")
		require.NoError(e.T, e.Store.Release(ctx, []outmill.Lease{claimed[1].Lease()}), "Release while the store closes")
		_, err := storekit.Attach(e.Store, func(context.Context) {})
		require.ErrorIs(e.T, err, outmill.ErrClosed)
	})
	require.NoError(e.T, err)
	detach, err := storekit.Attach(e.Store, func(context.Context) { require.Fail(e.T, "a worker that has detached is to leave") })
	require.NoError(e.T, err)
	detach()
	detach()
	require.NoError(e.T, e.Store.Close())
	require.NoError(e.T, e.Store.Close())
	require.Equal(e.T, 1, calls)
	_, err = storekit.Attach(e.Store, func(context.Context) {})
	require.ErrorIs(e.T, err, outmill.ErrClosed)

	left, err := other.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken()))
	require.NoError(e.T, err)
	require.Equal(e.T, suite.Names(claimed[1:]), suite.Names(left))
}
