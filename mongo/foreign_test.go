package mongo_test

import (
	"context"
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

func TestStore_SchemaOfBefore(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	_, err := db.Collection("outmill_meta").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "outmill"}, {Key: "version", Value: 1}, {Key: "compatible", Value: 1}, {Key: "generation", Value: int64(3)},
		{Key: "groups", Value: bson.A{}},
	})
	require.NoError(t, err)
	store := newStore(t, db.Client(), mongo.Config{Database: db.Name()})
	for call, err := range map[string]error{
		"ensure": store.Ensure(t.Context()), "append": store.Append(t.Context(), one("never")),
		"in a transaction": store.InTx(t.Context(), func(ctx context.Context) error { return store.Append(ctx, one("never")) }),
		"register":         store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}),
		"stats":            func() error { _, err := store.Stats(t.Context(), 0); return err }(),
		"doctor":           func() error { _, err := store.Examine(t.Context(), lenient()); return err }(),
	} {
		require.ErrorIs(t, err, outmill.ErrSchemaForeign, call)
		require.ErrorContains(t, err, "outmill_meta is not one of this version's: drop", call)
		require.ErrorContains(t, err, "collection_prefix", call)
	}
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{"outmill_meta"}, names, "something was written")
}
