package sqlserver

import (
	"context"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// microsFromNow is the time in @micros microseconds.
	microsFromNow = `DATEADD(MICROSECOND, CAST(@micros % 1000000 AS INT), DATEADD(SECOND, CAST(@micros / 1000000 % 86400 AS INT), DATEADD(DAY,
		CAST(@micros / CAST(86400000000 AS BIGINT) AS INT), ` + serverNow + `)))`

	sqlRetainSaga = atReadCommitted + `SET NOCOUNT ON;
UPDATE [dbo].[OutboxSaga] SET DeleteAt = ` + microsFromNow + ofVersion + ` AND Finished = 1;
SELECT @@ROWCOUNT`

	// sqlDeleteOldSagas reads State, which is in no index: see Outbox_Claim.
	sqlDeleteOldSagas = asMaintenance + `DELETE TOP (@limit) FROM [dbo].[OutboxSaga] WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE DeleteAt IS NOT NULL AND DeleteAt <= ` + serverNow + ` AND State IS NOT NULL;
SELECT @@ROWCOUNT`
)

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Store) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, _ roles.SagaOptions) error {
	const operation = "retain saga"
	if err := storekit.CheckRetainSaga(saga, retention); err != nil {
		return s.explain(ctx, operation, err)
	}
	return sagaKeeping{s}.InSagas(ctx, operation, false, func(ctx context.Context, tx sqlkit.SagaTx) error {
		var n int
		_, err := tx.(sagaTx).one(ctx, sqlRetainSaga, append(versionOfSaga(saga), named("micros", sqlkit.CeilMicros(retention))), &n)
		if err == nil && n == 0 {
			err = roles.ErrSagaConflict
		}
		return err
	})
}

// DeleteOldSagas deletes finished sagas whose retention has passed. See
// roles.Sagas.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", sqlDeleteOldSagas, "limit", limit)
}
