package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/sqltx"
)

var (
	_ outmill.Store = (*Store)(nil)
	_ outmill.Waker = (*Store)(nil)
)

// Store is an outbox in one SQLite database. All methods may be called
// concurrently.
type Store struct {
	db     *sql.DB
	ownsDB bool
	config Config
	logger watermill.LoggerAdapter
	sql    *queries
	writer *turnstile
	waker  *waker
	topics *rotation
	// inUse are the callers' transactions that are being appended to.
	inUse sqltx.Locks
	// statements are prepared once for the whole handle; nil until then.
	statements  atomic.Pointer[map[string]*sql.Stmt]
	preparation sync.Mutex
	routes      atomic.Pointer[routes]
	closed      atomic.Bool
}

// New makes a store on a handle that the user opened with the driver
// "sqlite" of modernc.org/sqlite, and that the user closes. It does not
// connect. A nil logger logs nothing.
//
// The handle's own settings hold (journal mode, synchronous, busy_timeout);
// see Open for those that are recommended. The handle of an in-memory database
// must have SetMaxOpenConns(1), since each further connection would be an
// empty database of its own.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: sqlite.New: db is nil: want the *sql.DB of an open database", outmill.ErrInvalidConfig)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	if outmill.IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	return &Store{
		db:     db,
		config: config,
		logger: logger.With(watermill.LogFields{"store": config.Name}),
		sql:    newQueries(config.TablePrefix),
		writer: newTurnstile(),
		waker:  newWaker(),
		topics: &rotation{},
	}, nil
}

// DB returns the handle of the database, for the user's own tables. It stays
// open until Close if the store opened it.
func (s *Store) DB() *sql.DB { return s.db }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close ends what the store started, and the handle if the store opened it.
// It may be called more than once. Other methods then return
// outmill.ErrClosed.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.waker.close()
	s.preparation.Lock()
	prepared := s.statements.Swap(nil)
	s.preparation.Unlock()
	if prepared != nil {
		for _, statement := range *prepared {
			_ = statement.Close()
		}
	}
	if !s.ownsDB {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("outmill/sqlite: close %s: %w", s.Name(), err)
	}
	return nil
}

// prepare fills the statements. Within a caller's transaction it must not be
// called: it may need a connection of its own.
func (s *Store) prepare(ctx context.Context) error {
	if s.statements.Load() != nil {
		return nil
	}
	s.preparation.Lock()
	defer s.preparation.Unlock()
	if s.statements.Load() != nil {
		return nil
	}
	if s.closed.Load() {
		return outmill.ErrClosed
	}
	prepared := make(map[string]*sql.Stmt, len(hotStatements))
	for _, template := range hotStatements {
		statement, err := s.db.PrepareContext(ctx, s.sql.text(template))
		if err != nil {
			for _, other := range prepared {
				_ = other.Close()
			}
			if schemaErr := s.checkSchema(ctx, s.db); schemaErr != nil {
				return schemaErr
			}
			return err
		}
		prepared[template] = statement
	}
	s.statements.Store(&prepared)
	return nil
}
