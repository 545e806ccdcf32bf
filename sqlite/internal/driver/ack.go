package driver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Acker = (*Driver)(nil)

// sqlAcked has the columns that an ack needs of those that it names. The list comes first, so that SQLite never scans the table.
const sqlAcked = `SELECT r.seq, +r.id, r.claims, r.step IS NULL, +r.grp, +r.topic, +r.key
FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value WHERE r.stage = 4 AND r.owner = ?2`

// Ack deletes rows by their leases. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	asked, owner := make(map[outmill.Lease]bool, len(leases)), leases[0].Owner
	for _, l := range leases {
		asked[l] = true
	}
	err = d.Update(ctx, driver.Begin{Durable: durable}, func(dt driver.Tx) error {
		t, acked := dt.(*tx), driver.Changes{}
		left = nil
		_, err := list(ctx, t, func(v *values, _ *struct{}) {
			l := outmill.Lease{ID: outmill.WorkItemID(v.id(1)), Owner: owner, Claim: v.count(2)}
			group, topic, key, alone := v.text(4), v.text(5), v.text(6), v.truth(3)
			// A row that cannot be decoded is the engine's. It must not stop the others.
			whole := v.broken() == ""
			switch {
			case !asked[l]:
			case !alone || !whole:
				left = append(left, l)
			default:
				acked.Delete = append(acked.Delete, driver.Row{Seq: v.number(0)})
				if t.state.Notes && key != "" {
					acked.Open = append(acked.Open, driver.Note{Line: driver.LineOf(group, topic), Name: driver.KeyNote(key)})
				}
			}
		}, sqlAcked, listOf(leases, func(l *outmill.Lease) outmill.WorkItemID { return l.ID }), owner.String())
		if err != nil {
			return err
		}
		_, err = t.Apply(ctx, acked)
		return err
	})
	return left, err
}
