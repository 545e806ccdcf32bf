package engine

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var (
	_ roles.Transactor     = (*Engine)(nil)
	_ storekit.CommitJudge = (*Engine)(nil)
	_ roles.Joins          = (*Engine)(nil)
	_ roles.Inbox          = (*Engine)(nil)
	_ roles.Sagas          = (*Engine)(nil)
)

// A call that takes part in a caller's transaction is a Within of the driver: it has a savepoint of its own, so that
// an error leaves the transaction usable. Such calls append rows and change entries. They change no row, because a
// transaction that stays open would keep a record from its worker.

// Transact runs fn in a transaction. See roles.Transactor.
func (e *Engine) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	const operation = "transact"
	explain := func(err error) error { return e.explain(ctx, operation, err) }
	prove := func(ctx context.Context) error {
		return e.inTx(ctx, operation, func(context.Context, *tx) error { return nil })
	}
	return storekit.TransactOr(ctx, e, fn, explain, prove, func() error {
		if err := e.ready(ctx); err != nil {
			return explain(err)
		}
		return e.db.Transact(ctx, storekit.Forgetful(ctx, fn))
	})
}

// MayBeCommitted asks the driver what the error of a commit means. See storekit.CommitJudge.
func (e *Engine) MayBeCommitted(ctx context.Context, err error) bool {
	judge, ok := e.db.(storekit.CommitJudge)
	return !ok || judge.MayBeCommitted(ctx, err)
}

// TxLimit returns the longest duration of a transaction. See roles.Transactor.
func (e *Engine) TxLimit() time.Duration { return e.db.TxLimit() }

// inTx runs fn in the transaction of ctx, or in one of its own, which is durable. In both it may insert rows, and
// write entries; in the caller's it changes no row.
func (e *Engine) inTx(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error) error {
	return e.inTxOr(ctx, operation, fn, e.own(ctx, e.db.Update, driver.Begin{Durable: true}))
}

// viewTx is inTx for what only reads.
func (e *Engine) viewTx(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error) error {
	return e.inTxOr(ctx, operation, fn, e.own(ctx, e.db.View, driver.Begin{}))
}

func (e *Engine) inTxOr(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error, own run) error {
	return e.inTxOf(ctx, operation, e.db.Within, fn, own)
}

// inTxOf runs fn by in if ctx carries a caller's transaction, and in its own otherwise.
func (e *Engine) inTxOf(ctx context.Context, operation string, in func(context.Context, any, func(driver.Tx) error) error,
	fn func(ctx context.Context, t *tx) error, own run) error {
	caller, err := e.db.TxOf(ctx)
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	if caller == nil {
		return e.do(ctx, operation, own, fn)
	}
	within := func(fn func(driver.Tx) error) error { return in(ctx, caller, fn) }
	return e.do(ctx, operation, within, func(ctx context.Context, t *tx) error {
		t.callers = true
		return fn(ctx, t)
	})
}

// busyAs returns the error of the call where another open transaction has changed what the call is about.
func busyAs(err, as error) error {
	if errors.Is(err, driver.ErrBusy) {
		return as
	}
	return err
}
