package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// sagaKey identifies a saga.
type sagaKey struct{ kind, correlation string }

// savedSaga is a saga with its state as JSON.
type savedSaga struct {
	storekit.Saga
	state string
	// deleteAt is the end of the retention; zero is never.
	deleteAt time.Time
}

func keyOf(saga *storekit.Saga) sagaKey { return sagaKey{saga.Type, saga.Correlation} }

// FindSaga reads a saga. See storekit.Sagas.
func (s *Store) FindSaga(ctx context.Context, kind, correlation string, state any, _ storekit.SagaOptions) (saga *storekit.Saga,
	err error) {
	const operation = "find saga"
	err = storekit.CheckSaga(kind, correlation)
	if err == nil {
		err = storekit.CheckSagaState(state)
	}
	if err != nil {
		return nil, failed(operation, err)
	}
	err = s.inTx(ctx, operation, func(t *Tx, _ time.Time) error {
		found := t.db.sagas.get(t, sagaKey{kind, correlation})
		if found == nil {
			return storekit.ErrSagaNotFound
		}
		saga = &found.Saga
		return json.Unmarshal([]byte(found.state), state)
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// ListSagas lists sagas. See storekit.Sagas.
func (s *Store) ListSagas(ctx context.Context, query storekit.SagaQuery, _ storekit.SagaOptions) (page storekit.SagaPage, err error) {
	const operation = "list sagas"
	page.Next = query.After
	if err := storekit.CheckListSagas(query); err != nil {
		return page, failed(operation, err)
	}
	err = s.inTx(ctx, operation, func(t *Tx, _ time.Time) (err error) {
		page, err = storekit.PageOfSagas(query, func(id outmill.WorkItemID, limit int) ([]*storekit.Saga, error) {
			sagas := t.sagas(func(saga *storekit.Saga) bool { return bytes.Compare(saga.ID[:], id[:]) < 0 })
			slices.SortFunc(sagas, func(a, b *storekit.Saga) int { return bytes.Compare(b.ID[:], a.ID[:]) })
			return sagas[:min(len(sagas), limit)], nil
		})
		return err
	})
	return page, err
}

// sagas returns those that match, as the transaction sees them.
func (t *Tx) sagas(match func(*storekit.Saga) bool) (found []*storekit.Saga) {
	keys := map[sagaKey]struct{}{}
	for key := range t.db.sagas.rows {
		keys[key] = struct{}{}
	}
	for key := range t.db.sagas.open {
		keys[key] = struct{}{}
	}
	for key := range keys {
		if saved := t.db.sagas.get(t, key); saved != nil && match(&saved.Saga) {
			found = append(found, &saved.Saga)
		}
	}
	return found
}

// InsertSaga stores a new saga. See storekit.Sagas.
func (s *Store) InsertSaga(ctx context.Context, saga *storekit.Saga, state any, _ storekit.SagaOptions) error {
	next := *saga
	if next.ID.IsZero() {
		next.ID = outmill.NewWorkItemID()
	}
	return s.save(ctx, "insert saga", saga, state, func(t *Tx, now time.Time, text string) (*savedSaga, error) {
		if t.db.sagas.holder(t, keyOf(saga)) != nil || t.db.sagas.get(t, keyOf(saga)) != nil {
			return nil, storekit.ErrSagaExists
		}
		next.Version, next.CreatedAt, next.UpdatedAt = 1, now, now
		return &savedSaga{Saga: next, state: text}, nil
	})
}

// UpdateSaga stores the state of a saga. See storekit.Sagas.
func (s *Store) UpdateSaga(ctx context.Context, saga *storekit.Saga, state any, options storekit.SagaOptions) error {
	next := *saga
	return s.save(ctx, "update saga", saga, state, func(t *Tx, now time.Time, text string) (*savedSaga, error) {
		was, err := t.current(saga)
		if err == nil && options.KeepUnknown {
			text, err = storekit.MergeSagaState(was.state, text, state, 0)
		}
		if err != nil {
			return nil, err
		}
		next.Version, next.CreatedAt, next.UpdatedAt = was.Version+1, was.CreatedAt, now
		return &savedSaga{Saga: next, state: text}, nil
	})
}

// save checks and encodes the state, and stores the result of change.
func (s *Store) save(ctx context.Context, operation string, saga *storekit.Saga, state any,
	change func(t *Tx, now time.Time, text string) (*savedSaga, error),
) error {
	err := storekit.CheckSaga(saga.Type, saga.Correlation)
	var text string
	if err == nil {
		text, err = storekit.EncodeSagaState(state, 0)
	}
	if err != nil {
		return failed(operation, err)
	}
	return s.inTx(ctx, operation, func(t *Tx, now time.Time) error {
		changed, err := change(t, now, text)
		if err == nil {
			err = t.guard(changed)
		}
		if err != nil {
			return err
		}
		t.db.sagas.set(t, keyOf(saga), changed)
		*saga = changed.Saga
		return nil
	})
}

// current returns the stored saga if it still has this version.
func (t *Tx) current(saga *storekit.Saga) (*savedSaga, error) {
	found := t.db.sagas.get(t, keyOf(saga))
	if t.db.sagas.holder(t, keyOf(saga)) != nil || found == nil || found.ID != saga.ID || found.Version != saga.Version {
		return nil, storekit.ErrSagaConflict
	}
	return found, nil
}

// DeleteSaga deletes a saga. See storekit.Sagas.
func (s *Store) DeleteSaga(ctx context.Context, saga *storekit.Saga, _ storekit.SagaOptions) error {
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return failed("delete saga", err)
	}
	return s.inTx(ctx, "delete saga", func(t *Tx, _ time.Time) error {
		if _, err := t.current(saga); err != nil {
			return err
		}
		t.db.sagas.set(t, keyOf(saga), nil)
		return nil
	})
}

// PrepareSagas only checks the names, because there is nothing to create. See storekit.Sagas.
func (*Store) PrepareSagas(_ context.Context, kinds ...string) error {
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return failed("prepare sagas", err)
		}
	}
	return nil
}

// DeleteFinishedSagas deletes sagas that finished long ago. See storekit.Sagas.
func (s *Store) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	if err := storekit.CheckDeleteFinishedSagas(kind, retention, limit); err != nil {
		return 0, failed("delete finished sagas", err)
	}
	return s.count(ctx, "delete finished sagas", limit, func(d *Database, now time.Time) int {
		return d.sagas.deleteUpTo(limit, func(key sagaKey, saga savedSaga) bool {
			return key.kind == kind && saga.Finished && now.Sub(saga.UpdatedAt) >= retention
		})
	})
}

// RetainSaga sets how long a finished saga is kept. See storekit.SagaRetention.
func (s *Store) RetainSaga(ctx context.Context, saga *storekit.Saga, retention time.Duration, _ storekit.SagaOptions) error {
	const operation = "retain saga"
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return failed(operation, err)
	}
	return s.inTx(ctx, operation, func(t *Tx, now time.Time) error {
		found, err := t.current(saga)
		if err == nil && !found.Finished {
			err = storekit.ErrSagaConflict
		}
		if err != nil {
			return err
		}
		retained := *found
		retained.deleteAt = now.Add(retention)
		t.db.sagas.set(t, keyOf(saga), &retained)
		return nil
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// storekit.SagaRetention.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "delete old sagas", limit, func(d *Database, now time.Time) int {
		return d.sagas.deleteUpTo(limit, func(_ sagaKey, saga savedSaga) bool {
			return !saga.deleteAt.IsZero() && !saga.deleteAt.After(now)
		})
	})
}
