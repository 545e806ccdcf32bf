package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

var _ storekit.SagaRetention = (*Store)(nil)

const (
	sqlRetainSaga = `UPDATE {p:sagas} SET delete_at = ?5 WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4 AND finished = 1`

	sqlDeleteOldSagas = `DELETE FROM {p:sagas} WHERE id IN (SELECT id FROM {p:sagas} INDEXED BY {p:sagas_delete}
	WHERE delete_at <= ?1 ORDER BY delete_at LIMIT ?2)`
)

// RetainSaga sets how long a finished saga is kept. See storekit.SagaRetention.
func (s *Store) RetainSaga(ctx context.Context, saga *storekit.Saga, retention time.Duration, _ storekit.SagaOptions) error {
	const operation = "retain saga"
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.explain(ctx, operation, err)
	}
	h, err := s.txOf(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	retain := func(ctx context.Context, t *txn) error {
		n, err := t.exec(ctx, sqlRetainSaga, saga.Type, saga.Correlation, saga.ID.String(), saga.Version, t.after(retention))
		if err == nil && n == 0 {
			err = storekit.ErrSagaConflict
		}
		return err
	}
	if h != nil {
		return s.within(ctx, operation, h, retain)
	}
	return s.write(ctx, operation, retain)
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// storekit.SagaRetention.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		return t.exec(ctx, sqlDeleteOldSagas, t.now, limit)
	})
}
