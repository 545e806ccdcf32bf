package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

const soon = time.Minute

func requireWoken(t *testing.T, told <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(soon):
		require.Fail(t, "not woken", why)
	}
}

func requireQuiet(t *testing.T, told <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-told:
		require.Fail(t, "woken", why)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestStore_Wake(t *testing.T) {
	t.Parallel()

	t.Run("readers are woken", func(t *testing.T) {
		t.Parallel()
		t.Run("by the commit of InTx, not before", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			told := testenv.Hints(t.Context(), store)
			require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				require.NoError(t, store.Append(ctx, rec("m1", "")))
				requireQuiet(t, told, "before the commit")
				return nil
			}))
			requireWoken(t, told, "after the commit")
		})
		t.Run("by the commit of a caller's transaction, not before", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			told := testenv.Hints(t.Context(), store)
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := store.WithTx(t.Context(), tx)
			require.NoError(t, store.Append(ctx, rec("m1", "")))
			require.NoError(t, store.Append(ctx, rec("m2", "")))
			requireQuiet(t, told, "before the commit")
			require.NoError(t, tx.Commit())
			requireWoken(t, told, "after the commit")
		})
		t.Run("of a transaction before, when the next one appends", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			told := testenv.Hints(t.Context(), store)
			for _, name := range []string{"rolled back", "committed"} {
				tx, err := store.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, store.Append(store.WithTx(t.Context(), tx), rec(name, "")))
				if name == "rolled back" {
					require.NoError(t, tx.Rollback())
					continue
				}
				requireWoken(t, told, "the first transaction is over")
				require.NoError(t, tx.Commit())
				requireWoken(t, told, "the second was committed")
			}
		})
		t.Run("by nothing after a rollback of InTx", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			told := testenv.Hints(t.Context(), store)
			boom := errors.New("boom")
			require.ErrorIs(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				return errors.Join(store.Append(ctx, rec("m1", "")), boom)
			}), boom)
			requireQuiet(t, told, "rolled back")
		})
		t.Run("by an append of duplicates alone not at all", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			r := rec("m1", "")
			r.DedupKey = "k"
			appendAll(t, store, r)
			told := testenv.Hints(t.Context(), store)
			appendAll(t, store, r)
			require.True(t, r.Duplicate)
			requireQuiet(t, told, "nothing was appended")
		})
	})

	// goleak, in TestMain, finds a watch that keeps running.
	t.Run("Close ends the watch of a transaction that stays open", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		store.Wake(t.Context(), func(string) {})
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, store.Append(store.WithTx(t.Context(), tx), rec("m1", "")))
		require.NoError(t, tx.Rollback())
		begin := time.Now()
		require.NoError(t, store.Close())
		require.Less(t, time.Since(begin), soon)
	})

	t.Run("a closed store wakes no reader", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		require.NoError(t, store.Close())
		requireQuiet(t, testenv.Hints(t.Context(), store), "closed")
	})
}
