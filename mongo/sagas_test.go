package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

func TestStore_PrepareSagas(t *testing.T) {
	t.Parallel()
	t.Run("makes the indexes of an existing collection, also in a context with a deadline", func(t *testing.T) {
		t.Parallel()
		s, in := newSagas(t)
		_, err := in.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "somebody's"}, {Key: "_correlation", Value: "o0"}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.PrepareSagas(ctx, in.Name()))
		requireSagaIndexes(t, in)
		require.NoError(t, s.InsertSaga(ctx, &roles.Saga{Type: in.Name(), Correlation: "o1"}, &struct{ Paid bool }{}, roles.SagaOptions{}))
	})
	t.Run("refuses a collection whose documents have no correlation value, and names the remedy", func(t *testing.T) {
		t.Parallel()
		s, in := newSagas(t)
		many := []any{}
		for i := range 300 {
			many = append(many, bson.D{{Key: "_id", Value: i}, {Key: "_correlation", Value: fmt.Sprint("o", i)}})
		}
		many[150] = bson.D{{Key: "_id", Value: 150}}
		_, err := in.InsertMany(t.Context(), many)
		require.NoError(t, err)
		err = s.PrepareSagas(t.Context(), in.Name())
		require.ErrorIs(t, err, roles.ErrSagaUnkeyed)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "updateMany")
		err = s.InsertSaga(t.Context(), &roles.Saga{Type: in.Name(), Correlation: "o1"}, &struct{ Paid bool }{}, roles.SagaOptions{})
		require.ErrorIs(t, err, roles.ErrSagaUnkeyed)

		_, err = in.UpdateMany(t.Context(), bson.D{{Key: "_correlation", Value: bson.D{{Key: "$exists", Value: false}}}}, driver.Pipeline{
			{{Key: "$set", Value: bson.D{{Key: "_correlation", Value: bson.D{{Key: "$toString", Value: "$_id"}}}}}}})
		require.NoError(t, err)
		require.NoError(t, s.PrepareSagas(t.Context(), in.Name()))
	})
	t.Run("refuses documents without a correlation value that came after the index", func(t *testing.T) {
		t.Parallel()
		s, in := newSagas(t)
		require.NoError(t, s.PrepareSagas(t.Context(), in.Name()))
		_, err := in.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		again := newStore(t, s.Client(), mongo.Config{Database: s.db.Name()})
		require.ErrorIs(t, again.PrepareSagas(t.Context(), in.Name()), roles.ErrSagaUnkeyed)
	})
}

// newSagas returns a store, and the collection of a type that no other test has.
func newSagas(t *testing.T) (stand, *driver.Collection) {
	t.Helper()
	s := newStand(t, mongo.Config{})
	return s, s.db.Collection(newPrefix() + "order")
}

func requireSagaIndexes(t *testing.T, in *driver.Collection) {
	t.Helper()
	indexes, err := in.Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	require.Len(t, indexes, 4)
}

func TestStore_InsertSaga(t *testing.T) {
	t.Parallel()
	inTransactions := func(s stand, ctx context.Context, start func(ctx context.Context) error) error {
		return s.Transact(ctx, start)
	}
	alone := func(_ stand, ctx context.Context, start func(ctx context.Context) error) error { return start(ctx) }
	loseCollection := func(_ stand, in *driver.Collection) error { return in.Drop(context.Background()) }
	loseIndex := func(_ stand, in *driver.Collection) error {
		return in.Indexes().DropOne(context.Background(), "outmill_correlation")
	}
	loseDatabase := func(s stand, _ *driver.Collection) error {
		return errors.Join(s.db.Drop(context.Background()), s.Ensure(context.Background()))
	}
	for how, start := range map[string]func(s stand, ctx context.Context, start func(ctx context.Context) error) error{
		"in transactions": inTransactions, "without a transaction": alone,
	} {
		for what, lose := range map[string]func(stand, *driver.Collection) error{
			"collection": loseCollection, "unique index": loseIndex, "database": loseDatabase,
		} {
			t.Run("of 20 starts "+how+" that begin after the "+what+" was dropped one saga comes", func(t *testing.T) {
				t.Parallel()
				s, in := newSagas(t)
				require.NoError(t, s.PrepareSagas(t.Context(), in.Name()))
				for round := range 3 {
					require.NoError(t, lose(s, in))
					correlation := fmt.Sprint("o", round)
					requireOneOf(t, 20, func() error {
						return start(s, t.Context(), func(ctx context.Context) error {
							return s.InsertSaga(ctx, &roles.Saga{Type: in.Name(), Correlation: correlation}, &struct{ Paid bool }{}, roles.SagaOptions{})
						})
					})
					n, err := in.CountDocuments(t.Context(), bson.D{{Key: "_correlation", Value: correlation}})
					require.NoError(t, err)
					require.EqualValues(t, 1, n)
					requireSagaIndexes(t, in)
				}
			})
		}
	}
}

// requireOneOf calls start n times at once, and requires that one call succeeds and that the others
// find its saga.
func requireOneOf(t *testing.T, n int, start func() error) {
	t.Helper()
	errs := make(chan error, n)
	for range n {
		go func() { errs <- start() }()
	}
	started := 0
	for range n {
		err := <-errs
		if err == nil {
			started++
			continue
		}
		require.ErrorIs(t, err, roles.ErrSagaExists)
	}
	require.Equal(t, 1, started)
}

func TestStore_RetainSaga(t *testing.T) {
	t.Parallel()
	t.Run("makes the server delete the saga by itself", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		kind := newPrefix() + "order"
		t.Cleanup(func() { _ = s.db.Collection(kind).Drop(context.WithoutCancel(t.Context())) })
		saga := &roles.Saga{Type: kind, Correlation: "o1", Finished: true}
		require.NoError(t, s.InsertSaga(t.Context(), saga, &struct{ Paid bool }{}, roles.SagaOptions{}))
		require.NoError(t, s.RetainSaga(t.Context(), saga, time.Hour, roles.SagaOptions{}))
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
