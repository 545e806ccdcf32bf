package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
)

// Before a statement of the store is sent in a caller's transaction, the connection must be in a
// transaction: after a ROLLBACK or COMMIT that was sent as a statement, each statement of the store
// would be a transaction by itself. pgx knows this without a round trip.

var (
	errSessionEnded = errors.New("the session has ended")
	// errNotPgx says that the driver below database/sql is not pgx.
	errNotPgx = errors.New("the driver is not pgx")
)

// idle is the status of a connection that is in no transaction.
const idle = 'I'

// provenPgx returns an error if the transaction has ended.
func provenPgx(ctx context.Context, tx pgx.Tx) error {
	// An empty batch sends nothing. It fails after a Commit or Rollback of tx itself, after which
	// the connection may belong to somebody else.
	if err := tx.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return err
	}
	if conn := tx.Conn(); conn != nil {
		return provenOn(conn)
	}
	return nil
}

func provenOn(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return storekit.TxGone(errSessionEnded)
	case conn.PgConn().TxStatus() == idle:
		return storekit.TxGone(nil)
	}
	return nil
}

// proof is the first argument of a statement that goes through database/sql. pgx gives it the
// connection before it sends the statement. Other drivers ask for its value, which is an error.
type proof struct{}

// RewriteQuery implements pgx.QueryRewriter. It changes nothing.
func (proof) RewriteQuery(_ context.Context, conn *pgx.Conn, text string, args []any) (string, []any, error) {
	return text, args, provenOn(conn)
}

// Value implements driver.Valuer.
func (proof) Value() (sqldriver.Value, error) { return nil, errNotPgx }

// sqlProof is an error outside of a transaction.
const sqlProof = "SAVEPOINT outmill; RELEASE SAVEPOINT outmill"

// provenSQL takes a round trip. It is for drivers other than pgx, and if there is no statement
// that a proof can go with.
func provenSQL(ctx context.Context, handle Handle) error {
	_, err := handle.ExecContext(ctx, sqlProof)
	if code(err) == codeNoTransaction {
		return storekit.TxGone(err)
	}
	return withSession(ctx, nil, err)
}

// proven returns an error if the transaction has ended.
func proven(ctx context.Context, tx any) error {
	switch tx := tx.(type) {
	case *openTx:
		return tx.proven(ctx)
	case pgx.Tx:
		return provenPgx(ctx, tx)
	}
	return provenSQL(ctx, tx.(Handle))
}

// proveTx is proven for the transaction that ctx carries.
func (s *Store) proveTx(ctx context.Context) error {
	tx, err := s.TxOf(ctx)
	if err != nil {
		return err
	}
	unlock, err := s.inUse.Lock(ctx, lockOwner(tx))
	if err != nil {
		return err
	}
	defer unlock()
	return proven(ctx, tx)
}

// provenOnPool is proven for a transaction that the store has begun on this connection of
// database/sql.
func provenOnPool(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	known := false
	err := conn.Raw(func(driver any) error {
		if driver, ok := driver.(interface{ Conn() *pgx.Conn }); ok {
			known = true
			return provenOn(driver.Conn())
		}
		return nil
	})
	if known || err != nil {
		return err
	}
	return provenSQL(ctx, tx)
}

// withSession marks the error of a statement in a caller's transaction whose session has ended,
// such as for idle_in_transaction_session_timeout.
func withSession(ctx context.Context, conn *pgx.Conn, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if conn != nil && conn.IsClosed() || isConnection(err) {
		return storekit.TxGone(err)
	}
	return err
}

// isConnection reports whether the error is one of the connection, or one after which the server
// closes it.
func isConnection(err error) bool {
	switch code(err) {
	case codeAdminShutdown, codeCrashShutdown, codeIdleInTransaction, codeTransactionTimeout:
		return true
	}
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, new(*net.OpError))
}
