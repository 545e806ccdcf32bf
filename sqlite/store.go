package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite/internal/turnstile"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var (
	_ outmill.Store = (*Store)(nil)
	_ roles.Waker   = (*Store)(nil)

	_ roles.Repairs  = (*Store)(nil)
	_ roles.Idle     = (*Store)(nil)
	_ roles.Pauses   = (*Store)(nil)
	_ roles.Examiner = (*Store)(nil)

	_ storekit.TenantTurns = (*Store)(nil)
)

// Store is an outbox in one SQLite database. It also implements roles.Joins, roles.Sagas,
// roles.Pauses, roles.Repairs and storekit.TenantTurns.
// All methods are safe for concurrent use.
type Store struct {
	joinEngine
	sagaEngine
	finder
	workbench
	db     *sql.DB
	ownsDB bool
	config Config
	logger *storekit.Log
	sql    *queries
	writer *turnstile.Turnstile
	// handlers lets one transaction of a handler at a time stand at writer's queue, so that an
	// extension of leases, a claim or a publish waits for one handler and not for all.
	handlers *turnstile.Turnstile
	waker    *waker
	topics   storekit.TopicRotation
	fair     storekit.FairTopics
	turns    storekit.TurnRotation
	// atOnce limits the steps of work that one transaction does not finish.
	atOnce storekit.BatchSize
	// inUse are the callers' transactions in which an append is running.
	inUse storekit.TxLocks
	// statements are prepared once for the whole handle; nil until then.
	statements atomic.Pointer[map[string]*sql.Stmt]
	preparing  chan struct{}
	routes     atomic.Pointer[storekit.RoutingTable]
	pauses     storekit.KnownPauses
	life       storekit.Lifecycle
}

// New returns a store on a handle that the user opened with the driver "sqlite" of
// modernc.org/sqlite. The user closes it. New does not connect. A nil logger logs nothing.
//
// The handle's own settings apply (journal mode, synchronous, busy_timeout); see Open for the
// recommended ones. The handle of an in-memory database must have SetMaxOpenConns(1), since
// each further connection would open another, empty database.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: sqlite.New: db is nil: want the *sql.DB of an open database", outmill.ErrInvalidConfig)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	s := &Store{
		db:     db,
		config: config,
		logger: storekit.NewLog(logger, config.Name, config.AppendLogLevel),
		sql:    newQueries(config.TablePrefix),
		writer: turnstile.New(),

		handlers: turnstile.New(),
		waker:    newWaker(),
		fair:     storekit.NewFairTopics(config.FairTopics),

		preparing: make(chan struct{}, 1),
	}
	s.joinEngine = storekit.NewJoinEngine(joining{s}, config.MaxPayload)
	s.sagaEngine = sqlkit.NewSagaEngine(sagaKeeping{s}, config.MaxPayload)
	s.finder = storekit.NewFinder(finding{s})
	s.workbench = storekit.NewWorkbenchEngine(bench{finding{s}}, config.MaxPayload)
	return s, nil
}

// DB returns the handle of the database, for the user's own tables. If the store opened the
// handle, Close closes it.
func (s *Store) DB() *sql.DB { return s.db }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close ends the store's background work, and closes the handle if the store opened it. It may
// be called more than once. Afterwards other methods return outmill.ErrClosed.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	s.waker.close()
	s.closeStatements()
	if !s.ownsDB {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("outmill/sqlite: close %s: %w", s.Name(), err)
	}
	return nil
}

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (s *Store) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

func (s *Store) closeStatements() {
	if prepared := s.statements.Swap(nil); prepared != nil {
		closeAll(*prepared)
	}
}

func closeAll(statements map[string]*sql.Stmt) {
	for _, statement := range statements {
		_ = statement.Close()
	}
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready does the checks before a transaction begins.
func (s *Store) ready(ctx context.Context) error {
	if err := s.usable(ctx); err != nil || s.statements.Load() != nil {
		return err
	}
	if s.config.EnsureSchema {
		if err := s.ensure(ctx); err != nil {
			return err
		}
	}
	return s.whileBusy(ctx, func() error { return s.prepare(ctx) })
}

// readyToRead is ready for a read transaction, which prepares what it needs. A program that reads
// once, such as outmill status, need not wait until all statements are prepared.
func (s *Store) readyToRead(ctx context.Context) error {
	if s.config.EnsureSchema {
		return s.ready(ctx)
	}
	return s.usable(ctx)
}

// prepare prepares the statements. It must not be called within a caller's transaction, because
// it may need another connection.
func (s *Store) prepare(ctx context.Context) error {
	if s.statements.Load() != nil {
		return nil
	}
	select {
	case s.preparing <- struct{}{}:
		defer func() { <-s.preparing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.statements.Load() != nil {
		return nil
	}
	prepared, err := s.prepareAll(ctx)
	if err != nil {
		return err
	}
	s.statements.Store(&prepared)
	if s.life.Closed() {
		s.closeStatements()
		return outmill.ErrClosed
	}
	return nil
}

func (s *Store) prepareAll(ctx context.Context) (map[string]*sql.Stmt, error) {
	prepared := make(map[string]*sql.Stmt, len(hotStatements))
	for _, template := range hotStatements {
		statement, err := s.db.PrepareContext(ctx, s.sql.text(template)) //nolint:sqlclosecheck // Close does
		if err != nil {
			closeAll(prepared)
			if schemaErr := s.checkSchema(ctx, s.db); schemaErr != nil {
				return nil, schemaErr
			}
			return nil, err
		}
		prepared[template] = statement
	}
	return prepared, nil
}
