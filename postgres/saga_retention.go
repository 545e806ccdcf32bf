package postgres

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ storekit.SagaRetention = (*Store)(nil)

const (
	sqlRetainSaga = `UPDATE {p:sagas} SET delete_at = statement_timestamp() + $5::bigint * interval '1 microsecond'` + ofSaga + ` AND finished`

	// sqlDeleteOldSagas takes no locks beforehand, so a janitor needs no UPDATE.
	sqlDeleteOldSagas = `WITH gone AS (DELETE FROM {p:sagas} WHERE id = ANY (ARRAY(SELECT id FROM {p:sagas}
	WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT $1::bigint)) AND delete_at <= statement_timestamp() RETURNING 1)
SELECT count(*) FROM gone`
)

// RetainSaga says how long a finished saga is kept. See storekit.SagaRetention.
func (s *Store) RetainSaga(ctx context.Context, saga *storekit.Saga, retention time.Duration, _ storekit.SagaOptions) error {
	check := func() error { return storekit.CheckRetainSaga(saga, retention) }
	return s.sagaWork(ctx, "retain saga", check, func(ctx context.Context, r runner) error {
		return changeSaga(ctx, r, storekit.ErrSagaConflict, step{
			template: sqlRetainSaga, args: []any{saga.Type, saga.Correlation, saga.ID.String(), saga.Version, sqlkit.CeilMicros(retention)},
		})
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// storekit.SagaRetention.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", sqlDeleteOldSagas, limit)
}
