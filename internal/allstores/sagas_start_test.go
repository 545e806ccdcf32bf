package allstores

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/internal/testenv/mongotest"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

func TestSagas_Start(t *testing.T) {
	t.Parallel()
	reaction := sagas.On("paid", ofParcel, shipParcel)
	t.Run("a kind whose collection has documents of another program is refused when its handlers are added", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		_, err = db.Collection("parcel").InsertOne(t.Context(), bson.D{{Key: "OrderId", Value: "42"}})
		require.NoError(t, err)
		sub, err := subscriber.New(store, quick(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		saga, err := sagas.Define(sagas.Config{Store: store}, reaction)
		require.NoError(t, err)
		router := newRouter(t)
		require.ErrorIs(t, saga.AddHandlers(router, sub), sagas.ErrUnkeyed)
		require.ErrorIs(t, saga.Prepare(t.Context()), sagas.ErrUnkeyed)
		require.Empty(t, router.Handlers())

		require.NoError(t, db.Collection("parcel").Drop(t.Context()))
		require.NoError(t, saga.AddHandlers(router, sub))
		require.Len(t, router.Handlers(), 1)
	})
}
