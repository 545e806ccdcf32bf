package sqlserver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Handle is a transaction that the store can run statements in: *sql.Tx of the
// driver github.com/microsoft/go-mssqldb, or anything else with these methods,
// such as the ContextExecutor of watermill-sql v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx. An Append with this context is part of the
// transaction, which the caller begins and ends.
//
// tx is a *sql.Tx, a struct (or a pointer to one) that embeds one or has it in an exported field,
// such as bun.Tx, *sqlx.Tx, gorm's tx.Statement.ConnPool, ent's dialect.Tx and the Tx of
// watermill-sql v4, or another [Handle]. The store sends its statements to the *sql.Tx itself,
// not through the wrapper, and recognises the same transaction in any wrapper. To make a wrapper
// see the statements, keep its *sql.Tx in an unexported field. The wrapper must pass statements
// and arguments on unchanged, because some arguments are table-valued parameters. Two such
// wrappers of one transaction count as two transactions.
//
// A nil, a pool such as *sql.DB, and any other value are refused with outmill.ErrInvalidTx by the
// calls that use the context. For a *sql.Conn, the store assumes that the caller has sent BEGIN
// TRANSACTION on it.
//
// Append runs under READ COMMITTED and XACT_ABORT, and does not change the settings of the
// session. An error of SQL Server rolls the transaction back. If Append refuses a record
// (ErrInvalidRecord, …), it sends no statement.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context {
	return sqlkit.WithTx(ctx, s, tx)
}

// TxOf returns the transaction that ctx carries for this store. See
// outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	return sqlkit.TxOf(ctx, s, s.config.TxFromContext)
}

func (s *Store) txOf(ctx context.Context) (Handle, error) {
	return sqlkit.TxFromOr(ctx, s, s.config.TxFromContext)
}

// InTx runs fn in a READ COMMITTED transaction of the pool. It commits if fn returns nil, and
// rolls back if fn returns an error or panics (the panic continues). The context that fn gets
// carries the transaction, so publishers and Append take part in it. The commit wakes the readers
// in this process.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	const operation = "transaction"
	if fn == nil {
		return s.explain(ctx, operation, storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := s.ready(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	var own error
	var topics storekit.TopicSet
	err := s.in(ctx, func(ctx context.Context, tx *sql.Tx) error {
		own = fn(storekit.GatherTopics(s.WithTx(ctx, tx), s, &topics), tx)
		return own
	})
	if own != nil && errors.Is(err, own) {
		return own
	}
	if err == nil {
		s.notifier.Notify(topics.List()...)
	}
	return s.explain(ctx, operation, err)
}

// within runs fn in the caller's transaction.
func (s *Store) within(ctx context.Context, operation string, tx Handle, fn func(ctx context.Context, on querier) error) error {
	if err := s.usable(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	unlock, err := s.inUse.Lock(ctx, tx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	defer unlock()
	return s.explain(ctx, operation, ended(fn(ctx, callers{tx})))
}

// callers is a transaction of the caller. Each call in it proves that it has not ended: the
// procedures do by themselves, and statements begin with onlyWithin. The driver, too, refuses
// statements of a *sql.Tx that the server has rolled back, but does not know the transaction of a
// *sql.Conn.
type callers struct{ Handle }

const onlyWithin = "IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;\n"

// proveTx returns an error if the transaction that ctx carries has ended. A *sql.Tx needs no proof:
// the driver refuses every statement in it afterwards, the user's too.
func (s *Store) proveTx(ctx context.Context) error {
	tx, err := s.txOf(ctx)
	if _, ok := tx.(*sql.Tx); ok || err != nil {
		return err
	}
	unlock, err := s.inUse.Lock(ctx, tx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = tx.ExecContext(ctx, onlyWithin)
	return err
}
