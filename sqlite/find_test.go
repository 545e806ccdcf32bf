package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestStore_DeleteWhere(t *testing.T) {
	t.Parallel()

	t.Run("skips a record whose status has changed since the search", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		require.NoError(t, store.Append(t.Context(), rec("m1", ""), rec("m2", "")))
		found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Len(t, found, 1)
		leased := found[0]
		listed, err := store.List(t.Context(), outmill.ListQuery{Status: outmill.StatusPending})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		pending := listed[0]
		for _, was := range []outmill.Status{outmill.StatusDead, outmill.StatusProcessed} {
			n, err := store.DeleteOf(t.Context(), was, leased.ID, pending.ID)
			require.NoError(t, err)
			require.Zero(t, n, was)
		}
		for id, status := range map[outmill.WorkItemID]outmill.Status{leased.ID: outmill.StatusLeased, pending.ID: outmill.StatusPending} {
			kept, err := store.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, status, kept.Status)
		}
		n, err := store.DeleteOf(t.Context(), outmill.StatusPending, leased.ID, pending.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = store.DeleteOf(t.Context(), outmill.StatusLeased, leased.ID, pending.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestStore_FindByContract(t *testing.T) {
	t.Parallel()

	t.Run("goes on past records that cannot be decoded, and deletes them by their contract", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		records := []*outmill.Record{rec("", ""), rec("", ""), rec("", "")}
		for i, name := range []string{"good", "broken", "illegible"} {
			records[i].MessageID, records[i].Metadata = name, map[string]string{outmill.MetadataContract: "placed"}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		db, err := sql.Open("sqlite", store.path)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		for name, set := range map[string]string{"broken": "joins = 'x'", "illegible": "metadata = '{'"} {
			_, err = db.ExecContext(t.Context(), "UPDATE outmill_records SET "+set+" WHERE message_id = ?", name)
			require.NoError(t, err)
		}
		_, err = store.Get(t.Context(), records[1].ID)
		require.Error(t, err)
		page, err := store.DeleteWhere(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Equal(t, 2, page.Changed)
		require.True(t, page.Done)
		page, err = store.Find(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Empty(t, page.Records)
	})
}
