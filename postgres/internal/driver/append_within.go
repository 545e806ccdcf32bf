package driver

import (
	"context"
	"errors"

	"github.com/outmill/outmill/engine/driver"
)

var _ driver.AppendWithin = (*Driver)(nil)

// AppendWithin runs fn, which inserts and does nothing else, as if the state were that of the last transaction of the process. Rows for the
// log then need one round trip: a savepoint, the insert, which checks the state, and the end of the savepoint. The settings are the
// caller's, so log_check and log_insert name the schema of each function, operator and type that they use. If the state was another one,
// nothing was written, and Within follows.
func (d *Driver) AppendWithin(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	return d.onCaller(ctx, caller, func(to sender) error {
		last := d.last.Load()
		if last == nil {
			return d.withinOn(ctx, caller, to, fn)
		}
		t := &tx{d: d, to: guessing{}, caller: to, guesses: true, state: *last, log: d.newTxLog()}
		switch err := fn(t); {
		case errors.Is(err, errGuess):
			t.retract()
			return d.withinOn(ctx, caller, to, fn)
		case err != nil:
			return withSession(ctx, connOf(caller), err)
		}
		t.handOver(ctx, caller)
		return nil
	})
}

// insertWithin inserts the rows of a guess in the caller's transaction, if they are small, few and all for the log.
func (t *tx) insertWithin(ctx context.Context, rows []driver.NewRow, logged bool) error {
	if !logged || sizeOf(rows) >= largeInsert || t.d.copies(rows) || anyOf(rows, hasFixedTime) {
		return errGuess
	}
	t.to = t.caller
	var same *bool
	err := t.behindSavepoint(ctx, func() error {
		same = t.addInsert(rows, true)
		t.addNotice(rows)
		t.addStep(step{text: sqlRelease})
		return t.flush(ctx)
	})
	if err == nil && !*same {
		return errGuess
	}
	return err
}
