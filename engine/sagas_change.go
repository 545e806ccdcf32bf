package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// InsertSaga stores a new saga. See roles.Sagas.
func (e *Engine) InsertSaga(ctx context.Context, saga *roles.Saga, state any, _ roles.SagaOptions) error {
	const operation = "insert saga"
	text, err := e.sagaText(saga, state)
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	id := saga.ID
	if id.IsZero() {
		id = outmill.NewWorkItemID()
	}
	return e.changeSaga(ctx, operation, saga, nil, &StoredSaga{ID: id, Version: 1, Finished: saga.Finished, State: json.RawMessage(text)})
}

// UpdateSaga stores the state of a saga. See roles.Sagas.
func (e *Engine) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	const operation = "update saga"
	text, err := e.sagaText(saga, state)
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	if options.KeepUnknown {
		if text, err = e.mergedSaga(ctx, operation, saga, state, text); err != nil {
			return err
		}
	}
	next := StoredSaga{ID: saga.ID, Version: saga.Version + 1, Finished: saga.Finished, State: json.RawMessage(text)}
	return e.changeSaga(ctx, operation, saga, asRead(saga), &next)
}

// DeleteSaga deletes a saga. See roles.Sagas.
func (e *Engine) DeleteSaga(ctx context.Context, saga *roles.Saga, _ roles.SagaOptions) error {
	const operation = "delete saga"
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return e.explain(ctx, operation, err)
	}
	return e.changeSaga(ctx, operation, saga, asRead(saga), nil)
}

// sagaText checks a saga, and encodes its state.
func (e *Engine) sagaText(saga *roles.Saga, state any) (string, error) {
	text, err := storekit.EncodeSagaState(state, e.config.MaxPayload)
	return text, cmp.Or(storekit.CheckSaga(saga.Type, saga.Correlation), err)
}

// mergedSaga returns the new state with the fields of the stored one that its type does not have. The update looks at the version again.
func (e *Engine) mergedSaga(ctx context.Context, operation string, saga *roles.Saga, state any, text string) (string, error) {
	return valueOf(ctx, e.viewTx, operation, func(ctx context.Context, t *tx) (string, error) {
		stored, err := t.versionOf(ctx, false, saga)
		if err != nil {
			return "", err
		}
		return storekit.MergeSagaState(string(stored.State), text, state, e.config.MaxPayload)
	})
}

// asRead is what a change compares with the stored saga.
func asRead(saga *roles.Saga) *StoredSaga { return &StoredSaga{ID: saga.ID, Version: saga.Version} }

// changeSaga changes a saga, and fills it. Without was it is new, and without next it is deleted.
func (e *Engine) changeSaga(ctx context.Context, operation string, saga *roles.Saga, was, next *StoredSaga) error {
	swap, err := swapOf(saga, was, next)
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	done, ended, err := e.endWith(ctx, swap)
	switch {
	case !ended:
		done, err = valueOf(ctx, e.inTx, operation, func(ctx context.Context, t *tx) (driver.Swapped, error) { return t.swap(ctx, saga, swap) })
	case err == nil && !done.Found && was == nil:
		err = e.explain(ctx, operation, roles.ErrSagaExists)
	case err == nil && !done.Found:
		err = e.explain(ctx, operation, roles.ErrSagaConflict)
	default:
		err = e.explain(ctx, operation, err)
	}
	if err == nil && next != nil {
		saga.ID, saga.Version, saga.CreatedAt, saga.UpdatedAt = next.ID, next.Version, done.Made.Of(), done.At.Of()
	}
	return err
}

// endWith has the driver end the transaction of ctx with the change, if this is its last call.
func (e *Engine) endWith(ctx context.Context, swap driver.Swap) (done driver.Swapped, ended bool, err error) {
	ender, can := e.db.(driver.Ender)
	if !can || !storekit.IsLast(ctx, e) || e.life.Usable(ctx) != nil {
		return done, false, nil //nolint:nilerr // the call that follows has the error, too
	}
	caller, err := e.db.TxOf(ctx)
	if err != nil || caller == nil {
		return done, false, nil //nolint:nilerr // as above
	}
	return ender.End(ctx, caller, swap)
}

// swap makes the change in a transaction that goes on.
func (t *tx) swap(ctx context.Context, saga *roles.Saga, s driver.Swap) (done driver.Swapped, err error) {
	s = s.Stamped(t.now)
	done = driver.Swapped{Found: true, Made: t.now, At: t.now}
	if s.Was == "" {
		s.Entry.Made = t.now
		added, err := t.Add(ctx, 0, s.Entry)
		if err == nil && !added {
			err = roles.ErrSagaExists
		}
		if err != nil {
			return done, busyAs(err, roles.ErrSagaExists)
		}
		return done, t.Put(ctx, s.Put...)
	}
	stored, err := t.versionOf(ctx, true, saga)
	switch {
	case err != nil:
		return done, err
	case s.Gone:
		return done, t.Delete(ctx, append(s.Delete, s.Entry)...)
	}
	s.Entry.Made, done.Made = stored.entry.Made, stored.entry.Made
	err = t.Put(ctx, append(s.Put, s.Entry)...)
	if err == nil && stored.Finished {
		err = t.Delete(ctx, s.Delete...)
	}
	return done, err
}

// swapOf is the change with the entries that lead to the saga. An update ends the retention.
func swapOf(saga *roles.Saga, was, next *StoredSaga) (s driver.Swap, err error) {
	s.Entry = sagaKey(saga.Type, saga.Correlation)
	finished := driver.Entry{Kind: finishedSagas(saga.Type), Key: saga.Correlation, Value: s.Entry.Key}
	if was != nil {
		if s.Was, err = asText(*was); err != nil {
			return s, err
		}
		s.Was, _, _ = strings.Cut(s.Was, `"Finished":`)
	}
	if next == nil {
		s.Gone, s.Delete = true, []driver.Entry{finished, idIndex(was.ID, "")}
		return s, nil
	}
	text, err := asText(*next)
	s.Entry.Value, s.Behind, _ = strings.Cut(text, `"Updated":0`)
	s.Entry.Value += `"Updated":`
	if was == nil {
		s.Put = append(s.Put, idIndex(next.ID, s.Entry.Key))
	}
	if next.Finished {
		finished.At = driver.AtSwap
		s.Put = append(s.Put, finished)
	} else if was != nil {
		s.Delete = append(s.Delete, finished)
	}
	return s, err
}
