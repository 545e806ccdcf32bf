package driver

import (
	"context"
	"strconv"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ driver.Noter = (*Driver)(nil)

// The answers of put_note.
const (
	noteAdded = 1
	noteLost  = -1
	noteBusy  = -2
)

// Note notes a message in the caller's transaction by one statement. See driver.Noter.
func (d *Driver) Note(ctx context.Context, caller any, e driver.Entry, keep, wait time.Duration, lease outmill.Lease) (
	added bool, err error) {
	args := noteArgs(e, keep, wait, lease)
	where := d.whereLeased(lease)
	answer, err := d.putNote(ctx, caller, append(args, where.noteArgs()...))
	if err == nil && answer == noteLost && where.batch == nil && !lease.ID.IsZero() {
		// The process does not know the lease: another one may have claimed it, or it has ended long ago.
		if where, err = d.findLeased(ctx, caller, lease); err == nil && where.batch != nil {
			answer, err = d.putNote(ctx, caller, append(args, where.noteArgs()...))
		}
	}
	switch {
	case err != nil:
		return false, err
	case answer == noteLost:
		return false, outmill.ErrLeaseLost
	case answer == noteBusy:
		return false, driver.ErrBusy
	}
	return answer == noteAdded, nil
}

// noteArgs are the arguments of put_note but for the place of a lease in the log.
func noteArgs(e driver.Entry, keep, wait time.Duration, lease outmill.Lease) []any {
	var id any
	if !lease.ID.IsZero() {
		id = lease.ID.String()
	}
	// A lock_timeout of 0 would wait for ever.
	millis := strconv.FormatInt(max(wait.Milliseconds(), 1), 10)
	args := make([]any, 0, 13)
	return append(args, e.Kind, e.Key, e.Value, sqlkit.CeilMicros(keep), millis, id, lease.Owner.String(), lease.Claim)
}

// noteArgs are the others.
func (r *logRef) noteArgs() []any {
	if r.batch == nil {
		return []any{nil, nil, nil, nil, nil}
	}
	return []any{r.line.topic, r.line.chain, r.batch.n, r.batch.token, r.ordinal}
}

func (d *Driver) putNote(ctx context.Context, caller any, args []any) (answer int, err error) {
	unlock, err := d.inUse.Lock(ctx, lockOwner(caller))
	if err != nil {
		return 0, err
	}
	defer unlock()
	to, err := d.senderOf(ctx, caller)
	if err != nil {
		return 0, err
	}
	t := &tx{d: d, to: to}
	t.add("put_note", args, func(scan scan) error { return scan(&answer) })
	if err := t.flush(ctx); err != nil {
		return 0, withSession(ctx, connOf(caller), err)
	}
	return answer, nil
}

// isOf reports whether the batch has given the lease: rows of the log are leased once, and are records later.
func (b *workBatch) isOf(lease outmill.Lease) bool {
	return lease.Claim == 1 && lease.Owner.String() == b.owner
}

// whereLeased is where a lease of the log is, as far as the process knows.
func (d *Driver) whereLeased(lease outmill.Lease) logRef {
	if found := d.log.remembered([]outmill.WorkItemID{lease.ID}); len(found) > 0 && found[0].batch.isOf(lease) {
		return found[0]
	}
	return logRef{}
}

// findLeased looks for a lease in the log.
func (d *Driver) findLeased(ctx context.Context, caller any, lease outmill.Lease) (where logRef, err error) {
	err = d.Within(ctx, caller, func(in driver.Tx) error {
		t := in.(*tx)
		_, err := t.Find(ctx, []outmill.WorkItemID{lease.ID})
		if ref := t.log.refs[lease.ID]; ref.batch != nil && ref.batch.isOf(lease) {
			where = ref
		}
		return err
	})
	return where, err
}
