package roles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

var (
	// ErrSagaNotFound says that no saga of the type has this correlation value.
	ErrSagaNotFound = errors.New("outmill: no saga has this correlation value")
	// ErrSagaExists says that a saga of the type and correlation value was started
	// before, or is being started by another transaction.
	ErrSagaExists = errors.New("outmill: a saga with this correlation value exists")
	// ErrSagaConflict says that another transaction has changed or deleted the saga since
	// it was found.
	ErrSagaConflict = errors.New("outmill: the saga was changed by another handler")
	// ErrSagaState says that the stored state does not fit the type of the state, such as
	// after a field has changed its type. The text has no values of it.
	ErrSagaState = errors.New("outmill: the stored state of the saga does not fit its type")
	// ErrSagaUnkeyed says that the place of a type's sagas has documents of another program,
	// which have no correlation value, so that no message finds them. Only MongoDB has such places.
	ErrSagaUnkeyed = fmt.Errorf("%w: documents in the place of the sagas have no correlation value", outmill.ErrInvalidConfig)
)

// Saga is the state of one long-running process.
type Saga struct {
	// ID is the id of the saga. InsertSaga makes one if it is zero.
	ID outmill.WorkItemID
	// Type names the kind of saga: the collection on MongoDB, the type column elsewhere.
	// 1 to 120 UTF-16 units of letters, digits, "_", "-" and ".".
	Type string
	// Correlation is the value that messages and saga share, such as an order's id. It is
	// unique among the sagas of a type. 1 to 255 UTF-16 units, case-sensitive, no blanks at
	// the ends.
	Correlation string
	// Version counts the changes, from 1. The store sets it.
	Version int64
	// Finished says that the saga has ended, and is kept for audits. A finished saga keeps its
	// correlation value.
	Finished bool
	// CreatedAt and UpdatedAt are times of the database's clock.
	CreatedAt, UpdatedAt time.Time
}

// SagaOptions are the settings for storing a state.
type SagaOptions struct {
	// VersionField is the name of the field that holds the version on MongoDB; "" is
	// "_version". Other stores have a column.
	VersionField string
	// KeepUnknown makes an update keep stored fields that the state's type does not have,
	// including those of nested objects, but not those of objects in lists. It costs a read.
	// Without it an update drops them. Reading always ignores them. A name that differs from
	// a field's name only in the case of its letters is that field.
	KeepUnknown bool
}

// Sagas keeps the states of sagas with optimistic concurrency. The methods take part in
// the transaction of the context; without one, each is a transaction of its own.
//
// A finished saga is kept until DeleteFinishedSagas or DeleteOldSagas deletes it. Package janitor, which
// subscribers and forwarders run, calls DeleteOldSagas.
//
// A state is a pointer to a struct. SQL stores encode it as JSON. MongoDB encodes it as a
// document, by the bson tag of each field, or by the json tag if there is no bson tag.
type Sagas interface {
	// FindSaga reads the saga with this type and correlation value, and decodes its state into
	// state, which is a pointer. It returns ErrSagaNotFound if there is none,
	// and ErrSagaState if the state cannot be decoded.
	FindSaga(ctx context.Context, kind, correlation string, state any, options SagaOptions) (*Saga, error)
	// ListSagas returns a page of sagas without their states, the newest first. A call looks at
	// MaxExamined sagas at most: call it again, with SagaQuery.After set to SagaPage.Next, until
	// SagaPage.Done. Errors: outmill.ErrInvalidConfig, outmill.ErrInvalidRecord.
	ListSagas(ctx context.Context, query SagaQuery, options SagaOptions) (SagaPage, error)
	// InsertSaga stores a new saga, and fills ID, Version and times. Errors: ErrSagaExists,
	// outmill.ErrInvalidRecord. On PostgreSQL and SQL Server the transaction stays usable
	// after ErrSagaExists if the other saga is committed.
	InsertSaga(ctx context.Context, saga *Saga, state any, options SagaOptions) error
	// UpdateSaga stores the state if the stored version still equals saga.Version, and updates
	// Version and UpdatedAt of saga. Errors: ErrSagaConflict, outmill.ErrInvalidRecord.
	UpdateSaga(ctx context.Context, saga *Saga, state any, options SagaOptions) error
	// DeleteSaga deletes the saga if the stored version still equals saga.Version. Errors:
	// ErrSagaConflict.
	DeleteSaga(ctx context.Context, saga *Saga, options SagaOptions) error
	// PrepareSagas creates the collections and indexes of the types on MongoDB, outside any
	// transaction, once for each type and store, and again where InsertSaga finds that somebody
	// has dropped them. On other engines it has no effect. InsertSaga calls it too, but a MongoDB
	// transaction whose snapshot is older than the collection fails with a transient error.
	// Errors: ErrSagaUnkeyed.
	PrepareSagas(ctx context.Context, kinds ...string) error
	// DeleteFinishedSagas deletes up to limit sagas of the type that finished longer ago than
	// retention, and returns their number.
	DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error)

	// RetainSaga says how long a saga that is finished is kept from now on, by the
	// database's clock; more than 0. Without it the saga is kept until
	// DeleteFinishedSagas. A second call sets another retention, and an update of the
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
