package driver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/storekit"
)

// ownTx is a transaction of the driver's own on a connection of the pool.
type ownTx struct {
	conn *sql.Conn
	tx   *sql.Tx
}

// begin returns a transaction that how has begun. It does not end with ctx by itself: database/sql would roll it back
// while it is still in use.
func (d *Driver) begin(ctx context.Context, how func(ctx context.Context, own *ownTx) error) (*ownTx, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	own := &ownTx{conn: conn}
	if err := how(context.WithoutCancel(ctx), own); err != nil {
		own.discard()
		return nil, err
	}
	return own, nil
}

// deferred begins a transaction that takes the write lock with its first write.
func deferred(ctx context.Context, own *ownTx) (err error) {
	own.tx, err = own.conn.BeginTx(ctx, nil)
	return err
}

// readOnly begins a transaction that writes nothing.
func readOnly(ctx context.Context, own *ownTx) (err error) {
	own.tx, err = own.conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	return err
}

// lock begins a transaction that has the write lock, or returns a busy error at once: the connection's busy timeout is
// off until then.
func (d *Driver) lock(ctx context.Context, own *ownTx) (err error) {
	var patience int
	if err := own.conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return err
	}
	if patience > 0 {
		if err := setBusyTimeout(ctx, own.conn, 0); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, setBusyTimeout(ctx, own.conn, patience)) }()
	}
	if err := deferred(ctx, own); err != nil {
		return err
	}
	return (&tx{d: d, h: own.tx, own: own.tx}).exec(ctx, sqlLock)
}

func setBusyTimeout(ctx context.Context, conn *sql.Conn, milliseconds int) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", milliseconds))
	return err
}

// commit commits, unless ctx has ended: a call that outlives its context has done nothing.
func (o *ownTx) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	crash.At(crash.BeforeCommit)
	err := o.tx.Commit()
	crash.At(crash.AfterCommit)
	if err != nil && mayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return err
}

// discard rolls back what is not committed, and returns the connection to the pool. If the connection may still
// be in a transaction, it closes it.
func (o *ownTx) discard() {
	if o.tx != nil {
		err := o.tx.Rollback()
		if err != nil && !errors.Is(err, sql.ErrTxDone) && code(err) != sqlite3.SQLITE_ERROR {
			_ = o.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
	}
	_ = o.conn.Close()
}
