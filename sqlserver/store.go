package sqlserver

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var (
	_ outmill.Store = (*Store)(nil)
	_ roles.Waker   = (*Store)(nil)

	_ roles.Repairs  = (*Store)(nil)
	_ roles.Examiner = (*Store)(nil)
	_ roles.Pauses   = (*Store)(nil)
)

// Store is an outbox in one SQL Server database. All methods are safe for concurrent use. Store
// is also a roles.Joins, a roles.Sagas, a roles.Pauses and a
// roles.Repairs, and has their methods, and List.
type Store struct {
	joinEngine
	sagaEngine
	finder
	workbench
	db     *sql.DB
	ownsDB bool
	// admission admits the transactions of handlers to the pool.
	admission storekit.Admission
	// leaveBudget is for a store that owns its pool.
	leaveBudget func()
	config      Config
	logger      *storekit.Log
	sql         *queries
	turns       storekit.TopicRotation
	busy        storekit.BusyTopics
	notifier    storekit.Notifier
	// inUse locks the callers' transactions to which an append writes.
	inUse storekit.TxLocks
	// claiming locks the topics of groups from which this process claims in order.
	claiming storekit.TxLocks
	routes   storekit.KnownRoutes
	pauses   storekit.KnownPauses
	// babelfish means that the server is Babelfish for PostgreSQL.
	babelfish atomic.Bool
	// versioned means that a reader of rows that other transactions have changed sees the last
	// committed version, and does not wait.
	versioned atomic.Bool
	life      storekit.Lifecycle
}

// New makes a store on the user's pool, which the user closes. The pool must use the driver
// github.com/microsoft/go-mssqldb ("sqlserver"), without its parameter timezone. New does not
// connect. A nil logger logs nothing.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, storekit.InvalidConfig("sqlserver.New: db is nil: want a pool from sql.Open")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	s := &Store{
		db:     db,
		config: config,
		logger: storekit.NewLog(logger, config.Name, config.AppendLogLevel),
		sql:    &queries{schema: config.Schema, table: config.Table},
	}
	s.joinEngine = storekit.NewJoinEngine(joining{s}, config.MaxPayload)
	s.sagaEngine = sqlkit.NewSagaEngine(sagaKeeping{s}, min(config.MaxPayload, maxState))
	s.finder = storekit.NewFinder(finding{s})
	s.workbench = storekit.NewWorkbenchEngine(bench{finding{s}}, config.MaxPayload)
	return s, nil
}

// DB returns the pool of connections, for the user's own tables. If the store opened the pool, it
// stays open until Close.
func (s *Store) DB() *sql.DB { return s.db }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close stops the store's background work, and closes the pool if the store opened it. Close may
// be called more than once. Afterwards all other methods return outmill.ErrClosed.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	s.notifier.Close()
	if s.ownsDB {
		defer s.leaveBudget()
		return s.db.Close()
	}
	return nil
}

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (s *Store) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready checks that the store is open, and checks the version of the schema until it was found
// right once.
func (s *Store) ready(ctx context.Context) error { return s.life.Ready(ctx, s.checkOrEnsure) }

func (s *Store) checkOrEnsure(ctx context.Context) error {
	if s.config.EnsureSchema {
		return s.ensure(ctx, schemaFiles)
	}
	return s.checkSchema(ctx)
}
