package sqlkit_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Outmill accepts every transaction that watermill-sql accepts.
var _ sqlkit.Handle = watermillsql.ContextExecutor(nil)

func TestHandle(t *testing.T) {
	t.Parallel()

	t.Run("a transaction is found under the store that carried it", func(t *testing.T) {
		t.Parallel()
		tx := new(sql.Tx)
		ctx := sqlkit.WithTx(t.Context(), "store", tx)
		found, err := sqlkit.TxFrom(ctx, "store")
		require.NoError(t, err)
		require.Same(t, tx, found)

		_, err = sqlkit.TxFrom(ctx, "another store")
		require.ErrorIs(t, err, outmill.ErrForeignTx)

		found, err = sqlkit.TxFrom(t.Context(), "store")
		require.NoError(t, err)
		require.Nil(t, found)
	})

	t.Run("a value that is not a transaction is refused where it is used", func(t *testing.T) {
		t.Parallel()
		for name, tx := range map[string]any{
			"nil":       nil,
			"typed nil": (*sql.Tx)(nil),
			"pool":      &sql.DB{},
			"not comparable": struct {
				hidden
				_ []int
			}{},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := sqlkit.TxFrom(sqlkit.WithTx(t.Context(), "store", tx), "store")
				require.ErrorIs(t, err, outmill.ErrInvalidTx)
			})
		}
		t.Run("something else under the store's key", func(t *testing.T) {
			t.Parallel()
			_, err := sqlkit.TxFrom(storekit.ContextWithTx(t.Context(), "store", "text"), "store")
			require.ErrorIs(t, err, outmill.ErrInvalidTx)
		})
	})

	t.Run("the error of a transaction that has ended says so", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, sqlkit.TxEnded(sql.ErrTxDone), outmill.ErrInvalidTx)
		require.ErrorIs(t, sqlkit.TxEnded(sql.ErrTxDone), sql.ErrTxDone)
		other := errors.New("other")
		require.Equal(t, other, sqlkit.TxEnded(other))
		require.NoError(t, sqlkit.TxEnded(nil))
	})

	t.Run("appends of one transaction take turns and those of others do not wait", func(t *testing.T) {
		t.Parallel()
		var locks storekit.TxLocks
		one, two := new(sql.Tx), new(sql.Tx)
		unlock, err := locks.Lock(t.Context(), one)
		require.NoError(t, err)

		unlockTwo, err := locks.Lock(t.Context(), two)
		require.NoError(t, err)
		unlockTwo()

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locks.Lock(ended, one)
		require.ErrorIs(t, err, context.Canceled)

		turns := make(chan struct{})
		go func() {
			unlock, err := locks.Lock(t.Context(), one)
			if err == nil {
				unlock()
			}
			close(turns)
		}()
		unlock()
		<-turns
	})
}
