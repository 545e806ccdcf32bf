package mongo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo"
)

func TestStore_KeysPlan(t *testing.T) {
	t.Parallel()

	t.Run("a claim reads no more when more records of its keys are parked or held", func(t *testing.T) {
		t.Parallel()
		few := crowdedKeys(t, 400)
		many := crowdedKeys(t, 2000)
		t.Log(few, many)
		require.LessOrEqual(t, many, few+100)
	})
}

// crowdedKeys returns what a claim reads of six keys, of which each has a new record, and n that are parked or held.
func crowdedKeys(t *testing.T, n int) int64 {
	t.Helper()
	s := newStand(t, mongo.Config{})
	ctx := t.Context()
	for _, park := range []bool{true, false} {
		for i := range 3 {
			key := fmt.Sprint("key ", park, i)
			require.NoError(t, s.Append(ctx, keyed(key, numbered(key, n+1)...)...))
			head := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
			require.Equal(t, key, head[0].Key)
			left := bson.D{{Key: "stage", Value: int32(driver.Dead)}, {Key: "parked", Value: true}}
			if park {
				require.NoError(t, s.Fail(ctx, []outmill.Settlement{{Lease: head[0].Lease(), Park: true}}))
			} else {
				require.NoError(t, s.Abandon(ctx, []outmill.Settlement{{Lease: head[0].Lease(), Delay: time.Hour}}))
				require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)), "the key waits, and has a note")
				left = bson.D{{Key: "stage", Value: int32(driver.Held)}, {Key: "under", Value: driver.KeyNote(key)}}
			}
			_, err := s.records().UpdateMany(ctx, bson.D{{Key: "key", Value: key}, {Key: "stage", Value: int32(driver.Ready)}},
				bson.D{{Key: "$set", Value: left}})
			require.NoError(t, err)
		}
	}
	for _, park := range []bool{true, false} {
		for i := range 3 {
			key := fmt.Sprint("key ", park, i)
			require.NoError(t, s.Append(ctx, keyed(key, "last of "+key)...))
		}
	}
	return s.reads(t, func() { claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)) })
}
