package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A saga is an entry of sagaKind. Its key is that of the type and the correlation value, Made when it was
// started, and Value a StoredSaga. At is the end of its retention.
//
// Two kinds of entries lead to it: sagaByID, whose key turns the order of the ids round, so that a Range meets
// the newest first; and one kind for each type that has the finished sagas, whose At is when they were updated.
// The Value of both is the key of the saga. They are written together with it.
const (
	sagaKind = "saga"
	sagaByID = "saga by id"
)

func finishedSagas(kind string) string { return "finished saga " + kind }

// StoredSaga is the Value of a saga's entry, as JSON. It is exported for users' unique indexes of the State, and
// for drivers that give sagas a table of their own. The order of its fields is that of its parts in a driver.Swap.
type StoredSaga struct {
	ID       outmill.WorkItemID
	Version  int64
	Finished bool
	Updated  driver.Time
	State    json.RawMessage
}

// SagaState returns the type and the state of the saga that an entry has, and nothing of other entries. It is for
// tests that make a field of the state unique.
func SagaState(entry driver.Entry) (kind string, state json.RawMessage) {
	if entry.Kind != sagaKind {
		return "", nil
	}
	found, _ := valueAs[StoredSaga](entry)
	kind, _ = parts(entry.Key)
	return kind, found.State
}

func sagaKey(kind, correlation string) driver.Entry {
	return driver.Entry{Kind: sagaKind, Key: joined(kind, correlation)}
}

// idIndex is the entry of sagaByID.
func idIndex(id outmill.WorkItemID, key string) driver.Entry {
	for i := range id {
		id[i] = ^id[i]
	}
	return driver.Entry{Kind: sagaByID, Key: id.String(), Value: key}
}

// storedSaga is a saga as its entry has it.
type storedSaga struct {
	entry driver.Entry
	StoredSaga
}

func readSaga(entry driver.Entry) (*storedSaga, error) {
	stored, err := valueAs[StoredSaga](entry)
	return &storedSaga{entry, stored}, err
}

func (s *storedSaga) saga() *roles.Saga {
	kind, correlation := parts(s.entry.Key)
	return &roles.Saga{
		ID: s.ID, Type: kind, Correlation: correlation, Version: s.Version, Finished: s.Finished,
		CreatedAt: s.entry.Made.Of(), UpdatedAt: s.Updated.Of(),
	}
}

// finished is the entry of the finished saga.
func (s *storedSaga) finished() driver.Entry {
	kind, correlation := parts(s.entry.Key)
	return driver.Entry{Kind: finishedSagas(kind), Key: correlation, At: s.Updated, Value: s.entry.Key}
}

// FindSaga reads a saga. See roles.Sagas.
func (e *Engine) FindSaga(ctx context.Context, kind, correlation string, state any, _ roles.SagaOptions) (*roles.Saga, error) {
	const operation = "find saga"
	view := e.checked(cmp.Or(storekit.CheckSaga(kind, correlation), storekit.CheckSagaState(state)), e.viewTx)
	found, err := valueOf(ctx, view, operation, func(ctx context.Context, t *tx) (*storedSaga, error) {
		found, err := t.saga(ctx, false, sagaKey(kind, correlation))
		if err == nil && found == nil {
			err = roles.ErrSagaNotFound
		}
		return found, err
	})
	if err != nil {
		return nil, err
	}
	if err := storekit.DecodeSagaState(string(found.State), state); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	return found.saga(), nil
}

// saga returns the saga with this key, or nil.
func (t *tx) saga(ctx context.Context, lock bool, key driver.Entry) (*storedSaga, error) {
	found, err := t.sagas(ctx, lock, key)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// sagas returns the sagas with these keys that exist, in any order.
func (t *tx) sagas(ctx context.Context, lock bool, keys ...driver.Entry) ([]*storedSaga, error) {
	entries, err := t.Entries(ctx, lock, keys...)
	if err != nil {
		return nil, err
	}
	return mappedOr(entries, readSaga)
}

// byIndex has the entries of an index lead to their sagas.
func byIndex(index []driver.Entry) []driver.Entry {
	return mapped(index, func(entry driver.Entry) driver.Entry { return driver.Entry{Kind: sagaKind, Key: entry.Value} })
}

// ListSagas lists sagas. See roles.Sagas.
func (e *Engine) ListSagas(ctx context.Context, query roles.SagaQuery, _ roles.SagaOptions) (page roles.SagaPage, err error) {
	page.Next = query.After
	err = e.checked(storekit.CheckListSagas(query), e.viewTx)(ctx, "list sagas", func(ctx context.Context, t *tx) (err error) {
		page, err = storekit.PageOfSagas(query, func(before outmill.WorkItemID, limit int) ([]*roles.Saga, error) {
			index, err := t.Range(ctx, sagaByID, idIndex(before, "").Key, limit)
			if err != nil {
				return nil, err
			}
			found, err := t.sagas(ctx, false, byIndex(index)...)
			slices.SortFunc(found, func(a, b *storedSaga) int { return byWorkItem(b.ID, a.ID) })
			return mapped(found, (*storedSaga).saga), err
		})
		return err
	})
	return page, err
}

// versionOf returns the stored saga, if it has still this version. With lock it locks it.
func (t *tx) versionOf(ctx context.Context, lock bool, saga *roles.Saga) (*storedSaga, error) {
	found, err := t.saga(ctx, lock, sagaKey(saga.Type, saga.Correlation))
	if err == nil && (found == nil || found.ID != saga.ID || found.Version != saga.Version) {
		err = roles.ErrSagaConflict
	}
	if err != nil {
		return nil, busyAs(err, roles.ErrSagaConflict)
	}
	return found, nil
}

// deleteSagas deletes sagas with the entries that lead to them.
func (t *tx) deleteSagas(ctx context.Context, sagas ...*storedSaga) error {
	var gone []driver.Entry
	for _, s := range sagas {
		finished := s.finished()
		s.entry.At, finished.At = 0, 0
		gone = append(gone, s.entry, idIndex(s.ID, ""), finished)
	}
	return t.Delete(ctx, gone...)
}

// PrepareSagas only checks the names, because there is nothing to create. See roles.Sagas.
func (e *Engine) PrepareSagas(ctx context.Context, kinds ...string) error {
	var err error
	for _, kind := range kinds {
		err = cmp.Or(err, storekit.CheckSagaType(kind))
	}
	return e.explain(ctx, "prepare sagas", err)
}

// DeleteFinishedSagas deletes sagas that finished long ago. See roles.Sagas.
func (e *Engine) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	update := e.checked(storekit.CheckDeleteFinishedSagas(kind, retention, limit), e.update)
	return valueOf(ctx, update, "delete finished sagas", func(ctx context.Context, t *tx) (int, error) {
		old, err := t.Old(ctx, finishedSagas(kind), t.now-driver.Time(retention.Microseconds()), limit)
		if err != nil || len(old) == 0 {
			return 0, err
		}
		return t.deleteSagasIf(ctx, byIndex(old), func(s *storedSaga) bool { return s.Finished && s.Updated.After(retention) <= t.now })
	})
}

// deleteSagasIf locks the sagas with these keys, deletes those for which a condition holds, and returns how many
// that were.
func (t *tx) deleteSagasIf(ctx context.Context, keys []driver.Entry, condition func(s *storedSaga) bool) (int, error) {
	found, err := t.sagas(ctx, true, keys...)
	if err != nil {
		return 0, err
	}
	gone := slices.DeleteFunc(found, func(s *storedSaga) bool { return !condition(s) })
	return len(gone), t.deleteSagas(ctx, gone...)
}

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (e *Engine) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, _ roles.SagaOptions) error {
	return e.checked(storekit.CheckRetainSaga(saga, retention), e.inTx)(ctx, "retain saga", func(ctx context.Context, t *tx) error {
		found, err := t.versionOf(ctx, true, saga)
		if err == nil && !found.Finished {
			err = roles.ErrSagaConflict
		}
		if err != nil {
			return err
		}
		found.entry.At = t.after(retention)
		return t.Put(ctx, found.entry)
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See roles.Sagas.
func (e *Engine) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return e.count(ctx, "delete old sagas", limit, func(ctx context.Context, t *tx) (int, error) {
		old, err := t.Old(ctx, sagaKind, t.now, limit)
		if err != nil || len(old) == 0 {
			return 0, err
		}
		return t.deleteSagasIf(ctx, old, func(s *storedSaga) bool { return s.entry.At != 0 && s.entry.At <= t.now })
	})
}
