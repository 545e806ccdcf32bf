package driver

import (
	"context"
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

// join returns a tx in the caller's transaction, which no other call uses until leave is called.
func (d *Driver) join(ctx context.Context, caller any) (t *tx, leave func(), err error) {
	handle, ok := caller.(sqlkit.Handle)
	if !ok {
		return nil, nil, fmt.Errorf("%w: the context carries a %T: use the store's WithTx", outmill.ErrInvalidTx, caller)
	}
	leave, err = d.inUse.Lock(ctx, handle)
	return &tx{d: d, on: handle, callers: true}, leave, err
}

// Within runs fn in the caller's transaction, completely or not at all. Each statement proves that the transaction still exists, runs
// under READ COMMITTED, and leaves the settings of the session alone. If fn fails, what it has done is undone by a savepoint; where
// the caller has set XACT_ABORT, an error of SQL Server has rolled back the whole transaction.
func (d *Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	t, leave, err := d.join(ctx, caller)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.query(ctx, "save", nil); err != nil {
		return err
	}
	if err = t.run(ctx, fn); err != nil {
		// If that fails, nothing is left either: SQL Server has ended the transaction, or the connection.
		_ = t.query(context.WithoutCancel(ctx), "undo", nil)
		return t.ofSchema(ctx, err)
	}
	if own, ok := d.begun.Load(caller); ok {
		then := own.(*storekit.AfterCommit)
		*then = append(*then, t.AfterCommit...)
	}
	return nil
}
