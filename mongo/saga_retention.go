package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// fieldDelete is the time at which the TTL index deletes a finished saga.
const fieldDelete = "_delete_at"

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Store) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, opts roles.SagaOptions) error {
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.explain(ctx, "retain saga", err)
	}
	return s.sagaWork(ctx, "retain saga", saga, opts, s.do, func(ctx context.Context, w sagaWork) error {
		result, err := w.in.UpdateOne(ctx, append(w.filter(), bson.E{Key: fieldFinished, Value: true}),
			driver.Pipeline{{{Key: "$set", Value: bson.D{{Key: fieldDelete, Value: inTime(retention)}}}}})
		if err == nil && result.MatchedCount == 0 {
			err = roles.ErrSagaConflict
		}
		return conflicting(err, roles.ErrSagaConflict)
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed and that the server's TTL
// index has not deleted yet, of the types on which this store has worked. See
// roles.Sagas.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (deleted int, err error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, "delete old sagas", err)
	}
	s.prepared.Range(func(kind, _ any) bool {
		var in *driver.Collection
		if in, err = s.sagasOf(kind.(string)); err != nil {
			return false
		}
		var n int
		n, err = s.deleteOver(ctx, "delete old sagas", limit-deleted, in, fieldDelete)
		deleted += n
		return err == nil && deleted < limit
	})
	return deleted, err
}
