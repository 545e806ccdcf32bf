package mongo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storekit"
)

func TestStore_PrepareSagas(t *testing.T) {
	t.Parallel()
	t.Run("makes the indexes of an existing collection, also in a context with a deadline", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		kind := newPrefix() + "order"
		t.Cleanup(func() { _ = s.db.Collection(kind).Drop(context.WithoutCancel(t.Context())) })
		_, err := s.db.Collection(kind).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "somebody's"}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.PrepareSagas(ctx, kind))
		indexes, err := s.db.Collection(kind).Indexes().ListSpecifications(t.Context())
		require.NoError(t, err)
		require.Len(t, indexes, 4)
		require.NoError(t, s.InsertSaga(ctx, &storekit.Saga{Type: kind, Correlation: "o1"}, &struct{ Paid bool }{}, storekit.SagaOptions{}))
	})
}

func TestStore_RetainSaga(t *testing.T) {
	t.Parallel()
	t.Run("makes the server delete the saga by itself", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		kind := newPrefix() + "order"
		t.Cleanup(func() { _ = s.db.Collection(kind).Drop(context.WithoutCancel(t.Context())) })
		saga := &storekit.Saga{Type: kind, Correlation: "o1", Finished: true}
		require.NoError(t, s.InsertSaga(t.Context(), saga, &struct{ Paid bool }{}, storekit.SagaOptions{}))
		require.NoError(t, s.RetainSaga(t.Context(), saga, time.Hour, storekit.SagaOptions{}))
		var stored struct {
			DeleteAt  time.Time `bson:"_delete_at"`
			UpdatedAt time.Time `bson:"_updated_at"`
		}
		require.NoError(t, s.db.Collection(kind).FindOne(t.Context(), bson.D{}).Decode(&stored))
		require.WithinDuration(t, stored.UpdatedAt.Add(time.Hour), stored.DeleteAt, 10*time.Second)
		indexes, err := s.db.Collection(kind).Indexes().ListSpecifications(t.Context())
		require.NoError(t, err)
		ttl := 0
		for _, index := range indexes {
			if index.ExpireAfterSeconds != nil {
				require.Zero(t, *index.ExpireAfterSeconds)
				ttl++
			}
		}
		require.Equal(t, 1, ttl)
	})
}
