package driver

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ driver.Acker = (*Driver)(nil)

const (
	// sqlAcked locks the rows of an ack, and has the columns that it needs.
	sqlAcked = `SELECT r.seq, r.id, r.claims, r.step IS NOT NULL, r.grp, r.topic, r.rec_key FROM {p:records} AS r FORCE INDEX (ids)
WHERE r.id IN (?) AND r.stage = 4 AND r.owner = ? FOR UPDATE`
)

type acked struct {
	seq        int64
	lease      outmill.Lease
	isStep     bool
	group      string
	topic, key string
}

// Ack deletes rows by their leases. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	asked, ids, owner := make(map[outmill.Lease]bool, len(leases)), make([]outmill.WorkItemID, len(leases)), leases[0].Owner
	for i, l := range leases {
		asked[l], ids[i] = true, l.ID
	}
	err = d.Update(ctx, driver.Begin{Durable: durable}, func(dt driver.Tx) error {
		t := dt.(*tx)
		left = nil
		rows, err := list(ctx, t, func(scan scan, a *acked) error {
			a.lease.Owner = owner
			return scan(&a.seq, (*sqlkit.ID)(&a.lease.ID), &a.lease.Claim, &a.isStep, &a.group, &a.topic, &a.key)
		}, sqlAcked, ids, owner.String())
		if err != nil {
			return err
		}
		var seqs []int64
		opened := map[driver.Note]bool{}
		for _, a := range rows {
			switch {
			case !asked[a.lease]:
			case a.isStep:
				left = append(left, a.lease)
			default:
				seqs = append(seqs, a.seq)
				if a.key != "" {
					opened[driver.Note{Line: driver.LineOf(a.group, a.topic), Name: driver.KeyNote(a.key)}] = true
				}
			}
		}
		if err := t.runList(ctx, sqlDelete, seqs); err != nil {
			return err
		}
		return t.writeNotes(ctx, &driver.Changes{Open: slices.SortedFunc(maps.Keys(opened), byName)})
	})
	return left, err
}

func byName(a, b driver.Note) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Line.Name(), b.Line.Name()), cmp.Compare(a.Name, b.Name))
}
