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

// WithTx returns a context that carries tx: with it, Append takes part in
// that transaction. The transaction stays the caller's, who begins and ends
// it.
//
// tx is a *sql.Tx, a struct (or a pointer to one) that embeds one or has it in an
// exported field, such as bun.Tx, *sqlx.Tx, gorm's tx.Statement.ConnPool, ent's
// dialect.Tx and the Tx of watermill-sql v4, or another [Handle]. The store's
// statements go to the *sql.Tx itself, past what wraps it, and a transaction is
// the same one however it is wrapped. A wrapper that is to see the statements keeps
// its *sql.Tx in a field that is not exported, and passes statements and arguments
// on as they are: table-valued parameters are among them. Two such wrappers around
// one transaction count as two transactions.
//
// A nil, a pool such as *sql.DB, and anything else is refused with
// outmill.ErrInvalidTx by whatever uses the context. A *sql.Conn is taken for
// a connection on which the caller has said BEGIN TRANSACTION.
//
// Append runs under READ COMMITTED and XACT_ABORT, which end with it: whatever
// the session is set to stays as it is. An error of SQL Server's rolls the
// transaction back. What Append refuses (ErrInvalidRecord, …) sends no
// statement.
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

// InTx runs fn in a transaction of the pool, READ COMMITTED, commits if fn
// returns nil, and rolls back if it returns an error or panics (the panic goes
// on). The context that fn gets carries the transaction, so publishers and
// Append take part in it. Readers in this process are woken as soon as it is
// committed.
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
	return s.explain(ctx, operation, ended(fn(ctx, tx)))
}
