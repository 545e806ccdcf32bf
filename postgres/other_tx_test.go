package postgres_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Tx_OfAnotherLibrary(t *testing.T) {
	t.Parallel()
	db := pool(t)
	std := stdlib.OpenDBFromPool(db)
	t.Cleanup(func() { require.NoError(t, std.Close()) })
	log := journal.New()
	store, err := postgres.New(db, postgres.Config{}, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	tx, err := std.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	hints := func() (found []watermill.LogFields) {
		for _, line := range log.Lines(watermill.InfoLogLevel) {
			if fields := line.Fields; fields["transaction"] != nil {
				require.Contains(t, line.Msg, "TxOf")
				found = append(found, fields)
			}
		}
		return found
	}

	_, ok := store.Tx(t.Context())
	require.False(t, ok)
	require.Empty(t, hints(), "there is no transaction at all")

	ctx := store.WithTx(t.Context(), tx)
	for range 2 {
		_, ok = store.Tx(ctx)
		require.False(t, ok)
	}
	require.Len(t, hints(), 1)
	require.Equal(t, "*sql.Tx", hints()[0]["transaction"])
	found, ok := store.SQLTx(ctx)
	require.True(t, ok)
	require.Same(t, tx, found)
	all, err := store.TxOf(ctx)
	require.NoError(t, err)
	require.Same(t, tx, all)
}
