// Package sagas keeps sagas as documents, in a collection for each type, where users read them and make indexes of them.
package sagas

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/storekit"
)

// Config is what a store gives to its Sagas.
type Config struct {
	DB *mongo.Database
	// Collection names the collection of a type, and IsOwn says of a name that a collection of the store has it.
	Collection func(kind string) string
	IsOwn      func(name string) bool
	// MaxPayload is the largest state in bytes.
	MaxPayload int
	Host
}

// Host runs work for Sagas.
type Host interface {
	// Explain adds the operation to an error.
	Explain(ctx context.Context, operation string, err error) error
	// SessionOf returns the session of the caller's transaction, or nil. See outmill.Writer.
	SessionOf(ctx context.Context) (*mongo.Session, error)
	// Within runs fn in the caller's transaction.
	Within(ctx context.Context, operation string, session *mongo.Session, fn func(ctx context.Context) error) error
	// Alone runs fn outside of a transaction, and repeats it for reasons that pass: where once is set, only if it had no effect.
	Alone(ctx context.Context, operation string, once bool, fn func(ctx context.Context) error) error
}

// Sagas is a roles.Sagas. It is safe for concurrent use.
type Sagas struct {
	config Config
	// prepared holds the types whose collections exist.
	prepared sync.Map
	// preparing has a lock for each type whose collection is being created.
	preparing storekit.TxLocks
}

// New returns the sagas of a store.
func New(config Config) *Sagas {
	return &Sagas{config: config}
}

// collections are those on which the store has worked.
func (s *Sagas) collections() (list []*mongo.Collection) {
	s.prepared.Range(func(kind, _ any) bool {
		if in, err := s.sagasOf(kind.(string)); err == nil {
			list = append(list, in)
		}
		return true
	})
	return list
}
