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

// readOnly is for begin.
const readOnly = ""

// sqlLock changes nothing, but takes the write lock: a deferred transaction that begins with it behaves like an immediate one.
const sqlLock = `UPDATE {p:meta} SET version = version WHERE only_row = 0`

// once runs fn in a transaction of the driver's own, and commits unless ctx has ended: a call that outlives its context has
// done nothing. See begin.
func (d *Driver) once(ctx context.Context, how string, fn func(*tx) error) error {
	t, err := d.begin(ctx, how)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := fn(t); err != nil {
		return err
	}
	if how != readOnly {
		if err := ctx.Err(); err != nil {
			return err
		}
		crash.At(crash.BeforeCommit)
		err := t.own.Commit()
		crash.At(crash.AfterCommit)
		if err != nil && mayBeCommitted(err) {
			return storekit.CommitInDoubt(err)
		}
		if err != nil {
			return err
		}
	}
	t.Committed()
	return nil
}

// begin returns a transaction on a connection of the pool, either a readOnly one, or one with the write lock, which the
// statement takes. If another connection has the lock, it returns a busy error at once: the connection's busy timeout is
// off until then. The transaction does not end with ctx by itself: database/sql would roll it back while it is still in use.
func (d *Driver) begin(ctx context.Context, how string) (_ *tx, err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &tx{d: d, conn: conn, kept: map[string]*sql.Stmt{}, interruptible: how == readOnly}
	defer func() {
		if err != nil {
			t.discard()
		}
	}()
	ctx = context.WithoutCancel(ctx)
	if how != readOnly {
		patience := 0
		set := func(milliseconds int) error {
			_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", milliseconds))
			return err
		}
		if err = conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err == nil && patience > 0 {
			defer func() { err = errors.Join(err, set(patience)) }()
			err = set(0)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.own, err = conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: how == readOnly}); err != nil {
		return nil, err
	}
	if t.h = t.own; how != readOnly {
		err = t.exec(ctx, how)
	}
	return t, err
}

// discard rolls back what is not committed, and returns the connection to the pool. If the connection may still
// be in a transaction, it closes it.
func (t *tx) discard() {
	if t.own != nil {
		err := t.own.Rollback()
		if err != nil && !errors.Is(err, sql.ErrTxDone) && code(err) != sqlite3.SQLITE_ERROR {
			_ = t.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
	}
	_ = t.conn.Close()
}
