package driver

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ driver.Noter = (*Driver)(nil)

// Note notes a message in the caller's transaction by one statement, which writes in its last step or not at all. See driver.Noter.
func (d *Driver) Note(ctx context.Context, caller any, e driver.Entry, keep, wait time.Duration, lease outmill.Lease) (
	added bool, err error) {
	t, leave, err := d.join(ctx, caller)
	if err != nil {
		return false, err
	}
	defer leave()
	entry, answer := entryID(&e), 0
	err = t.query(ctx, "put_note", args{
		"entry": entry[:], "kind": e.Kind, "key": e.Key, "value": e.Value, "keep": sqlkit.CeilMicros(keep), "patience": millis(wait),
		"lock": d.lockOf("entry", e.Kind, e.Key), "leased": flag(!lease.ID.IsZero()), "id": lease.ID[:], "owner": lease.Owner.String(),
		"claim": lease.Claim,
	}, func(scan scan) error { return scan(&answer) })
	switch {
	case err != nil:
		return false, err
	case answer == leaseLost:
		return false, outmill.ErrLeaseLost
	case answer == entryBusy:
		return false, driver.ErrBusy
	}
	return answer == entryAdded, nil
}
