package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

func TestStore_FindByContract(t *testing.T) {
	t.Parallel()

	t.Run("goes on past records that cannot be decoded, and deletes them by their contract", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		store := newStore(t, db, postgres.Config{NotifyInterval: -1})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		records := made("orders", "m", 3)
		for i, name := range []string{"good", "broken", "illegible"} {
			records[i].MessageID, records[i].Metadata = name, map[string]string{outmill.MetadataContract: "placed"}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		moved := claimed(t, store, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone))
		for _, lease := range leasesOf(moved) {
			require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: lease}}))
		}
		execute(t, db, `UPDATE outmill.records SET metadata = (metadata::jsonb || '{"n": 5}')::text WHERE message_id = 'broken'`)
		execute(t, db, `UPDATE outmill.records SET metadata = '[1]' WHERE message_id = 'illegible'`)
		shown, err := store.Get(t.Context(), records[1].ID)
		require.NoError(t, err)
		require.NotEmpty(t, shown.Unreadable)
		page, err := store.DeleteWhere(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Equal(t, 2, page.Changed)
		require.True(t, page.Done)
		page, err = store.Find(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Empty(t, page.Records)
	})
}
