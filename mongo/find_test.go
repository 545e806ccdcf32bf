package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

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
		for name, field := range map[string]string{"broken": "content.joins", "illegible": "content.metadata"} {
			_, err := store.records().UpdateOne(t.Context(), bson.D{{Key: "content.message", Value: name}},
				bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: bson.A{7}}}}})
			require.NoError(t, err)
		}
		for _, record := range records[1:] {
			shown, err := store.Get(t.Context(), record.ID)
			require.NoError(t, err)
			require.NotEmpty(t, shown.Unreadable)
		}
		page, err := store.DeleteWhere(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Equal(t, 2, page.Changed)
		require.True(t, page.Done)
		page, err = store.Find(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Empty(t, page.Records)
	})
}
