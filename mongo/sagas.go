package mongo

import (
	"context"
	"slices"
	"time"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/mongo/internal/sagas"
	"github.com/outmill/outmill/roles"
)

// Sagas are documents in collections of their own, where users read them and make indexes of them, and not entries of package engine.

var _ roles.Sagas = (*Store)(nil)

func (s *Store) newSagas() *sagas.Sagas {
	return sagas.New(sagas.Config{
		DB: s.Database(), Collection: s.config.SagaCollection, MaxPayload: s.config.MaxPayload, Host: sagaHost{s},
		IsOwn: func(name string) bool {
			return slices.ContainsFunc(driver.Collections(), func(of string) bool { return s.config.CollectionName(of) == name })
		},
	})
}

// sagaHost is a sagas.Host.
type sagaHost struct{ *Store }

func (h sagaHost) Explain(ctx context.Context, operation string, err error) error {
	return h.driver.Explain(ctx, operation, err)
}

func (h sagaHost) SessionOf(ctx context.Context) (*mongodriver.Session, error) {
	found, err := h.TxOf(ctx)
	session, _ := found.(*mongodriver.Session)
	return session, err
}

func (h sagaHost) Within(ctx context.Context, operation string, session *mongodriver.Session, fn func(ctx context.Context) error) error {
	if err := engine.Usable(ctx, h.Engine, operation); err != nil {
		return err
	}
	return h.driver.Explain(ctx, operation, h.driver.InSession(ctx, session, fn))
}

func (h sagaHost) Alone(ctx context.Context, operation string, once bool, fn func(ctx context.Context) error) error {
	if err := engine.Ready(ctx, h.Engine, operation); err != nil {
		return err
	}
	return h.driver.Explain(ctx, operation, h.driver.Alone(ctx, once, fn))
}

// PrepareSagas creates the collections of the types. See roles.Sagas.
func (s *Store) PrepareSagas(ctx context.Context, kinds ...string) error {
	return s.sagas.PrepareSagas(ctx, kinds...)
}

// FindSaga reads a saga. See roles.Sagas.
func (s *Store) FindSaga(ctx context.Context, kind, correlation string, state any, opts roles.SagaOptions) (*roles.Saga, error) {
	return s.sagas.FindSaga(ctx, kind, correlation, state, opts)
}

// ListSagas lists sagas of one type. See roles.Sagas.
func (s *Store) ListSagas(ctx context.Context, query roles.SagaQuery, opts roles.SagaOptions) (roles.SagaPage, error) {
	return s.sagas.ListSagas(ctx, query, opts)
}

// InsertSaga stores a new saga. See roles.Sagas.
func (s *Store) InsertSaga(ctx context.Context, saga *roles.Saga, state any, opts roles.SagaOptions) error {
	return s.sagas.InsertSaga(ctx, saga, state, opts)
}

// UpdateSaga stores the state of a saga. See roles.Sagas.
func (s *Store) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, opts roles.SagaOptions) error {
	return s.sagas.UpdateSaga(ctx, saga, state, opts)
}

// DeleteSaga deletes a saga. See roles.Sagas.
func (s *Store) DeleteSaga(ctx context.Context, saga *roles.Saga, opts roles.SagaOptions) error {
	return s.sagas.DeleteSaga(ctx, saga, opts)
}

// RetainSaga sets how long a finished saga is kept. See roles.Sagas.
func (s *Store) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, opts roles.SagaOptions) error {
	return s.sagas.RetainSaga(ctx, saga, retention, opts)
}

// DeleteFinishedSagas deletes sagas that finished long ago. See roles.Sagas.
func (s *Store) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	return s.sagas.DeleteFinishedSagas(ctx, kind, retention, limit)
}

// DeleteOldSagas deletes finished sagas whose retention has passed and that the server's TTL
// index has not deleted yet, of the types on which this store has worked. See
// roles.Sagas.
func (s *Store) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.sagas.DeleteOldSagas(ctx, limit)
}
