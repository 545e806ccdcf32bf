package storekit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

type (
	fakeStore struct{ name string }
	fakeTx    struct{ name string }
)

func TestTx(t *testing.T) {
	t.Parallel()

	t.Run("transactions in a context", func(t *testing.T) {
		t.Parallel()
		orders, bills, stock := &fakeStore{"orders"}, &fakeStore{"bills"}, &fakeStore{"stock"}
		outer, inner, other := &fakeTx{"outer"}, &fakeTx{"inner"}, &fakeTx{"other"}
		ofOrders := storekit.ContextWithTx(t.Context(), orders, outer)

		find := func(t *testing.T, ctx context.Context, store *fakeStore) any {
			t.Helper()
			tx, err := storekit.TxFromContext(ctx, store)
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
			tx, err := storekit.TxFromContext(ofOrders, bills)
			require.ErrorIs(t, err, outmill.ErrForeignTx)
			require.Nil(t, tx)
		})
		t.Run("stores are compared by identity, not by value", func(t *testing.T) {
			t.Parallel()
			_, err := storekit.TxFromContext(ofOrders, &fakeStore{"orders"})
			require.ErrorIs(t, err, outmill.ErrForeignTx)
		})
		t.Run("the inner one of a store wins inside and is gone outside", func(t *testing.T) {
			t.Parallel()
			nested := storekit.ContextWithTx(ofOrders, orders, inner)
			require.Same(t, inner, find(t, nested, orders))
			require.Same(t, outer, find(t, ofOrders, orders))
		})
		t.Run("several stores each find their own, whatever the order", func(t *testing.T) {
			t.Parallel()
			both := storekit.ContextWithTx(ofOrders, bills, other)
			require.Same(t, outer, find(t, both, orders))
			require.Same(t, other, find(t, both, bills))
			_, err := storekit.TxFromContext(both, stock)
			require.ErrorIs(t, err, outmill.ErrForeignTx)
		})
		t.Run("contexts that branch do not see each other's", func(t *testing.T) {
			t.Parallel()
			left := storekit.ContextWithTx(ofOrders, bills, inner)
			right := storekit.ContextWithTx(ofOrders, bills, other)
			require.Same(t, inner, find(t, left, bills))
			require.Same(t, other, find(t, right, bills))
		})
		t.Run("they outlive a cancelled context", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(ofOrders)
			cancel()
			require.Same(t, outer, find(t, context.WithoutCancel(ctx), orders))
		})
	})
}
