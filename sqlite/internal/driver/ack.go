package driver

import (
	"context"
	"strconv"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Acker = (*Driver)(nil)

// The statements of Ack get an object of ids to claim numbers, and the owner. The list comes first, so that SQLite
// never scans the table. A record that is a step of joins is left to the engine.
const (
	sqlAckedSteps = `SELECT +r.id, r.claims FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
WHERE r.stage = 4 AND r.owner = ?2 AND r.claims = j.value AND r.step IS NOT NULL`

	// sqlOpenAcked has the next claim look at the keys of acked records.
	sqlOpenAcked = `UPDATE {p:notes} SET blocker = '', look_at = 0, looks = 0 WHERE (blocker <> '' OR look_at <> 0 OR looks <> 0)
AND (grp, topic, name) IN (SELECT r.grp, r.topic, 'k' || r.key FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
	WHERE r.stage = 4 AND r.owner = ?2 AND r.claims = j.value AND r.step IS NULL AND r.key <> '')`

	// sqlAck is an ack where processed records do not stay.
	sqlAck = `DELETE FROM {p:records} WHERE seq IN (SELECT r.seq FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
	WHERE r.stage = 4 AND r.owner = ?2 AND r.claims = j.value AND r.step IS NULL)`
)

// Ack deletes rows by their leases. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	owners, lists := byOwner(leases)
	err = d.Update(ctx, driver.Begin{Durable: durable}, func(dt driver.Tx) error {
		t := dt.(*tx)
		left = nil
		for i, owner := range owners {
			steps, err := t.ack(ctx, owner, lists[i])
			if err != nil {
				return err
			}
			left = append(left, steps...)
		}
		return nil
	})
	return left, err
}

// ack returns the leases of records that are steps.
func (t *tx) ack(ctx context.Context, owner outmill.OwnerToken, leases string) (steps []outmill.Lease, err error) {
	if t.steps {
		steps, err = list(ctx, t, func(v *values, l *outmill.Lease) {
			*l = outmill.Lease{ID: outmill.WorkItemID(v.id(0)), Owner: owner, Claim: v.count(1)}
		}, sqlAckedSteps, leases, owner.String())
		if err != nil {
			return nil, err
		}
	}
	if t.state.Notes {
		if err := t.exec(ctx, sqlOpenAcked, leases, owner.String()); err != nil {
			return nil, err
		}
	}
	return steps, t.exec(ctx, sqlAck, leases, owner.String())
}

// byOwner returns the owners of leases, usually one, and an object of ids to claim numbers for each. An id may be
// in it twice, with different claims.
func byOwner(leases []outmill.Lease) (owners []outmill.OwnerToken, objects []string) {
	texts := map[outmill.OwnerToken][]byte{}
	for _, l := range leases {
		text, known := texts[l.Owner]
		separator := byte(',')
		if !known {
			owners = append(owners, l.Owner)
			separator = '{'
		}
		text = append(text, separator, '"')
		text = append(text, l.ID.String()...)
		text = append(text, '"', ':')
		texts[l.Owner] = strconv.AppendInt(text, int64(l.Claim), 10)
	}
	for _, owner := range owners {
		objects = append(objects, string(texts[owner])+"}")
	}
	return owners, objects
}
