package driver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outmill/outmill/storekit"
)

// forever is longer than any wait: the context ends it.
const forever = 100 * 365 * 24 * time.Hour

// callerError is the error of a function of the caller, which is returned as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

// Transact runs fn in a transaction that has the write lock from its beginning. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return d.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
}

// InTx is Transact for a function that takes the transaction.
func (d *Driver) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	err := d.inTx(ctx, fn)
	var own *callerError
	if errors.As(err, &own) {
		return own.err
	}
	if err != nil {
		return d.Explain(ctx, "transaction", err)
	}
	return nil
}

func (d *Driver) inTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return storekit.InvalidConfig("InTx: fn is nil")
	}
	if err := d.ready(ctx); err != nil {
		return err
	}
	run := func() error {
		var own *ownTx
		err := d.whileBusy(ctx, func() (err error) {
			own, err = d.begin(ctx, d.lock)
			return err
		})
		if err != nil {
			return err
		}
		defer own.discard()
		d.writer.HasLock()
		var then []func()
		d.commits.own(own.tx, &then)
		defer d.commits.forget(own.tx)
		if err := fn(d.WithTx(ctx, own.tx), own.tx); err != nil {
			return &callerError{err}
		}
		if err := own.commit(ctx); err != nil {
			return err
		}
		runAll(then)
		return nil
	}
	if storekit.IsPatient(ctx) {
		return d.inTurnOfHandlers(ctx, run)
	}
	return d.inTurn(ctx, run)
}

// inTurnOfHandlers is inTurn for the handler of a message, which waits until ctx ends. One handler at a time stands
// in the queue of the writers, so that an extension of leases, a claim or a publish waits for one and not for all.
// Between its attempts at a lock that another process has, it lets other writers of this process pass.
func (d *Driver) inTurnOfHandlers(ctx context.Context, fn func() error) error {
	if err := d.handlers.Enter(ctx, forever); err != nil {
		return err
	}
	defer d.handlers.Leave()
	for {
		err := d.inTurn(ctx, fn)
		var own *callerError
		if errors.As(err, &own) || !errors.Is(err, storekit.ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// TxLimit is 0, because SQLite has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }
