package mongo

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/mongo/internal/sagas"
	"github.com/outmill/outmill/storekit"
)

var (
	_ outmill.Store        = (*Store)(nil)
	_ storekit.TenantTurns = (*Store)(nil)

	_ storekit.FailingCaller = (*Store)(nil)
)

// Store is an outbox in one MongoDB database: package engine, which has the rules and the methods, on the collections of this package.
// It has all roles of package roles but Members. All methods are safe for concurrent use.
type Store struct {
	*engine.Engine
	driver *driver.Driver
	client *mongodriver.Client
	config Config
	sagas  *sagas.Sagas
	// disconnect disconnects a client that the store made, once.
	disconnect func() error
}

// New makes a store on the user's client, which the user disconnects. If client is nil, the store
// makes a client for DefaultURI, and Close disconnects it. New does not connect. A nil logger
// logs nothing.
//
// The store writes with write concern majority, reads from the primary, and encodes documents as
// the driver does by default, whatever the client's settings are. The client's settings for
// retries, timeouts and the pool apply.
func New(client *mongodriver.Client, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	owns := client == nil
	if owns {
		var err error
		if client, err = mongodriver.Connect(options.Client().ApplyURI(DefaultURI)); err != nil {
			return nil, fmt.Errorf("outmill/mongo: connect: %w", err)
		}
	}
	config.setDefaults()
	s := &Store{client: client, config: config, disconnect: func() error { return nil }}
	if owns {
		s.ownClient()
	}
	s.driver = driver.New(client, driver.Config{
		Name: config.Name, Database: config.Database, Collection: config.CollectionName, WithoutChangeStream: config.WithoutChangeStream,
		EmbedJSON: config.EmbedJSON, MaxPayload: config.MaxPayload, Cluster: config.ofCluster, Logger: logger,
	})
	s.Engine = engine.New(s.driver, engine.Config{
		Name: config.Name, Retain: config.Retain, RetainJoins: config.RetainJoins, RetainAudit: config.RetainAudit,
		DedupWindow: config.DedupWindow, MaxPayload: config.MaxPayload, Logger: logger, AppendLogLevel: config.AppendLogLevel,
		FairTopics: config.FairTopics, EnsureSchema: config.EnsureSchema, AtOnce: config.atOnce,
	})
	s.sagas = s.newSagas()
	return s, nil
}

// ownClient has Close disconnect the client.
func (s *Store) ownClient() {
	s.disconnect = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), storekit.CloseWithin)
		defer cancel()
		if err := s.client.Disconnect(ctx); err != nil {
			return fmt.Errorf("outmill/mongo: close %s: %w", s.Name(), err)
		}
		return nil
	})
}

// Client returns the client, for the user's own collections. If the store made the client, it
// stays connected until Close.
func (s *Store) Client() *mongodriver.Client { return s.client }

// Database returns the database of the store's collections. The handle writes with write concern
// majority, and reads from the primary.
func (s *Store) Database() *mongodriver.Database { return s.driver.Database() }

// FailingCalls reports the change stream while it cannot be opened, also where the server does not allow it.
// See storekit.FailingCaller.
func (s *Store) FailingCalls() []outmill.FailingCall { return s.driver.FailingCalls() }

// Close stops the store's background work, and disconnects the client if the store made it. Close
// may be called more than once. Afterwards all other methods return outmill.ErrClosed.
func (s *Store) Close() error {
	if err := s.Engine.Close(); err != nil {
		return err
	}
	return s.disconnect()
}
