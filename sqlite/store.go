package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ outmill.Store = (*Store)(nil)

// Store is an outbox in one SQLite database: package engine, which has the rules and the methods, on the tables of
// this package. It has all roles of package roles but Members. All methods are safe for concurrent use.
type Store struct {
	*engine.Engine
	driver *driver.Driver
	log    *storekit.Log
}

// New returns a store on a handle that the user opened with the driver "sqlite" of
// modernc.org/sqlite. The user closes it. New does not connect. A nil logger logs nothing.
//
// The handle's own settings apply (journal mode, synchronous, busy_timeout); see Open for the recommended ones. The handle of an
// in-memory database must have SetMaxOpenConns(1), since each further connection would open another, empty database.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: sqlite.New: db is nil: want the *sql.DB of an open database", outmill.ErrInvalidConfig)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return newStore(db, config, logger, driver.Config{}), nil
}

// newStore returns a store whose driver has those settings of its own that a Config does not have.
func newStore(db *sql.DB, config Config, logger watermill.LoggerAdapter, own driver.Config) *Store {
	own.Name, own.Prefix, own.BusyTimeout, own.TxFromContext = config.Name, config.TablePrefix, config.BusyTimeout, config.TxFromContext
	s := &Store{driver: driver.New(db, own), log: storekit.NewLog(logger, config.Name, config.AppendLogLevel)}
	s.Engine = engine.New(s.driver, engine.Config{
		Name: config.Name, Retain: config.Retain, RetainJoins: config.RetainJoins, RetainAudit: config.RetainAudit,
		DedupWindow: config.DedupWindow, MaxPayload: config.MaxPayload, Logger: logger, AppendLogLevel: config.AppendLogLevel,
		FairTopics: config.FairTopics, EnsureSchema: config.EnsureSchema, AtOnce: config.atOnce,
	})
	return s
}

// DB returns the handle of the database, for the user's own tables. If the store opened the handle, Close closes it.
func (s *Store) DB() *sql.DB { return s.driver.DB() }

// Handle is a transaction in which the store can run statements: a *sql.Tx, or another type
// with these methods, such as the ContextExecutor of watermill-sql v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx: with it, Append takes part in that transaction. The
// caller begins and ends the transaction.
//
// tx is a *sql.Tx, a struct (or a pointer to one) that embeds one or has it in an exported field, such as bun.Tx, *sqlx.Tx, gorm's
// tx.Statement.ConnPool, ent's dialect.Tx and the Tx of watermill-sql v4, or another [Handle]. The store sends its statements to
// the *sql.Tx itself and not to its wrapper, and treats a transaction as the same one in every wrapper. If a wrapper should see the
// statements, it must keep its *sql.Tx in an unexported field; two such wrappers around one transaction count as two transactions.
//
// Calls that use the context refuse a nil, a pool such as *sql.DB, and any other value with
// outmill.ErrInvalidTx. A *sql.Conn counts as a connection on which the caller has sent BEGIN.
//
// SQLite ends a transaction by itself after some errors, such as an interrupted statement, ON CONFLICT ROLLBACK or a full database.
// From then on calls with the context return outmill.ErrInvalidTx and write nothing.
//
// An Append in the transaction checks its context at its start and is not interrupted
// afterwards, because SQLite would roll back the caller's whole transaction.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context { return s.driver.WithTx(ctx, tx) }

// RawClaims returns the raw claims of this store. See roles.Raw.
func (s *Store) RawClaims(queue outmill.Queue) roles.RawClaims { return s.RawOf(s, queue) }

// InTx runs fn in a transaction that has the write lock from its beginning. It commits if fn returns nil, and rolls back if fn
// returns an error or panics (the panic continues), or if ctx has ended. The context that fn gets carries the transaction, so
// publishers and Append take part in it. The commit wakes readers in this process at once.
//
// fn must not call other methods of the store that write (Claim, Ack, …), because they would wait for fn's transaction to end.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := engine.Ready(ctx, s.Engine, "transaction"); err != nil {
		return err
	}
	return s.driver.InTx(ctx, fn)
}

// Tx returns the transaction that ctx carries for this store, such as that of Transact. It reports false if there is none, or if it
// is not a *sql.Tx: then TxOf has it, and the first such call logs a line.
func (s *Store) Tx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.log, "Tx", found, err)
}
