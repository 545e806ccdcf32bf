package driver

import (
	"bytes"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Acker = (*Driver)(nil)

// Ack deletes rows by their leases in one round trip. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	if leases, err = d.ackLog(ctx, leases, durable); err != nil || len(leases) == 0 {
		return nil, err
	}
	// What neither the process knows nor the records have, the engine looks for: another process may have claimed it.
	return d.ackRecords(ctx, leases, durable)
}

// ackRecords deletes records.
func (d *Driver) ackRecords(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	// The order of the list is that of the locks, as in every write of records.
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b outmill.Lease) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	args := []any{
		idsOf(leases, func(l *outmill.Lease) outmill.WorkItemID { return l.ID }),
		numbersOf(leases, func(l *outmill.Lease) int { return l.Claim }),
		leases[0].Owner.String(),
		len(leases),
	}
	err = d.repeat(ctx, func(failures) error {
		left = nil
		return d.alone(ctx, durable, func(t *tx) {
			t.add("acked_steps", args, func(scan scan) error {
				var id outmill.WorkItemID
				err := scan((*[16]byte)(&id))
				for _, l := range leases {
					if l.ID == id {
						left = append(left, l)
					}
				}
				return err
			})
			t.add("ack", args, nil)
		})
	})
	return left, err
}

// alone sends the statements that add queues as a transaction, in one round trip.
func (d *Driver) alone(ctx context.Context, durable bool, add func(t *tx)) (err error) {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { own.end(ctx, err) }()
	t := &tx{d: d, to: onPgx{own.conn}, own: own}
	t.addBegin(sqlBegin)
	t.add("settings", []any{durable}, nil)
	add(t)
	err = t.commit(ctx)
	return err
}
