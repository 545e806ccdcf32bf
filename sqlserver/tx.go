package sqlserver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outmill/outmill/internal/sqltx"
)

// Handle is what WithTx takes for a transaction: *sql.Tx of the driver
// github.com/microsoft/go-mssqldb, or anything else with these methods, such as
// watermill-sql's ContextExecutor.
type Handle = sqltx.Handle

// WithTx returns a context that carries tx: with it, Append takes part in
// that transaction. The transaction stays the caller's, who begins and ends
// it.
//
// A nil handle and a *sql.DB, which is no transaction, are refused with
// outmill.ErrInvalidTx by whatever uses the context. A *sql.Conn is taken for
// a connection on which the caller has said BEGIN TRANSACTION. Two handles
// around one transaction count as two transactions. A wrapper must pass
// statements and arguments on as they are: table-valued parameters are among
// them.
//
// Append runs under READ COMMITTED and XACT_ABORT, which end with it: whatever
// the session is set to stays as it is. An error of SQL Server's rolls the
// transaction back. What Append refuses (ErrInvalidRecord, …) sends no
// statement.
func (s *Store) WithTx(ctx context.Context, tx Handle) context.Context {
	return sqltx.Carry(ctx, s, tx)
}

// TxOf returns the transaction that ctx carries for this store. See
// outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	tx, err := s.txOf(ctx)
	if err != nil || tx == nil {
		return nil, err
	}
	return tx, nil
}

func (s *Store) txOf(ctx context.Context) (Handle, error) {
	return sqltx.FromOr(ctx, s, s.config.TxFromContext)
}

// InTx runs fn in a transaction of the pool, READ COMMITTED, commits if fn
// returns nil, and rolls back if it returns an error or panics (the panic goes
// on). The context that fn gets carries the transaction, so publishers and
// Append take part in it. Readers in this process are woken as soon as it is
// committed.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	const operation = "transaction"
	if fn == nil {
		return s.explain(ctx, operation, invalid("InTx: fn is nil"))
	}
	if err := s.ready(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	var own error
	err := s.in(ctx, func(ctx context.Context, tx *sql.Tx) error {
		own = fn(s.WithTx(ctx, tx), tx)
		return own
	})
	if own != nil && errors.Is(err, own) {
		return own
	}
	if err == nil {
		s.bell.Ring()
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
	return s.explain(ctx, operation, fn(ctx, tx))
}
