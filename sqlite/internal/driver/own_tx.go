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

const (
	// readOnly is for begin.
	readOnly = ""

	// sqlLock changes nothing, but takes the write lock: a deferred transaction that begins with it behaves like
	// an immediate one.
	sqlLock = `UPDATE {p:meta} SET version = version WHERE only_row = 0`
)

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
	if how == readOnly {
		t.own, err = conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		t.h = t.own
		return t, err
	}
	var patience int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return nil, err
	}
	if patience > 0 {
		if err := setBusyTimeout(ctx, conn, 0); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, setBusyTimeout(ctx, conn, patience)) }()
	}
	if t.own, err = conn.BeginTx(ctx, nil); err != nil {
		return nil, err
	}
	t.h = t.own
	return t, t.exec(ctx, how)
}

func setBusyTimeout(ctx context.Context, conn *sql.Conn, milliseconds int) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", milliseconds))
	return err
}

// commit commits, unless ctx has ended: a call that outlives its context has done nothing.
func (t *tx) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	crash.At(crash.BeforeCommit)
	err := t.own.Commit()
	crash.At(crash.AfterCommit)
	if err != nil && mayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return err
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
