package driver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// carried is what WithTx puts into a context, whether or not it can be used.
type carried struct {
	tx  any
	err error
}

// WithTx returns a context that carries the caller's transaction: a pgx.Tx, a *sql.Tx, what embeds one, or a sqlkit.Handle.
func (d *Driver) WithTx(ctx context.Context, caller any) context.Context {
	return storekit.ContextWithTx(ctx, d, resolve(caller))
}

func resolve(caller any) carried {
	if own, ok := caller.(*openTx); ok {
		return carried{own, nil}
	}
	found, err := sqlkit.ResolveTx(caller, sqlkit.Driver{IsTx: isPgxTx, NoTx: isNoTx})
	return carried{found, err}
}

func isPgxTx(tx any) bool {
	_, ok := tx.(pgx.Tx)
	return ok
}

func isNoTx(tx any) string {
	switch tx.(type) {
	case *pgxpool.Pool:
		return fmt.Sprintf("a %T is a pool, not a transaction: pass what its Begin returns", tx)
	case *pgx.Conn, *pgxpool.Conn:
		return fmt.Sprintf("a %T is a connection, not a transaction: pass what its Begin returns", tx)
	}
	return ""
}

// TxOf returns the transaction that ctx carries.
func (d *Driver) TxOf(ctx context.Context) (any, error) {
	found, err := storekit.TxFromContext(ctx, d)
	if tx, ok := found.(carried); ok {
		return tx.tx, tx.err
	}
	if d.config.TxFromContext != nil {
		if adopted, ok := d.config.TxFromContext(ctx); ok {
			tx := resolve(adopted)
			return tx.tx, tx.err
		}
	}
	return nil, err
}

const (
	sqlSavepoint = `SAVEPOINT outmill`
	sqlRelease   = `RELEASE SAVEPOINT outmill`
)

// undo rolls back to a savepoint and forgets it. In a transaction that has failed pgx can prepare only the first of the two
// statements, so they are not sent together.
func (t *tx) undo(ctx context.Context, savepoint string) error {
	t.queue = nil
	for _, text := range []string{"ROLLBACK TO SAVEPOINT ", "RELEASE SAVEPOINT "} {
		if err := t.to.send(ctx, []step{{text: text + savepoint}}); err != nil {
			return err
		}
	}
	return nil
}

// Within runs fn in the caller's transaction, completely or not at all. The statements of fn run with the driver's settings, and
// the caller gets its own back. If the registrations change before it ends, fn runs again.
func (d *Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	return d.onCaller(ctx, caller, func(to sender) error { return d.withinOn(ctx, caller, to, fn) })
}

// onCaller runs fn on the sender of a caller's transaction, while no other call uses that.
func (d *Driver) onCaller(ctx context.Context, caller any, fn func(to sender) error) error {
	unlock, err := d.inUse.Lock(ctx, lockOwner(caller))
	if err != nil {
		return err
	}
	defer unlock()
	to, err := d.senderOf(ctx, caller)
	if err != nil {
		return err
	}
	return fn(to)
}

// withinOn is Within on the sender of a caller's transaction: see onCaller.
func (d *Driver) withinOn(ctx context.Context, caller any, to sender, fn func(driver.Tx) error) error {
	var t *tx
	tries := 0
	err := storekit.Repeat(ctx, stale, func() error {
		tries++
		t = &tx{d: d, to: to, log: d.newTxLog(), holds: tries > patientTries}
		return t.within(ctx, fn)
	})
	if err != nil {
		return withSession(ctx, connOf(caller), err)
	}
	t.handOver(ctx, caller)
	return nil
}

// handOver has the caller's transaction do behind its commit what the call wants to be done then.
func (t *tx) handOver(ctx context.Context, caller any) {
	if own, ok := caller.(*openTx); ok {
		own.onCommit = append(own.onCommit, t.AfterCommit...)
	}
	if own, ok := ctx.Value(begunBy{t.d}).(*begun); ok && caller == any(own.tx) {
		own.AfterCommit = append(own.AfterCommit, t.AfterCommit...)
	}
}

// within runs fn behind a savepoint, with the driver's settings.
func (t *tx) within(ctx context.Context, fn func(driver.Tx) error) error {
	return t.behindSavepoint(ctx, func() error {
		t.add("borrow", nil, nil)
		t.addHold()
		t.addState()
		if err := t.flush(ctx); err != nil {
			return err
		}
		t.sameHistory()
		if err := fn(t); err != nil {
			return err
		}
		t.add("giveback", nil, nil)
		t.addStep(step{text: sqlRelease})
		return t.flush(ctx)
	})
}

// behindSavepoint queues a savepoint and runs fn, which sends it and releases it. If fn fails, it goes back to the savepoint.
func (t *tx) behindSavepoint(ctx context.Context, fn func() error) error {
	saved := false
	t.addStep(step{text: sqlSavepoint, done: func(int) error {
		saved = true
		return nil
	}})
	err := fn()
	// Without the savepoint nothing was done, and to go back to it would end the transaction.
	if err != nil && saved {
		// If it fails, the caller can only roll back, and nothing is left either.
		_ = t.undo(context.WithoutCancel(ctx), "outmill")
	}
	return err
}

// senderOf returns what sends statements in a caller's transaction, and an error if that has ended.
func (d *Driver) senderOf(ctx context.Context, caller any) (sender, error) {
	switch tx := caller.(type) {
	case *openTx:
		return tx, tx.proven(ctx)
	case pgx.Tx:
		return onPgx{tx}, provenPgx(ctx, tx)
	case sqlkit.Handle:
		// Its first statement proves it.
		return &onSQL{handle: tx}, nil
	}
	return nil, fmt.Errorf("%w: the context carries a %T: use the store's WithTx", outmill.ErrInvalidTx, caller)
}

// lockOwner returns the connection if it is known, since nested transactions share it.
func lockOwner(caller any) any {
	if conn := connOf(caller); conn != nil {
		return conn
	}
	return caller
}

func connOf(caller any) *pgx.Conn {
	switch tx := caller.(type) {
	case *openTx:
		return tx.conn
	case pgx.Tx:
		return tx.Conn()
	}
	return nil
}

// Before a statement of the driver is sent in a caller's transaction, the connection must be in a transaction: after a ROLLBACK or
// COMMIT that was sent as a statement, each statement would be a transaction by itself. pgx knows this without a round trip.

var (
	errSessionEnded = errors.New("the session has ended")
	// errNotPgx says that the driver below database/sql is not pgx.
	errNotPgx = errors.New("the driver is not pgx")
)

// idle is the status of a connection that is in no transaction.
const idle = 'I'

// provenPgx returns an error if the transaction has ended.
func provenPgx(ctx context.Context, tx pgx.Tx) error {
	// An empty batch sends nothing. It fails after a Commit or Rollback of tx itself, after which the connection may belong to
	// somebody else.
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

// proof is the first argument of a statement that goes through database/sql. pgx gives it the connection before it sends the
// statement. Other drivers ask for its value, which is an error.
type proof struct{}

// RewriteQuery implements pgx.QueryRewriter. It changes nothing.
func (proof) RewriteQuery(_ context.Context, conn *pgx.Conn, text string, args []any) (string, []any, error) {
	return text, args, provenOn(conn)
}

// Value implements driver.Valuer.
func (proof) Value() (sqldriver.Value, error) { return nil, errNotPgx }

// sqlProof is an error outside of a transaction.
const sqlProof = "SAVEPOINT outmill; RELEASE SAVEPOINT outmill"

// provenSQL takes a round trip. It is for drivers other than pgx.
func provenSQL(ctx context.Context, handle sqlkit.Handle) error {
	_, err := handle.ExecContext(ctx, sqlProof)
	if code(err) == codeNoTransaction {
		return storekit.TxGone(err)
	}
	return withSession(ctx, nil, err)
}

// withSession marks the error of a statement in a caller's transaction whose session has ended, such as for
// idle_in_transaction_session_timeout.
func withSession(ctx context.Context, conn *pgx.Conn, err error) error {
	if err == nil || storekit.Ended(ctx) != nil || errors.Is(err, outmill.ErrInvalidTx) {
		return err
	}
	if conn != nil && conn.IsClosed() || isConnection(err) {
		return storekit.TxGone(err)
	}
	return err
}

var _ sqlkit.Handle = (*sql.Tx)(nil)
