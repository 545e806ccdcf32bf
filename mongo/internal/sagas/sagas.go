package sagas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Sagas = (*Sagas)(nil)

// Fields of a saga's document that are not part of its state. NServiceBus uses the same name for
// the field of the version, and the same place next to the state.
const (
	defaultVersionField = "_version"
	fieldID             = "_id"
	fieldCorrelation    = "_correlation"
	fieldFinished       = "_finished"
	fieldCreated        = "_created_at"
	fieldUpdated        = "_updated_at"
)

// sagaHead is a saga's document without its state. The user may name the version's field.
type sagaHead struct {
	ID        sagaID    `bson:"_id"`
	Finished  bool      `bson:"_finished"`
	CreatedAt time.Time `bson:"_created_at"`
	UpdatedAt time.Time `bson:"_updated_at"`
}

// FindSaga reads a saga. See roles.Sagas.
func (s *Sagas) FindSaga(ctx context.Context, kind, correlation string, state any, opts roles.SagaOptions) (*roles.Saga, error) {
	saga := &roles.Saga{Type: kind, Correlation: correlation}
	err := s.sagaWork(ctx, "find saga", saga, opts, false, func(ctx context.Context, w sagaWork) error {
		if err := storekit.CheckSagaState(state); err != nil {
			return err
		}
		raw, err := w.in.FindOne(ctx, where(fieldCorrelation, correlation)).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return roles.ErrSagaNotFound
		}
		if err != nil {
			return err
		}
		if err := w.readHead(raw); err != nil {
			return err
		}
		return decodeState(raw, state)
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// InsertSaga stores a new saga. See roles.Sagas.
//
// It is an upsert that finds the saga of another start, because a duplicate key would end the
// transaction. Its hint makes the server refuse the start where the unique index is missing,
// because somebody has dropped the collection or the database: the server would make the
// collection again without the index.
func (s *Sagas) InsertSaga(ctx context.Context, saga *roles.Saga, state any, opts roles.SagaOptions) error {
	const operation = "insert saga"
	fresh := *saga
	if fresh.ID.IsZero() {
		fresh.ID = outmill.NewWorkItemID()
	}
	document, err := encodeState(state, versionField(opts), s.config.MaxPayload)
	if err == nil {
		err = errors.Join(storekit.CheckSaga(saga.Type, saga.Correlation), checkVersionField(opts))
	}
	if err != nil {
		return s.config.Explain(ctx, operation, err)
	}
	err = s.sagaWork(ctx, operation, &fresh, opts, true, func(ctx context.Context, w sagaWork) error {
		if err := s.PrepareSagas(mongo.NewSessionContext(ctx, nil), saga.Type); err != nil {
			return err
		}
		whole := append(bson.D{{Key: fieldID, Value: uuid(fresh.ID)}, {Key: w.version, Value: int64(1)}}, w.head()...)
		isNew := bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$" + fieldID}}, "missing"}}}
		started := merged(literally(append(whole, document...)),
			bson.D{{Key: fieldCreated, Value: "$$NOW"}, {Key: fieldUpdated, Value: "$$NOW"}})
		var stored sagaHead
		err := w.in.FindOneAndUpdate(ctx, where(fieldCorrelation, saga.Correlation),
			mongo.Pipeline{{{Key: "$replaceWith", Value: given(isNew, started, "$$ROOT")}}},
			options.FindOneAndUpdate().SetUpsert(true).SetHint(indexCorrelation).SetReturnDocument(options.After).
				SetProjection(ascending(fieldID, fieldCreated))).Decode(&stored)
		switch {
		case lacksHint(err):
			s.prepared.Delete(saga.Type)
			return unprepared{err}
		case violates(err, fieldCorrelation):
			err = errors.Join(roles.ErrSagaExists, err)
		case err == nil && outmill.WorkItemID(stored.ID) != fresh.ID:
			err = roles.ErrSagaExists
		}
		fresh.Version, fresh.CreatedAt, fresh.UpdatedAt = 1, utc(stored.CreatedAt), utc(stored.CreatedAt)
		return conflicting(err, roles.ErrSagaExists)
	})
	if err == nil {
		*saga = fresh
	}
	return err
}

// UpdateSaga stores the state of a saga. See roles.Sagas.
func (s *Sagas) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, opts roles.SagaOptions) error {
	return s.sagaWork(ctx, "update saga", saga, opts, true, func(ctx context.Context, w sagaWork) error {
		document, err := encodeState(state, w.version, s.config.MaxPayload)
		if err == nil && opts.KeepUnknown {
			if document, err = w.withUnknown(ctx, document, state); err == nil {
				err = checkSagaDocument(document)
			}
		}
		if err != nil {
			return err
		}
		// Only the update reads the server's time. All other values are literals. The id and the
		// version keep the types that they have, which another program may have chosen.
		replacement := merged(bson.D{{Key: fieldID, Value: "$" + fieldID}, {Key: w.version, Value: plus(w.version, int32(1))}},
			literally(append(w.head(), document...)),
			bson.D{{Key: fieldCreated, Value: "$" + fieldCreated}, {Key: fieldUpdated, Value: "$$NOW"}})
		var stored sagaHead
		err = w.in.FindOneAndUpdate(ctx, w.filter(), mongo.Pipeline{{{Key: "$replaceWith", Value: replacement}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(ascending(fieldID, fieldUpdated))).Decode(&stored)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return w.unmatched(ctx)
		}
		if err == nil {
			saga.Version, saga.UpdatedAt = saga.Version+1, utc(stored.UpdatedAt)
		}
		return conflicting(err, roles.ErrSagaConflict)
	})
}

// DeleteSaga deletes a saga. See roles.Sagas.
func (s *Sagas) DeleteSaga(ctx context.Context, saga *roles.Saga, opts roles.SagaOptions) error {
	return s.sagaWork(ctx, "delete saga", saga, opts, true, func(ctx context.Context, w sagaWork) error {
		result, err := w.in.DeleteOne(ctx, w.filter())
		if err == nil && result.DeletedCount == 0 {
			return w.unmatched(ctx)
		}
		return conflicting(err, roles.ErrSagaConflict)
	})
}

// conflicting returns a conflict with an open transaction as the error as. It keeps the labels of
// the driver's error, so that the transaction is repeated for a while.
func conflicting(err, as error) error {
	if mongoerr.HasCode(err, mongoerr.CodeWriteConflict) {
		return errors.Join(as, err)
	}
	return err
}

// DeleteFinishedSagas deletes sagas that finished long ago. See roles.Sagas.
func (s *Sagas) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	const operation = "delete finished sagas"
	if err := storekit.CheckDeleteFinishedSagas(kind, retention, limit); err != nil {
		return 0, s.config.Explain(ctx, operation, err)
	}
	err = s.sagaWork(ctx, operation, &roles.Saga{Type: kind, Correlation: kind}, roles.SagaOptions{}, false,
		func(ctx context.Context, w sagaWork) error {
			// The filter compares with a literal. The server would compute an expression for each
			// saga.
			now, err := s.now(ctx)
			if err != nil {
				return err
			}
			over := bson.D{{Key: fieldFinished, Value: true}, {Key: fieldUpdated, Value: bson.D{{Key: "$lte", Value: now.Add(-retention)}}}}
			deleted, err = deleteSome(ctx, w.in, over, fieldUpdated, limit)
			return err
		})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// sagaWork has the arguments of an operation on sagas.
type sagaWork struct {
	in      *mongo.Collection
	saga    *roles.Saga
	version string
}

// sagaWork runs fn in the transaction of the context. Else it runs fn alone: see Host.Alone.
func (s *Sagas) sagaWork(ctx context.Context, operation string, saga *roles.Saga, opts roles.SagaOptions,
	once bool, fn func(ctx context.Context, w sagaWork) error,
) error {
	session, err := s.config.SessionOf(ctx)
	if err == nil {
		err = errors.Join(storekit.CheckSaga(saga.Type, saga.Correlation), checkVersionField(opts))
	}
	w := sagaWork{saga: saga, version: versionField(opts)}
	if err == nil {
		w.in, err = s.sagasOf(saga.Type)
	}
	if err != nil {
		return s.config.Explain(ctx, operation, err)
	}
	work := func(ctx context.Context) error { return fn(ctx, w) }
	if session != nil {
		return s.config.Within(ctx, operation, session, work)
	}
	return s.config.Alone(ctx, operation, once, work)
}

// head has the fields of the store that a change writes as they are.
func (w sagaWork) head() bson.D {
	return bson.D{{Key: fieldCorrelation, Value: w.saga.Correlation}, {Key: fieldFinished, Value: w.saga.Finished}}
}

// filter selects the saga if it still has the version that was read.
func (w sagaWork) filter() bson.D {
	return append(in(fieldID, sagaID(w.saga.ID).stored()), bson.E{Key: fieldCorrelation, Value: w.saga.Correlation},
		bson.E{Key: w.version, Value: w.saga.Version})
}

// unmatched says why filter selects no document: ErrSagaConflict if another handler has changed or
// deleted the saga. Otherwise it would do so for ever, so it is an error that counts.
func (w sagaWork) unmatched(ctx context.Context) error {
	raw, err := w.in.FindOne(ctx, where(fieldCorrelation, w.saga.Correlation),
		options.FindOne().SetProjection(ascending(fieldID, w.version))).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return roles.ErrSagaConflict
	}
	if err != nil {
		return conflicting(err, roles.ErrSagaConflict)
	}
	var head sagaHead
	if err := bson.Unmarshal(raw, &head); err != nil {
		return err
	}
	if version, ok := raw.Lookup(w.version).AsInt64OK(); outmill.WorkItemID(head.ID) != w.saga.ID || !ok || version != w.saga.Version {
		return roles.ErrSagaConflict
	}
	return fmt.Errorf("the document of saga %s in collection %s has the version that was read, but a change does not find it: "+
		"its %s has the BSON type %s, and the store wants a UUID of subtype 4 or 3", w.saga.ID, w.in.Name(), fieldID, kindOf(raw.Lookup(fieldID)))
}

func (w sagaWork) readHead(raw bson.Raw) error {
	var head sagaHead
	if err := bson.Unmarshal(raw, &head); err != nil {
		return err
	}
	version, ok := raw.Lookup(w.version).AsInt64OK()
	if !ok {
		return storekit.InvalidConfig("SagaOptions.VersionField is %q: the saga's document has no number there", w.version)
	}
	w.saga.ID, w.saga.Version, w.saga.Finished = outmill.WorkItemID(head.ID), version, head.Finished
	w.saga.CreatedAt, w.saga.UpdatedAt = utc(head.CreatedAt), utc(head.UpdatedAt)
	return nil
}
