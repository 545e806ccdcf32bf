package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

func TestStore_DeleteWhere(t *testing.T) {
	t.Parallel()

	t.Run("skips a record whose status has changed since the search", func(t *testing.T) {
		t.Parallel()
		store := newStand(t, mongo.Config{})
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 2)...))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
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
		store := newStand(t, mongo.Config{})
		records := made("orders", "m", 3)
		for i, name := range []string{"good", "broken", "illegible"} {
			records[i].MessageID, records[i].Metadata = name, map[string]string{outmill.MetadataContract: "placed"}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		for name, field := range map[string]string{"broken": "joins", "illegible": "metadata"} {
			_, err := store.db.Collection("outmill_records").UpdateOne(t.Context(), bson.D{{Key: "message_id", Value: name}},
				bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: "x"}}}})
			require.NoError(t, err)
		}
		_, err := store.Get(t.Context(), records[1].ID)
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
