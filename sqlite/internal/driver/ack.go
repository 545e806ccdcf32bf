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
	owner, claims := leases[0].Owner, claimsOf(leases)
	err = d.Update(ctx, driver.Begin{Durable: durable}, func(dt driver.Tx) (err error) {
		t := dt.(*tx)
		if left = nil; t.steps {
			left, err = list(ctx, t, func(v *values, l *outmill.Lease) {
				*l = outmill.Lease{ID: outmill.WorkItemID(v.id(0)), Owner: owner, Claim: v.count(1)}
			}, sqlAckedSteps, claims, owner.String())
		}
		if err == nil && t.state.Notes {
			err = t.exec(ctx, sqlOpenAcked, claims, owner.String())
		}
		if err == nil {
			err = t.exec(ctx, sqlAck, claims, owner.String())
		}
		return err
	})
	return left, err
}

// claimsOf is an object of ids to claim numbers. An id may be in it twice, with different claims.
func claimsOf(leases []outmill.Lease) string {
	text := []byte{'{'}
	for i, l := range leases {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '"')
		text = append(text, l.ID.String()...)
		text = append(text, '"', ':')
		text = strconv.AppendInt(text, int64(l.Claim), 10)
	}
	return string(append(text, '}'))
}
