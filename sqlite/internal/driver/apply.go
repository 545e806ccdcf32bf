package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

const (
	// sqlLease is a claim.
	sqlLease = `UPDATE {p:records} SET stage = 4, wake_at = ?2, owner = ?3, worker = ?4, claims = claims + 1, attempts = attempts + ?5,
	expiries = expiries + ?6, under = '' WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlExtend is the extension of leases.
	sqlExtend = `UPDATE {p:records} SET wake_at = ?2 WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlChange is every other change: what a claim admits or holds, what ends a lease, what an operator does. A NULL
	// leaves a column as it is.
	sqlChange = `UPDATE {p:records} SET stage = ?2, wake_at = ?3, next_at = coalesce(?4, next_at), expires_at = coalesce(?5, expires_at),
	attempts = ?6, claims = ?7, expiries = ?8, owner = ?9, worker = ?10, under = ?11, parked = ?12, processed_at = ?13, processed_by = ?14,
	last_error = coalesce(?15, last_error), history = iif(?16 = '', history, substr(CAST(?16 || history AS BLOB), 1, 3072))
WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlUnroute takes records from a group. It is apart from sqlChange, because it writes each index.
	sqlUnroute = `UPDATE {p:records} SET grp = '' WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlDelete is an ack where processed records do not stay, and a deletion by an operator or the janitor.
	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlAdopt gives records to the first group of their topic.
	sqlAdopt = `UPDATE {p:records} SET grp = ?2 WHERE seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:unrouted} WHERE grp = '' AND stage IN (0, 3) AND topic = ?1 ORDER BY seq LIMIT ?3)`
)

// Apply writes the changes of rows, and then the notes. Nobody else has changed the rows since the transaction has read
// them.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	changes := map[change][]int64{}
	var unrouted []int64
	for i := range c.Rows {
		was, now := &c.Rows[i].Was, &c.Rows[i].Now
		how := changeOf(was, now)
		changes[how] = append(changes[how], was.Seq)
		t.state.Unrouted = t.state.Unrouted || now.Group == ""
		if was.Group != now.Group {
			unrouted = append(unrouted, was.Seq)
		}
	}
	for how, seqs := range changes {
		if err := t.write(ctx, how, jsonOf(seqs)); err != nil {
			return driver.Applied{}, err
		}
	}
	if len(unrouted) > 0 {
		if err := t.exec(ctx, sqlUnroute, jsonOf(unrouted)); err != nil {
			return driver.Applied{}, err
		}
	}
	if len(c.Delete) > 0 {
		if err := t.exec(ctx, sqlDelete, seqsOf(c.Delete)); err != nil {
			return driver.Applied{}, err
		}
	}
	return driver.Applied{}, t.writeNotes(ctx, &c)
}

// change is what one statement writes of a row. The rows for which that is the same are written together.
type change struct {
	template string
	// row has what changes, and the other fields are zero. Of sqlLease, Attempts and Expiries are what is added.
	row      driver.Row
	hasError bool
	err      string
}

// same is a time that stays as it is.
const same = driver.Time(driver.None)

func changeOf(was, now *driver.Row) change {
	lease := *was
	lease.Stage, lease.Wake, lease.Owner, lease.Worker, lease.Under = driver.Leased, now.Wake, now.Owner, now.Worker, ""
	lease.Attempts, lease.Claims, lease.Expiries = now.Attempts, was.Claims+1, now.Expiries
	extension := *was
	extension.Wake = now.Wake
	switch {
	case lease == *now && was.Broken == "":
		return change{template: sqlLease, row: driver.Row{
			Wake: now.Wake, Owner: now.Owner, Worker: now.Worker, Attempts: now.Attempts - was.Attempts, Expiries: now.Expiries - was.Expiries,
		}}
	case extension == *now && was.Broken == "" && was.Stage == driver.Leased:
		return change{template: sqlExtend, row: driver.Row{Wake: now.Wake}}
	}
	c := change{template: sqlChange, row: driver.Row{
		Stage: now.Stage, Wake: now.Wake, Next: now.Next, Expires: now.Expires, Attempts: now.Attempts, Claims: now.Claims,
		Expiries: now.Expiries, Owner: now.Owner, Worker: now.Worker, Under: now.Under, Parked: now.Parked, Processed: now.Processed,
		By: now.By, Tried: now.Tried,
	}}
	// A row that could not be read gets its whole state. In others these times differ from row to row.
	if was.Broken == "" && was.Next == now.Next {
		c.row.Next = same
	}
	if was.Broken == "" && was.Expires == now.Expires {
		c.row.Expires = same
	}
	if now.Error != nil {
		c.hasError, c.err = true, *now.Error
	}
	return c
}

func (t *tx) write(ctx context.Context, c change, seqs string) error {
	r := &c.row
	switch c.template {
	case sqlLease:
		return t.exec(ctx, sqlLease, seqs, int64(r.Wake), r.Owner, r.Worker, r.Attempts, r.Expiries)
	case sqlExtend:
		return t.exec(ctx, sqlExtend, seqs, int64(r.Wake))
	}
	return t.exec(ctx, sqlChange, seqs, int64(r.Stage), int64(r.Wake), nullIf(r.Next == same, int64(r.Next)),
		nullIf(r.Expires == same, int64(r.Expires)), r.Attempts, r.Claims, r.Expiries, r.Owner, r.Worker, r.Under, r.Parked,
		int64(r.Processed), r.By, nullIf(!c.hasError, c.err), r.Tried)
}

// Adopt gives rows to a group.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	return t.changed(ctx, sqlAdopt, from.Name(), group, limit)
}
