package sqlkit

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// SagaStore is what [SagaEngine] needs of a store.
type SagaStore interface {
	// InSagas runs work in the transaction of ctx, or else in one of the store's own, which
	// it commits, and may then run work more than once. reads says that work changes nothing.
	InSagas(ctx context.Context, operation string, reads bool, work func(ctx context.Context, tx SagaTx) error) error
	// Explain adds to an error which operation of which store it is from.
	Explain(ctx context.Context, operation string, err error) error
}

// SagaTx is a transaction of a store that works on its table of sagas. Where a saga is
// changed it is the one with the type, the correlation value, the id and the version of
// the argument.
type SagaTx interface {
	// Find reads a saga and its state, or reports that there is none.
	Find(ctx context.Context, kind, correlation string) (saga *roles.Saga, state string, found bool, err error)
	// Before reads up to limit sagas of all types with smaller ids, the largest id first, without
	// their states.
	Before(ctx context.Context, id outmill.WorkItemID, limit int) ([]*roles.Saga, error)
	// State reads the state of a saga, or reports that its version is gone.
	State(ctx context.Context, saga *roles.Saga) (state string, found bool, err error)
	// Insert writes a saga with version 1, or reports that its type and correlation value
	// are taken. at is the database's time.
	Insert(ctx context.Context, saga *roles.Saga, state string) (at time.Time, inserted bool, err error)
	// Update writes the state, Finished and the next version, or reports that the version is gone.
	Update(ctx context.Context, saga *roles.Saga, state string) (at time.Time, updated bool, err error)
	// Delete deletes a saga, or reports that its version is gone.
	Delete(ctx context.Context, saga *roles.Saga) (deleted bool, err error)
	// DeleteFinished deletes up to limit sagas of the type that finished longer ago than
	// retention.
	DeleteFinished(ctx context.Context, kind string, retention time.Duration, limit int) (int, error)
}

// SagaEngine keeps the calls of [roles.Sagas], without RetainSaga and DeleteOldSagas, for a store that has all sagas in one
// table, with their states as JSON: it checks, encodes and decides. A store embeds it. It
// may be used concurrently.
type SagaEngine struct {
	sagas    SagaStore
	maxState int
}

// NewSagaEngine makes the engine of a store. maxState bounds a state, in bytes; 0 is no
// limit.
func NewSagaEngine(store SagaStore, maxState int) SagaEngine { return SagaEngine{store, maxState} }

// FindSaga reads a saga. See [roles.Sagas].
func (e SagaEngine) FindSaga(ctx context.Context, kind, correlation string, state any, _ roles.SagaOptions) (*roles.Saga, error) {
	const operation = "find saga"
	err := storekit.CheckSaga(kind, correlation)
	if err == nil {
		err = storekit.CheckSagaState(state)
	}
	if err != nil {
		return nil, e.sagas.Explain(ctx, operation, err)
	}
	var saga *roles.Saga
	err = e.sagas.InSagas(ctx, operation, true, func(ctx context.Context, tx SagaTx) error {
		found, text, is, err := tx.Find(ctx, kind, correlation)
		switch {
		case err != nil:
			return err
		case !is:
			return roles.ErrSagaNotFound
		}
		found.Type, found.Correlation = kind, correlation
		saga = found
		return storekit.DecodeSagaState(text, state)
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// ListSagas lists sagas. See [roles.Sagas].
func (e SagaEngine) ListSagas(ctx context.Context, query roles.SagaQuery, _ roles.SagaOptions) (roles.SagaPage, error) {
	const operation = "list sagas"
	if err := storekit.CheckListSagas(query); err != nil {
		return roles.SagaPage{Next: query.After}, e.sagas.Explain(ctx, operation, err)
	}
	page := roles.SagaPage{Next: query.After}
	err := e.sagas.InSagas(ctx, operation, true, func(ctx context.Context, tx SagaTx) (err error) {
		page, err = storekit.PageOfSagas(query, func(id outmill.WorkItemID, limit int) ([]*roles.Saga, error) {
			return tx.Before(ctx, id, limit)
		})
		return err
	})
	return page, err
}

// InsertSaga stores a new saga. See [roles.Sagas].
func (e SagaEngine) InsertSaga(ctx context.Context, saga *roles.Saga, state any, _ roles.SagaOptions) error {
	const operation = "insert saga"
	text, err := e.encode(saga, state)
	if err != nil {
		return e.sagas.Explain(ctx, operation, err)
	}
	started := *saga
	if started.ID.IsZero() {
		started.ID = outmill.NewWorkItemID()
	}
	err = e.sagas.InSagas(ctx, operation, false, func(ctx context.Context, tx SagaTx) error {
		at, inserted, err := tx.Insert(ctx, &started, text)
		started.Version, started.CreatedAt, started.UpdatedAt = 1, at, at
		return orElse(roles.ErrSagaExists, inserted, err)
	})
	if err == nil {
		*saga = started
	}
	return err
}

// UpdateSaga stores the state of a saga. See [roles.Sagas].
func (e SagaEngine) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	const operation = "update saga"
	text, err := e.encode(saga, state)
	if err != nil {
		return e.sagas.Explain(ctx, operation, err)
	}
	var now time.Time
	err = e.sagas.InSagas(ctx, operation, false, func(ctx context.Context, tx SagaTx) error {
		next := text
		if options.KeepUnknown {
			stored, found, err := tx.State(ctx, saga)
			if err := orElse(roles.ErrSagaConflict, found, err); err != nil {
				return err
			}
			if next, err = storekit.MergeSagaState(stored, text, state, e.maxState); err != nil {
				return err
			}
		}
		at, updated, err := tx.Update(ctx, saga, next)
		now = at
		return orElse(roles.ErrSagaConflict, updated, err)
	})
	if err == nil {
		saga.Version, saga.UpdatedAt = saga.Version+1, now
	}
	return err
}

// DeleteSaga deletes a saga. See [roles.Sagas].
func (e SagaEngine) DeleteSaga(ctx context.Context, saga *roles.Saga, _ roles.SagaOptions) error {
	const operation = "delete saga"
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return e.sagas.Explain(ctx, operation, err)
	}
	return e.sagas.InSagas(ctx, operation, false, func(ctx context.Context, tx SagaTx) error {
		deleted, err := tx.Delete(ctx, saga)
		return orElse(roles.ErrSagaConflict, deleted, err)
	})
}

// PrepareSagas does nothing, because Ensure makes the table. See [roles.Sagas].
func (e SagaEngine) PrepareSagas(ctx context.Context, kinds ...string) error {
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return e.sagas.Explain(ctx, "prepare sagas", err)
		}
	}
	return nil
}

// DeleteFinishedSagas deletes sagas that finished long ago. See [roles.Sagas].
func (e SagaEngine) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	const operation = "delete finished sagas"
	if err := storekit.CheckDeleteFinishedSagas(kind, retention, limit); err != nil {
		return 0, e.sagas.Explain(ctx, operation, err)
	}
	deleted := 0
	err := e.sagas.InSagas(ctx, operation, false, func(ctx context.Context, tx SagaTx) (err error) {
		deleted, err = tx.DeleteFinished(ctx, kind, retention, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

func (e SagaEngine) encode(saga *roles.Saga, state any) (text string, err error) {
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return "", err
	}
	return storekit.EncodeSagaState(state, e.maxState)
}

// orElse is err, or none where a statement has changed or found nothing.
func orElse(none error, some bool, err error) error {
	if err == nil && !some {
		return none
	}
	return err
}
