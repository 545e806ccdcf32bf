package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// WithTx returns a context that carries the caller's transaction. See sqlkit.WithTx.
func (d *Driver) WithTx(ctx context.Context, caller any) context.Context {
	return sqlkit.WithTx(ctx, d, caller)
}

// TxOf returns the transaction that ctx carries.
func (d *Driver) TxOf(ctx context.Context) (any, error) {
	return sqlkit.TxOf(ctx, d, d.config.TxFromContext)
}

// Within runs fn in the caller's transaction, completely or not at all. It checks ctx at its start and is not
// interrupted afterwards, because SQLite would roll back the caller's whole transaction.
func (d *Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	h, ok := caller.(sqlkit.Handle)
	if !ok {
		return fmt.Errorf("%w: the context carries a %T: use the store's WithTx", outmill.ErrInvalidTx, caller)
	}
	unlock, err := d.inUse.Lock(ctx, h)
	if err != nil {
		return err
	}
	defer unlock()
	ctx = context.WithoutCancel(ctx)
	var t *tx
	if err = proven(ctx, h); err == nil {
		err = savepoint(ctx, h, func() (err error) {
			if t, err = d.join(ctx, h); err != nil {
				return d.ended(ctx, h, err)
			}
			return fn(t)
		})
	}
	if err == nil {
		d.afterCommit(caller, t.last, t.AfterCommit)
	}
	if isBusy(err) {
		return fmt.Errorf("another connection is writing, or has written since this transaction first read: begin it with BEGIN IMMEDIATE "+
			"(store.InTx, or _txlock=immediate in the DSN), roll it back and try again (%w)", err)
	}
	return err
}

// sqlOutside fails at its BEGIN within a transaction, and changes nothing.
const sqlOutside = "BEGIN; ROLLBACK"

// proven returns an error if the caller's transaction has ended. SQLite ends a transaction by itself, such as for
// an interrupted statement or a full database, and database/sql does not notice that. Without this, the driver's
// statements would take effect one by one.
func proven(ctx context.Context, h sqlkit.Handle) error {
	_, err := h.ExecContext(ctx, sqlOutside)
	switch {
	case err == nil:
		return storekit.TxGone(nil)
	case code(err) == sqlite3.SQLITE_ERROR:
		return nil
	}
	return err
}

// join returns a tx on the caller's handle. Prepared statements work only in transactions of the same *sql.DB, and
// database/sql shows whether that is so only by refusing them. An error of SQLite may have ended the transaction.
func (d *Driver) join(ctx context.Context, h sqlkit.Handle) (*tx, error) {
	t := &tx{d: d, h: h, patient: true}
	if own, ok := h.(*sql.Tx); ok && d.prepared(sqlState) != nil {
		t.own, t.kept = own, map[string]*sql.Stmt{}
		if err := t.readState(ctx); err == nil || code(err) != 0 {
			return t, err
		}
		t.own, t.kept = nil, nil
	}
	return t, t.readState(ctx)
}

// savepoint undoes what fn has done if it fails.
func savepoint(ctx context.Context, h sqlkit.Handle, fn func() error) error {
	if _, err := h.ExecContext(ctx, "SAVEPOINT outmill"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undo := h.ExecContext(ctx, "ROLLBACK TO outmill")
		_, release := h.ExecContext(ctx, "RELEASE outmill")
		return errors.Join(err, undo, release)
	}
	_, err := h.ExecContext(ctx, "RELEASE outmill")
	return err
}
