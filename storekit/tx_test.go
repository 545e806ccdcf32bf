package outmill_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

type (
	fakeStore struct{ name string }
	fakeTx    struct{ name string }
)

func Test_transactions_in_a_context(t *testing.T) {
	t.Parallel()
	orders, bills, stock := &fakeStore{"orders"}, &fakeStore{"bills"}, &fakeStore{"stock"}
	outer, inner, other := &fakeTx{"outer"}, &fakeTx{"inner"}, &fakeTx{"other"}
	ofOrders := outmill.ContextWithTx(t.Context(), orders, outer)

	find := func(t *testing.T, ctx context.Context, store *fakeStore) any {
		t.Helper()
		tx, err := outmill.TxFromContext(ctx, store)
		require.NoError(t, err)
		return tx
	}

	t.Run("none at all is no error", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, find(t, t.Context(), orders))
	})
	t.Run("that of the store is found", func(t *testing.T) {
		t.Parallel()
		require.Same(t, outer, find(t, ofOrders, orders))
	})
	t.Run("that of another store only is foreign", func(t *testing.T) {
		t.Parallel()
		tx, err := outmill.TxFromContext(ofOrders, bills)
		require.ErrorIs(t, err, outmill.ErrForeignTx)
		require.Nil(t, tx)
	})
	t.Run("stores are told apart by identity, not by value", func(t *testing.T) {
		t.Parallel()
		_, err := outmill.TxFromContext(ofOrders, &fakeStore{"orders"})
		require.ErrorIs(t, err, outmill.ErrForeignTx)
	})
	t.Run("the inner one of a store wins inside and is gone outside", func(t *testing.T) {
		t.Parallel()
		nested := outmill.ContextWithTx(ofOrders, orders, inner)
		require.Same(t, inner, find(t, nested, orders))
		require.Same(t, outer, find(t, ofOrders, orders))
	})
	t.Run("several stores each find their own, whatever the order", func(t *testing.T) {
		t.Parallel()
		both := outmill.ContextWithTx(ofOrders, bills, other)
		require.Same(t, outer, find(t, both, orders))
		require.Same(t, other, find(t, both, bills))
		_, err := outmill.TxFromContext(both, stock)
		require.ErrorIs(t, err, outmill.ErrForeignTx)
	})
	t.Run("contexts that branch do not see each other's", func(t *testing.T) {
		t.Parallel()
		left := outmill.ContextWithTx(ofOrders, bills, inner)
		right := outmill.ContextWithTx(ofOrders, bills, other)
		require.Same(t, inner, find(t, left, bills))
		require.Same(t, other, find(t, right, bills))
	})
	t.Run("they outlive a cancelled context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(ofOrders)
		cancel()
		require.Same(t, outer, find(t, context.WithoutCancel(ctx), orders))
	})
}
