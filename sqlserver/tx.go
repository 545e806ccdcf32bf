package sqlserver

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/engine"
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
// and arguments on unchanged, because one argument is a table-valued parameter. Two such
// wrappers of one transaction count as two transactions.
//
// A nil, a pool such as *sql.DB, and any other value are refused with outmill.ErrInvalidTx by the
// calls that use the context. For a *sql.Conn, the store assumes that the caller has sent BEGIN
// TRANSACTION on it.
//
// Calls in the transaction run under READ COMMITTED, and do not change the settings of the session. If
// Append refuses a record (ErrInvalidRecord, …), it sends no statement. If it fails later, it goes back to
// a savepoint of its own (SAVE TRANSACTION), and your transaction goes on without it. Some errors of SQL
// Server roll the whole transaction back, such as a deadlock, and any error if you have set XACT_ABORT:
// then each further call with the context returns outmill.ErrInvalidTx and writes nothing.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context { return s.driver.WithTx(ctx, tx) }

// InTx runs fn in a READ COMMITTED transaction of the pool. It commits if fn returns nil, and
// rolls back if fn returns an error or panics (the panic continues). The context that fn gets
// carries the transaction, so publishers and Append take part in it. The commit wakes the readers
// in this process.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	const operation = "transaction"
	if fn == nil {
		return s.driver.Explain(ctx, operation, storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := engine.Ready(ctx, s.Engine, operation); err != nil {
		return err
	}
	return s.driver.InTx(ctx, fn)
}

// Tx returns the transaction that ctx carries for this store, such as the one of Transact. It
// reports false if there is none, or if it is not a *sql.Tx: then TxOf has it, and the first such
// call logs a line.
func (s *Store) Tx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.log, "Tx", found, err)
}
