package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

func TestStore_EnsureForeign(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	_, err := db.Collection("outmill_records").InsertOne(t.Context(), bson.D{{Key: "order", Value: 7}})
	require.NoError(t, err)
	err = newStore(t, db.Client(), mongo.Config{Database: db.Name()}).Ensure(t.Context())
	require.ErrorIs(t, err, outmill.ErrSchemaForeign)
	require.ErrorContains(t, err, "the collection "+db.Name()+".outmill_records exists")
	require.ErrorContains(t, err, "collection_prefix")
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{"outmill_records"}, names, "something was written")
	require.NoError(t, newStore(t, db.Client(), mongo.Config{Database: db.Name(), CollectionPrefix: "mill_"}).Ensure(t.Context()))
}
