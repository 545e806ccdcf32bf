package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Handle is a transaction of database/sql in which the store can run statements: a *sql.Tx of
// any PostgreSQL driver, or another type with these methods, such as the ContextExecutor of
// watermill-sql v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx: with it, Append takes part in that transaction. The
// caller begins and ends the transaction.
//
// tx is a pgx.Tx (also a nested one), a *sql.Tx, a struct (or a pointer to one) that embeds one
// of them or has it in an exported field, such as bun.Tx, *sqlx.Tx, gorm's
// tx.Statement.ConnPool, ent's dialect.Tx and the Tx of watermill-sql v4, or another [Handle].
// The store sends its statements to the transaction itself and not to its wrapper, and treats a
// transaction as the same one in every wrapper. If a wrapper should see the statements, it must
// keep its transaction in an unexported field, and pass statements on unchanged; two such
// wrappers around one transaction count as two transactions.
//
// Calls that use the context refuse a nil, a pool, a bare connection of pgx, and any other
// value with outmill.ErrInvalidTx. A *sql.Conn counts as a connection on which the caller has
// sent BEGIN.
//
// As always in PostgreSQL, an error of a statement leaves the transaction unusable until it is
// rolled back, at least to a savepoint: calls with the context return outmill.ErrInvalidTx. So they
// do, and write nothing, if the session has ended, or if a COMMIT or ROLLBACK was sent as a
// statement. To find that, a call in a transaction of database/sql takes one more round trip if the
// driver is not pgx's. If Append refuses its input (ErrInvalidRecord, …), it sends no statement,
// and the transaction goes on. If PostgreSQL refuses a statement of Append, roll the transaction
// back, or to a savepoint of your own: an append of one round trip has none, because it would cost
// two more in a transaction of database/sql. Other calls go back to a savepoint of theirs.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context { return s.driver.WithTx(ctx, tx) }

// InTx runs fn in a READ COMMITTED transaction of the pool. It commits if fn returns nil, and
// rolls back if fn returns an error or panics (the panic continues). The context that fn gets
// carries the transaction, so publishers and Append take part in it.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	const operation = "transaction"
	if fn == nil {
		return s.driver.Explain(ctx, operation, storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := engine.Ready(ctx, s.Engine, operation); err != nil {
		return err
	}
	return s.driver.InTx(ctx, fn)
}

// Tx returns the transaction that ctx carries for this store, such as that of Transact. It
// reports false if there is none, or if it is not a pgx.Tx: then SQLTx or TxOf has it, such as
// the *sql.Tx of gorm, bun, sqlx, sqlc or ent. The first such call logs a line.
func (s *Store) Tx(ctx context.Context) (pgx.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[pgx.Tx](s.log, "Tx", found, err)
}

// SQLTx is Tx for a *sql.Tx, such as that of Transact if Config.DB is set, or that of a library
// over database/sql.
func (s *Store) SQLTx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.log, "SQLTx", found, err)
}
