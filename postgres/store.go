package postgres

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var (
	_ outmill.Store             = (*Store)(nil)
	_ storekit.FailingCaller    = (*Store)(nil)
	_ storekit.WriteChecker     = (*Store)(nil)
	_ storekit.BudgetedListener = (*Store)(nil)
)

// Store is an outbox in one PostgreSQL database: package engine, which has the rules and the methods, on the tables of this package.
// It has all roles of package roles but Members. All methods are safe for concurrent use.
type Store struct {
	*engine.Engine
	driver *driver.Driver
	conns  *conns.Conns
	log    *storekit.Log
}

// New returns a store on a pool that the user opened and closes. It does not connect. A nil
// logger logs nothing.
//
// The pool's own settings apply. Behind a proxy that pools transactions, set the pool's
// DefaultQueryExecMode to QueryExecModeExec or QueryExecModeCacheDescribe, and set
// Config.ListenURL.
func New(pool *pgxpool.Pool, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: postgres.New: pool is nil: want a pool from pgxpool.New", outmill.ErrInvalidConfig)
	}
	return newStore(conns.OfPgx(pool), config, logger)
}

func newStore(on *conns.Conns, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	log := storekit.NewLog(logger, config.Name, config.AppendLogLevel)
	own := driver.Config{
		Name: config.Name, Schema: config.Schema, Prefix: config.TablePrefix, Logger: log,
		ListenURL: config.ListenURL, NotifyInterval: config.NotifyInterval,
		TxFromContext: config.TxFromContext, DB: config.DB, IdleInTransaction: config.IdleInTransaction,
	}
	var err error
	if own.Listen, err = on.Beside("postgres.Config.ListenURL", config.ListenURL); err != nil {
		return nil, err
	}
	s := &Store{driver: driver.New(on, own), conns: on, log: log}
	s.Engine = engine.New(s.driver, engine.Config{
		Name: config.Name, Retain: config.Retain, RetainJoins: config.RetainJoins, RetainAudit: config.RetainAudit,
		DedupWindow: config.DedupWindow, MaxPayload: config.MaxPayload, DurableSettle: config.DurableSettle,
		Logger: logger, AppendLogLevel: config.AppendLogLevel,
		FairTopics: config.FairTopics, EnsureSchema: config.EnsureSchema, AtOnce: config.atOnce,
	})
	return s, nil
}

// Pool returns the pool of connections, for the user's own tables. If the store opened the
// pool, Close closes it. It returns nil for a store of NewFromDB.
func (s *Store) Pool() *pgxpool.Pool { return s.conns.Pgx() }

// RawClaims returns the raw claims of this store. See roles.Raw.
func (s *Store) RawClaims(queue outmill.Queue) roles.RawClaims { return s.RawOf(s, queue) }

// Close ends the store's background work, and closes the pool if the store opened it. Calls that
// still have a connection then get 5 s; after that Close closes their connections, which rolls their
// transactions back, and returns an error if a caller does not return its connection. Close may be
// called more than once. Afterwards other methods return outmill.ErrClosed.
func (s *Store) Close() error { return s.Engine.Close() }

// FailingCalls reports the listening connection while it cannot be opened. See storekit.FailingCaller.
func (s *Store) FailingCalls() []outmill.FailingCall { return s.driver.FailingCalls() }

// ListensWithin returns the budget of the connection that listens: see storekit.BudgetedListener.
func (s *Store) ListensWithin() *storekit.ConnectionBudget { return s.driver.ListensWithin() }

// CheckWrites asks whether the server accepts writes again, after it has refused one. See
// storekit.WriteChecker.
func (s *Store) CheckWrites(ctx context.Context) error {
	if err := s.driver.CheckWrites(ctx); err != nil {
		return s.driver.Explain(ctx, "check writes", err)
	}
	return nil
}
