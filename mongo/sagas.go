package mongo

import (
	"context"
	"slices"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/indexes"
	"github.com/outmill/outmill/mongo/internal/sagas"
	"github.com/outmill/outmill/roles"
)

var _ roles.Sagas = (*Store)(nil)

// sagaKeeper has the methods of roles.Sagas.
type sagaKeeper = *sagas.Sagas

func (s *Store) newSagas() sagaKeeper {
	return sagas.New(sagas.Config{
		DB: s.db, Collection: s.config.SagaCollection, MaxPayload: s.config.MaxPayload,
		How: indexes.How{Standalone: s.config.WithoutTransactions},
		IsOwn: func(name string) bool {
			return slices.ContainsFunc(collectionNames, func(of string) bool { return s.config.CollectionName(of) == name })
		},
		Host: sagaHost{s},
	})
}

// sagaHost is a sagas.Host.
type sagaHost struct{ s *Store }

func (h sagaHost) Explain(ctx context.Context, operation string, err error) error {
	return h.s.explain(ctx, operation, err)
}

func (h sagaHost) SessionOf(ctx context.Context) (*driver.Session, error) { return h.s.sessionOf(ctx) }

func (h sagaHost) Within(ctx context.Context, operation string, session *driver.Session, fn func(ctx context.Context) error) error {
	return h.s.within(ctx, operation, session, fn)
}

func (h sagaHost) Alone(ctx context.Context, operation string, once bool, fn func(ctx context.Context) error) error {
	if once {
		return h.s.doOnce(ctx, operation, fn)
	}
	return h.s.do(ctx, operation, fn)
}
