package storekit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
)

func last(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	ctx, err := storekit.Last(ctx)
	require.NoError(t, err)
	return ctx
}

func TestLast(t *testing.T) {
	t.Parallel()
	db := memstore.NewDatabase()
	store, other := memstore.New(db, memstore.Options{}), memstore.New(db, memstore.Options{})
	explain := func(err error) error { return err }
	proven := func(context.Context) error { return nil }
	// joined runs fn as Transact does in a transaction of the store.
	joined := func(t *testing.T, fn func(ctx context.Context)) {
		t.Helper()
		ctx := store.WithTx(t.Context(), db.Begin())
		require.NoError(t, storekit.TransactOr(ctx, store, func(ctx context.Context) error {
			fn(ctx)
			return nil
		}, explain, proven, func() error { panic("the transaction is there") }))
	}
	t.Run("is true of the context that says so, and of no other", func(t *testing.T) {
		t.Parallel()
		require.False(t, storekit.IsLast(t.Context(), store))
		require.True(t, storekit.IsLast(last(t, t.Context()), store))
	})
	t.Run("is not true of a function that takes part in another one's transaction of the store", func(t *testing.T) {
		t.Parallel()
		joined(t, func(ctx context.Context) {
			require.False(t, storekit.IsLast(last(t, ctx), store))
			require.True(t, storekit.IsLast(last(t, ctx), other))
		})
	})
}
