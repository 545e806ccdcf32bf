package driver

import (
	"bytes"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ driver.Acker = (*Driver)(nil)

// ackItem is a lease in a list of leases.
type ackItem struct {
	ID    string `json:"id"`
	Claim int    `json:"claims"`
}

// Ack deletes rows by their leases in one round trip. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, _ bool) (left []outmill.Lease, err error) {
	// The order of the list is that of the locks. Rows that are claimed together have ids in the order of their appends, mostly.
	leases = slices.Clone(leases)
	slices.SortFunc(leases, func(a, b outmill.Lease) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	a := args{
		"rows":  jsonOf(sqlkit.Mapped(leases, func(l *outmill.Lease) ackItem { return ackItem{idText(l.ID), l.Claim} })),
		"owner": leases[0].Owner.String(),
	}
	err = d.repeat(ctx, func() error {
		left = nil
		crash.At(crash.BeforeCommit)
		err := (&tx{d: d, on: d.db}).query(ctx, "ack", a, func(scan scan) error {
			var found sqlkit.ID
			err := scan(&found)
			for _, l := range leases {
				if sqlkit.ID(l.ID) == found {
					left = append(left, l)
				}
			}
			return err
		})
		crash.At(crash.AfterCommit)
		if err != nil && mayBeCommitted(err) {
			return judge.Committed(err)
		}
		return err
	})
	return left, err
}
