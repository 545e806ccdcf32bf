package driver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outmill/outmill/storekit"
)

// Transact runs fn in a transaction that has the write lock from its beginning. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return d.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
}

// InTx is Transact for a function that takes the transaction. It returns the error of fn as it is. What comes before fn is
// repeated while the database is busy; fn runs once.
func (d *Driver) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	var fault, ended error
	begun := false
	work := func(t *tx) error {
		begun = true
		d.writer.hasLock()
		d.commits.begun.Store(t.own, t)
		defer d.commits.begun.Delete(t.own)
		fault = fn(d.WithTx(ctx, t.own), t.own)
		return fault
	}
	turn := d.inTurn
	if storekit.IsPatient(ctx) {
		turn = d.inTurnOfHandlers
	}
	err := storekit.InvalidConfig("InTx: fn is nil")
	if fn != nil {
		err = turn(ctx, false, func(ctx context.Context) error {
			return d.whileBusy(ctx, func() error {
				if ended = d.once(ctx, sqlLock, work); begun {
					return nil
				}
				return ended
			})
		})
	}
	if fault != nil {
		return fault
	}
	if err = d.ended(ctx, d.db, cmp.Or(err, ended)); err != nil {
		err = d.Explain(ctx, "transaction", err)
	}
	return err
}

// inTurnOfHandlers is inTurn for the handler of a message, which waits until ctx ends. One handler at a time stands
// in the queue of the writers, so that an extension of leases, a claim or a publish waits for one and not for all.
// Between its attempts at a lock that another process has, it lets other writers of this process pass.
func (d *Driver) inTurnOfHandlers(ctx context.Context, _ bool, fn func(ctx context.Context) error) error {
	leave, err := d.inUse.Lock(ctx, d)
	if err != nil {
		return err
	}
	defer leave()
	for {
		if err := d.inTurn(ctx, false, fn); !errors.Is(err, storekit.ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// TxLimit is 0, because SQLite has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }
