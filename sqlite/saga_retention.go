package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlRetainSaga = `UPDATE {p:sagas} SET delete_at = ?5 WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4 AND finished = 1`

	sqlDeleteOldSagas = `DELETE FROM {p:sagas} WHERE id IN (SELECT id FROM {p:sagas} INDEXED BY {p:sagas_delete}
	WHERE delete_at <= ?1 ORDER BY delete_at LIMIT ?2)`
)

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Store) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, _ roles.SagaOptions) error {
	const operation = "retain saga"
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.explain(ctx, operation, err)
	}
	return sagaKeeping{s}.InSagas(ctx, operation, false, func(ctx context.Context, tx sqlkit.SagaTx) error {
		t := tx.(sagaTx).t
		n, err := t.exec(ctx, sqlRetainSaga, append(versionOfSaga(saga), t.after(retention))...)
		if err == nil && n == 0 {
			err = roles.ErrSagaConflict
		}
		return err
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// roles.Sagas.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		return t.exec(ctx, sqlDeleteOldSagas, t.now, limit)
	})
}
