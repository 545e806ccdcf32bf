package postgres

import (
	"context"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlRetainSaga = `UPDATE {p:sagas} SET delete_at = statement_timestamp() + $5::bigint * interval '1 microsecond'
WHERE type = $1::text AND correlation = $2::text AND id = $3::text::uuid AND version = $4::bigint AND finished RETURNING 1`

	// sqlDeleteOldSagas locks no rows beforehand, so a janitor does not need the right UPDATE.
	sqlDeleteOldSagas = `WITH gone AS (DELETE FROM {p:sagas} WHERE id = ANY (ARRAY(SELECT id FROM {p:sagas}
	WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT $1::bigint)) AND delete_at <= statement_timestamp() RETURNING 1)
SELECT count(*) FROM gone`
)

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Store) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, _ roles.SagaOptions) error {
	const operation = "retain saga"
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.explain(ctx, operation, err)
	}
	return sagaKeeping{s}.InSagas(ctx, operation, false, func(ctx context.Context, tx sqlkit.SagaTx) error {
		args := append(versionOfSaga(saga), sqlkit.CeilMicros(retention))
		retained, err := tx.(sagaTx).one(ctx, sqlRetainSaga, args, new(int))
		if err == nil && !retained {
			err = roles.ErrSagaConflict
		}
		return err
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// roles.Sagas.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", sqlDeleteOldSagas, limit)
}
