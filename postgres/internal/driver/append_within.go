package driver

import (
	"context"
	"errors"

	"github.com/outmill/outmill/engine/driver"
)

var _ driver.AppendWithin = (*Driver)(nil)

// AppendWithin runs fn, which inserts and does nothing else, as if the state were that of the last transaction of the process. Rows for the
// log then need one statement, which checks the state. It has no savepoint, which would be two round trips more through database/sql: if it
// fails, PostgreSQL ends the transaction, and so nothing of the append is left. The settings are the caller's, so log_check and log_insert
// name the schema of each function, operator and type that they use. They read meta and events by their keys: with the driver's settings a
// sequential scan counts as too expensive for a plan that the caller's transactions on the same connection would use again. If the state
// was another one, nothing was written, and Within follows.
func (d *Driver) AppendWithin(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	return d.onCaller(ctx, caller, func(to sender) error {
		last := d.last.Load()
		if last == nil {
			return d.withinOn(ctx, caller, to, fn)
		}
		a := &oneAppend{log: txLog{history: d.log.history.Load(), segment: d.log.segment.Load()}}
		t := &a.tx
		*t = tx{d: d, to: guessing{}, caller: to, guesses: true, state: *last, log: &a.log, queue: a.steps[:0]}
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

// oneAppend is the memory of a transaction that only inserts, and of its statements. The maps of its log are never written.
type oneAppend struct {
	tx    tx
	log   txLog
	steps [2]step
}

// insertWithin inserts the rows of a guess in the caller's transaction, if they are small, few and all for the log.
func (t *tx) insertWithin(ctx context.Context, rows []driver.NewRow, logged bool) error {
	if !logged || sizeOf(rows) >= largeInsert || t.d.copies(rows) || anyOf(rows, hasFixedTime) {
		return errGuess
	}
	t.to = t.caller
	same := t.addInsert(rows, true)
	t.addNotice(rows)
	err := t.flush(ctx)
	if err == nil && !*same {
		return errGuess
	}
	return err
}
