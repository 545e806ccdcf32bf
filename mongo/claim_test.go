package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storekit"
)

func TestStore_StillDue(t *testing.T) {
	t.Parallel()

	t.Run("a claim leases a record that was chosen only if its stage still allows that", func(t *testing.T) {
		t.Parallel()
		store := newStand(t, mongo.Config{})
		require.NoError(t, store.Append(t.Context(), one("m")))
		past, future := time.Unix(1, 0), time.Now().Add(time.Hour)
		for _, c := range []struct {
			stage       int
			availableAt any
			due         int64
		}{
			{storekit.StageAside, nil, 0}, {storekit.StageAside, past, 0},
			{storekit.StageReady, nil, 1}, {mongo.StageInTurn, nil, 1}, {storekit.StageHeld, nil, 1},
			{storekit.StageWaiting, past, 1}, {storekit.StageWaiting, future, 0}, {storekit.StageWaiting, nil, 0},
			{storekit.StageDelayed, past, 1}, {storekit.StageDelayed, future, 0},
			{storekit.StageLeased, past, 1}, {storekit.StageLeased, future, 0},
			{storekit.StageExpired, past, 0}, {storekit.StageProcessed, past, 0}, {storekit.StageDead, past, 0},
		} {
			set := bson.D{{Key: "$set", Value: bson.D{{Key: "stage", Value: c.stage}, {Key: "available_at", Value: c.availableAt}}}}
			_, err := store.records().UpdateMany(t.Context(), bson.D{}, set)
			require.NoError(t, err)
			due, err := store.records().CountDocuments(t.Context(), mongo.StillDue())
			require.NoError(t, err)
			require.Equal(t, c.due, due, "stage %d, available at %v", c.stage, c.availableAt)
		}
	})
}
