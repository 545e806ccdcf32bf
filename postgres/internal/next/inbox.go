package next

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
	unlock, err := d.inUse.Lock(ctx, lockOwner(caller))
	if err != nil {
		return false, err
	}
	defer unlock()
	to, err := d.senderOf(ctx, caller)
	if err != nil {
		return false, err
	}
	var id any
	if !lease.ID.IsZero() {
		id = lease.ID.String()
	}
	// A lock_timeout of 0 would wait for ever.
	millis, answer := strconv.FormatInt(max(wait.Milliseconds(), 1), 10), 0
	t := &tx{d: d, to: to}
	t.add("put_note", []any{e.Kind, e.Key, e.Value, sqlkit.CeilMicros(keep), millis, id, lease.Owner.String(), lease.Claim},
		func(scan scan) error { return scan(&answer) })
	if err := t.flush(ctx); err != nil {
		return false, withSession(ctx, connOf(caller), err)
	}
	switch answer {
	case noteLost:
		return false, outmill.ErrLeaseLost
	case noteBusy:
		return false, driver.ErrBusy
	}
	return answer == noteAdded, nil
}
