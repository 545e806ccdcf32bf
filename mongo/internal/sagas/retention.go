package sagas

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// fieldDelete is the time at which the TTL index deletes a finished saga.
const fieldDelete = "_delete_at"

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Sagas) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, opts roles.SagaOptions) error {
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.config.Explain(ctx, "retain saga", err)
	}
	return s.sagaWork(ctx, "retain saga", saga, opts, false, func(ctx context.Context, w sagaWork) error {
		result, err := w.in.UpdateOne(ctx, append(w.filter(), bson.E{Key: fieldFinished, Value: true}),
			mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: fieldDelete, Value: inTime(retention)}}}}})
		if err == nil && result.MatchedCount == 0 {
			err = roles.ErrSagaConflict
		}
		return conflicting(err, roles.ErrSagaConflict)
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed and that the server's TTL
// index has not deleted yet, of the types on which this store has worked. See
// roles.Sagas.
func (s *Sagas) DeleteOldSagas(ctx context.Context, limit int) (deleted int, err error) {
	const operation = "delete old sagas"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.config.Explain(ctx, operation, err)
	}
	for _, from := range s.collections() {
		err := s.config.Alone(ctx, operation, false, func(ctx context.Context) error {
			now, err := s.now(ctx)
			if err != nil || deleted == limit {
				return err
			}
			n, err := deleteSome(ctx, from, bson.D{{Key: fieldDelete, Value: bson.D{{Key: "$lte", Value: now}}}}, fieldDelete, limit-deleted)
			deleted += n
			return err
		})
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// deleteSome deletes up to limit documents, in the order of a field.
func deleteSome(ctx context.Context, from *mongo.Collection, over bson.D, by string, limit int) (deleted int, err error) {
	found, err := findAll[struct {
		ID any `bson:"_id"`
	}](ctx, from, over, first(limit, ascending(by), fieldID))
	if err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make(bson.A, len(found))
	for i, f := range found {
		ids[i] = f.ID
	}
	result, err := from.DeleteMany(ctx, append(in(fieldID, ids), over...))
	if err != nil {
		return 0, err
	}
	return int(result.DeletedCount), nil
}

// now is the time of the server.
func (s *Sagas) now(ctx context.Context) (time.Time, error) {
	var hello struct {
		Now time.Time `bson:"localTime"`
	}
	err := s.config.DB.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	return hello.Now, err
}
