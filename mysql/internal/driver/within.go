package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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

const (
	// sqlInTx is whether the session is in a transaction, 1 or 0, which only MariaDB can say: MySQL reads the rest of it, -1. It reads no
	// table, because in a session without autocommit that would begin a transaction.
	sqlInTx = `SELECT /*M!100000 @@in_transaction + 0 * */ -1`

	// The savepoint of a call. In a session with autocommit the server takes SAVEPOINT outside of a transaction, and forgets it at once:
	// sqlUndo then fails.
	sqlSave    = `SAVEPOINT outmill`
	sqlUndo    = `ROLLBACK TO SAVEPOINT outmill`
	sqlRelease = `RELEASE SAVEPOINT outmill`
)

// gone marks the error of a savepoint that does not exist: the transaction has ended. A deadlock ends it, and so does a lock wait with
// innodb_rollback_on_timeout, a statement of DDL, and a COMMIT that is sent as a statement. The session is in autocommit then.
func gone(err error) error {
	if number(err) == errNoSavepoint {
		return storekit.TxGone(err)
	}
	return err
}

// join returns a tx in the caller's transaction, which no other call uses until leave is called.
func (d *Driver) join(ctx context.Context, caller any) (t *tx, leave func(), err error) {
	handle, ok := caller.(sqlkit.Handle)
	if !ok {
		return nil, nil, fmt.Errorf("%w: the context carries a %T: use the store's WithTx", outmill.ErrInvalidTx, caller)
	}
	leave, err = d.inUse.Lock(ctx, handle)
	return d.on(handle), leave, err
}

// handOver has the functions of a tx run after the commit of the caller's transaction, if the driver has begun that.
func (d *Driver) handOver(caller any, t *tx) {
	if own, ok := d.begun.Load(caller); ok {
		then := own.(*storekit.AfterCommit)
		*then = append(*then, t.AfterCommit...)
	}
}

// Within runs fn in the caller's transaction, completely or not at all.
func (d *Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	t, leave, err := d.join(ctx, caller)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.save(ctx, fn); err != nil {
		return err
	}
	d.handOver(caller, t)
	return nil
}

// save runs fn between a savepoint and its release, and undoes what fn has done if it fails.
func (t *tx) save(ctx context.Context, fn func(driver.Tx) error) error {
	if err := t.prove(ctx); err != nil {
		return err
	}
	err := t.readState(ctx)
	if err == nil {
		err = fn(t)
	}
	if err == nil {
		_, err = t.on.ExecContext(ctx, sqlRelease)
		return gone(err)
	}
	// A call whose context has ended must not leave a part of it.
	ctx = context.WithoutCancel(ctx)
	if _, undo := t.on.ExecContext(ctx, sqlUndo); undo != nil {
		// The error of the call comes first: it says whether another run may succeed.
		return errors.Join(err, gone(undo))
	}
	_, release := t.on.ExecContext(ctx, sqlRelease)
	return errors.Join(err, release)
}

// prove sets the savepoint, and returns storekit.TxGone if there is no transaction.
func (t *tx) prove(ctx context.Context) error {
	open := unknown
	if err := t.each(ctx, func(scan scan) error { return scan(&open) }, sqlInTx); err != nil {
		return err
	}
	if open == closed {
		return storekit.TxGone(nil)
	}
	_, err := t.on.ExecContext(ctx, sqlSave)
	if err == nil && open == unknown {
		_, err = t.on.ExecContext(ctx, sqlUndo)
	}
	return gone(err)
}

// Transact runs fn in a READ COMMITTED transaction, which is a *sql.Tx. The error of fn is returned as it is. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	var own error
	err := storekit.Repeat(ctx, judge.PassesForCaller, func() error {
		then := &storekit.AfterCommit{}
		err := d.in(ctx, func(tx *sql.Tx) error {
			d.begun.Store(tx, then)
			defer d.begun.Delete(tx)
			if own = fn(d.WithTx(ctx, tx)); own != nil {
				return own
			}
			return d.on(tx).prove(ctx)
		})
		if err == nil {
			then.Committed()
		}
		return err
	})
	if err != nil && own == nil {
		return d.Explain(ctx, "transaction", err)
	}
	return own
}
