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

// Transact runs fn in a transaction that has the write lock from its beginning. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return d.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
}

// InTx is Transact for a function that takes the transaction. It returns the error of fn as it is.
func (d *Driver) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) (err error) {
	var fault error
	run := func() error {
		var t *tx
		err := d.whileBusy(ctx, func() (err error) {
			t, err = d.begin(ctx, sqlLock)
			return err
		})
		if err != nil {
			return d.orSchema(ctx, d.db, err)
		}
		defer t.discard()
		d.writer.HasLock()
		d.commits.begun.Store(t.own, t)
		defer d.commits.begun.Delete(t.own)
		if fault = fn(d.WithTx(ctx, t.own), t.own); fault != nil {
			return nil
		}
		if err := t.commit(ctx); err != nil {
			return err
		}
		runAll(t.onCommit)
		return nil
	}
	turn := d.inTurn
	if storekit.IsPatient(ctx) {
		turn = d.inTurnOfHandlers
	}
	if fn == nil {
		err = storekit.InvalidConfig("InTx: fn is nil")
	} else if err = d.ready(ctx); err == nil {
		err = turn(ctx, run)
	}
	switch {
	case fault != nil:
		return fault
	case err != nil:
		return d.Explain(ctx, "transaction", err)
	}
	d.prepare(ctx)
	return nil
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
		if err := d.inTurn(ctx, fn); !errors.Is(err, storekit.ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// TxLimit is 0, because SQLite has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }
