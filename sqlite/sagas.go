package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ storekit.Sagas = (*Store)(nil)

const (
	sqlFindSaga = `SELECT id, version, state, finished, created_at, updated_at FROM {p:sagas} WHERE type = ?1 AND correlation = ?2`

	sqlSagaState = `SELECT state FROM {p:sagas} WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlInsertSaga = `INSERT INTO {p:sagas} (id, type, correlation, version, state, finished, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?6) ON CONFLICT DO NOTHING`

	sqlUpdateSaga = `UPDATE {p:sagas} SET version = version + 1, state = ?5, finished = ?6, updated_at = ?7
WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlDeleteSaga = `DELETE FROM {p:sagas} WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlDeleteFinishedSagas = `DELETE FROM {p:sagas} WHERE id IN (SELECT id FROM {p:sagas} INDEXED BY {p:sagas_finished}
	WHERE type = ?1 AND finished = 1 AND updated_at <= ?2 ORDER BY updated_at LIMIT ?3)`
)

// FindSaga reads a saga. See storekit.Sagas.
func (s *Store) FindSaga(ctx context.Context, kind, correlation string, state any, _ storekit.SagaOptions) (*storekit.Saga, error) {
	saga := &storekit.Saga{Type: kind, Correlation: correlation}
	check := func() error {
		if err := storekit.CheckSaga(kind, correlation); err != nil {
			return err
		}
		return storekit.CheckSagaState(state)
	}
	err := s.sagaWork(ctx, "find saga", check, s.read, func(ctx context.Context, t *txn) error {
		var id, text string
		var created, updated int64
		found, err := t.one(ctx, []any{&id, &saga.Version, &text, &saga.Finished, &created, &updated}, sqlFindSaga, kind, correlation)
		switch {
		case err != nil:
			return err
		case !found:
			return storekit.ErrSagaNotFound
		}
		saga.CreatedAt, saga.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
		if err := saga.ID.Scan(id); err != nil {
			return err
		}
		return storekit.DecodeSagaState(text, state)
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// InsertSaga stores a new saga. See storekit.Sagas.
func (s *Store) InsertSaga(ctx context.Context, saga *storekit.Saga, state any, _ storekit.SagaOptions) error {
	var text string
	var now int64
	id := saga.ID
	if id.IsZero() {
		id = outmill.NewWorkItemID()
	}
	check := func() (err error) {
		text, err = s.checkSaga(saga, state)
		return err
	}
	err := s.sagaWork(ctx, "insert saga", check, s.write, func(ctx context.Context, t *txn) error {
		now = t.now
		return changedSaga(storekit.ErrSagaExists)(t.exec(ctx, sqlInsertSaga, id.String(), saga.Type, saga.Correlation, text, saga.Finished, now))
	})
	if err == nil {
		saga.ID, saga.Version, saga.CreatedAt, saga.UpdatedAt = id, 1, time.UnixMicro(now).UTC(), time.UnixMicro(now).UTC()
	}
	return err
}

// UpdateSaga stores the state of a saga. See storekit.Sagas.
func (s *Store) UpdateSaga(ctx context.Context, saga *storekit.Saga, state any, options storekit.SagaOptions) error {
	var text string
	var now int64
	check := func() (err error) {
		text, err = s.checkSaga(saga, state)
		return err
	}
	err := s.sagaWork(ctx, "update saga", check, s.write, func(ctx context.Context, t *txn) error {
		next := text
		if options.KeepUnknown {
			var stored string
			found, err := t.one(ctx, []any{&stored}, sqlSagaState, saga.Type, saga.Correlation, saga.ID.String(), saga.Version)
			switch {
			case err != nil:
				return err
			case !found:
				return storekit.ErrSagaConflict
			}
			if next, err = storekit.MergeSagaState(stored, text, state, s.config.MaxPayload); err != nil {
				return err
			}
		}
		now = t.now
		return changedSaga(storekit.ErrSagaConflict)(
			t.exec(ctx, sqlUpdateSaga, saga.Type, saga.Correlation, saga.ID.String(), saga.Version, next, saga.Finished, now))
	})
	if err == nil {
		saga.Version, saga.UpdatedAt = saga.Version+1, time.UnixMicro(now).UTC()
	}
	return err
}

// DeleteSaga deletes a saga. See storekit.Sagas.
func (s *Store) DeleteSaga(ctx context.Context, saga *storekit.Saga, _ storekit.SagaOptions) error {
	check := func() error { return storekit.CheckSaga(saga.Type, saga.Correlation) }
	return s.sagaWork(ctx, "delete saga", check, s.write, func(ctx context.Context, t *txn) error {
		return changedSaga(storekit.ErrSagaConflict)(t.exec(ctx, sqlDeleteSaga, saga.Type, saga.Correlation, saga.ID.String(), saga.Version))
	})
}

// PrepareSagas does nothing, because Ensure makes the table. See storekit.Sagas.
func (s *Store) PrepareSagas(ctx context.Context, kinds ...string) error {
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return s.explain(ctx, "prepare sagas", err)
		}
	}
	return nil
}

// DeleteFinishedSagas deletes sagas that finished long ago. See storekit.Sagas.
func (s *Store) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	check := func() error { return storekit.CheckDeleteFinishedSagas(kind, retention, limit) }
	err = s.sagaWork(ctx, "delete finished sagas", check, s.write, func(ctx context.Context, t *txn) (err error) {
		deleted, err = t.exec(ctx, sqlDeleteFinishedSagas, kind, t.now-retention.Microseconds(), limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// sagaWork runs fn in the transaction of the context, or else by alone in one of the
// store's own.
func (s *Store) sagaWork(ctx context.Context, operation string, check func() error,
	alone func(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error,
	fn func(ctx context.Context, t *txn) error,
) error {
	err := check()
	var h sqlkit.Handle
	if err == nil {
		h, err = s.txOf(ctx)
	}
	switch {
	case err != nil:
		return s.explain(ctx, operation, err)
	case h != nil:
		return s.within(ctx, operation, h, fn)
	}
	return alone(ctx, operation, fn)
}

func (s *Store) checkSaga(saga *storekit.Saga, state any) (text string, err error) {
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return "", err
	}
	return storekit.EncodeSagaState(state, s.config.MaxPayload)
}

// changedSaga returns none where a statement has changed no row.
func changedSaga(none error) func(n int, err error) error {
	return func(n int, err error) error {
		if err == nil && n == 0 {
			return none
		}
		return err
	}
}
