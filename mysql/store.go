package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/mysql/internal/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ outmill.Store = (*Store)(nil)

// Store is an outbox in one MariaDB or MySQL database: package engine, which has the rules and the methods, on the tables of
// this package. It has all roles of package roles but Members. All methods are safe for concurrent use.
type Store struct {
	*engine.Engine
	driver *driver.Driver
	log    *storekit.Log
}

// New returns a store on a pool that the user opened with go-sql-driver/mysql. The user closes it. New does not connect. A nil logger
// logs nothing.
//
// The pool's own settings apply, such as its TLS and its number of connections; none of them changes what the store does.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: mysql.New: db is nil: want the *sql.DB of an open database", outmill.ErrInvalidConfig)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return newStore(db, config, logger, driver.Config{}), nil
}

// newStore returns a store whose driver has those settings of its own that a Config does not have.
func newStore(db *sql.DB, config Config, logger watermill.LoggerAdapter, own driver.Config) *Store {
	own.Name, own.Prefix, own.TxFromContext = config.Name, config.TablePrefix, config.TxFromContext
	s := &Store{driver: driver.New(db, own), log: storekit.NewLog(logger, config.Name, config.AppendLogLevel)}
	s.Engine = engine.New(s.driver, engine.Config{
		Name: config.Name, Retain: config.Retain, RetainJoins: config.RetainJoins, RetainAudit: config.RetainAudit,
		DedupWindow: config.DedupWindow, MaxPayload: config.MaxPayload, Logger: logger, AppendLogLevel: config.AppendLogLevel,
		FairTopics: config.FairTopics, EnsureSchema: config.EnsureSchema, AtOnce: config.atOnce,
	})
	return s
}

// DB returns the pool, for the user's own tables. If the store opened it, Close closes it.
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
// outmill.ErrInvalidTx. A *sql.Conn counts as a connection on which the caller has sent START TRANSACTION.
//
// The server ends a transaction by itself after a deadlock, and at a statement of DDL. From then on calls with the context return
// outmill.ErrInvalidTx and write nothing.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context { return s.driver.WithTx(ctx, tx) }

// RawClaims returns the raw claims of this store. See roles.Raw.
func (s *Store) RawClaims(queue outmill.Queue) roles.RawClaims { return s.RawOf(s, queue) }

// InTx runs fn in a READ COMMITTED transaction. It commits if fn returns nil, and rolls back if fn returns an error or panics (the panic
// continues), or if ctx has ended. The context that fn gets carries the transaction, so publishers and Append take part in it. The commit
// wakes readers in this process at once. InTx may run fn again, after a deadlock for example: see Transact.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return storekit.InvalidConfig("InTx: fn is nil")
	}
	return s.Transact(ctx, func(ctx context.Context) error {
		tx, _ := s.Tx(ctx)
		return fn(ctx, tx)
	})
}

// Tx returns the transaction that ctx carries for this store, such as that of Transact. It reports false if there is none, or if it
// is not a *sql.Tx: then TxOf has it, and the first such call logs a line.
func (s *Store) Tx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.log, "Tx", found, err)
}
