package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

func restOf(t *testing.T, asker *postgres.Store, stores ...*postgres.Store) []bool {
	t.Helper()
	selves := make([]any, len(stores))
	for i, store := range stores {
		_, selves[i] = store.IdleWith()
	}
	resting, err := asker.AreIdle(t.Context(), selves)
	require.NoError(t, err)
	return resting
}

func TestStore_Rest(t *testing.T) {
	t.Parallel()

	t.Run("a schema that was dropped is not at rest, and others that are asked with it are", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		config := r.store.config
		config.Schema = schemaName()
		gone := newStore(t, r.db, config)
		require.NoError(t, gone.Ensure(t.Context()))
		require.Equal(t, []bool{true, true}, restOf(t, gone, gone, r.store.Store))
		execute(t, r.db, "DROP SCHEMA "+config.Schema+" CASCADE")
		for _, asker := range []*postgres.Store{gone, r.store.Store} {
			require.Equal(t, []bool{false, true, false}, restOf(t, asker, gone, r.store.Store, gone))
			require.Equal(t, []bool{true, false}, restOf(t, asker, r.store.Store, gone))
		}
		require.Equal(t, []bool{false}, restOf(t, gone, gone))
	})

	t.Run("a value that is no store of PostgreSQL is refused", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		_, err := r.store.AreIdle(t.Context(), []any{"a store"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("a table that is locked is not at rest, and nobody waits for it long", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		tx, err := r.db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), fmt.Sprintf("LOCK TABLE %s.%srecords IN ACCESS EXCLUSIVE MODE", r.store.config.Schema,
			r.store.config.TablePrefix))
		require.NoError(t, err)
		require.Equal(t, []bool{false}, restOf(t, r.store.Store, r.store.Store))
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, []bool{true}, restOf(t, r.store.Store, r.store.Store))
	})
}
