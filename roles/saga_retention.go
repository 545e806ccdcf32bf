package roles

import (
	"context"
	"time"
)

// SagaRetention is a role of stores that keep finished sagas for a time. Package janitor, which
// subscribers and forwarders run, calls DeleteOldSagas.
type SagaRetention interface {
	// RetainSaga says how long a saga that is finished is kept from now on, by the
	// database's clock; more than 0. Without it the saga is kept until
	// Sagas.DeleteFinishedSagas. A second call sets another retention, and an update of the
	// saga ends it. RetainSaga takes part in the transaction of the context, and leaves the
	// version as it is. Errors: ErrSagaConflict if the saga is not finished or has another
	// version, outmill.ErrInvalidRecord, outmill.ErrInvalidConfig.
	RetainSaga(ctx context.Context, saga *Saga, retention time.Duration, options SagaOptions) error
	// DeleteOldSagas deletes up to limit finished sagas, of all types, whose retention has
	// passed, and returns how many it did; fewer than limit means that it is done. On
	// MongoDB a TTL index does so too, and DeleteOldSagas knows the types that this store
	// has worked on since it was made.
	DeleteOldSagas(ctx context.Context, limit int) (int, error)
}
