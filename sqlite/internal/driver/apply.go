package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
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

// sqlUpdates are the statements of the kinds of updates.
var sqlUpdates = map[sqlkit.UpdateKind]string{sqlkit.Lease: sqlLease, sqlkit.Extend: sqlExtend, sqlkit.Change: sqlChange}

// Apply writes the changes of rows, and then the notes. Nobody else has changed the rows since the transaction has read them.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (none driver.Applied, _ error) {
	var updates sqlkit.Updates
	for i := range c.Rows {
		updates.Add(&c.Rows[i])
		t.state.Unrouted = t.state.Unrouted || c.Rows[i].Now.Group == ""
	}
	err := updates.Each(func(kind sqlkit.UpdateKind, values []any, seqs []int64) error {
		return t.exec(ctx, sqlUpdates[kind], append([]any{jsonOf(seqs)}, values...)...)
	})
	if err != nil {
		return none, err
	}
	t.state.Noted(c.Notes)
	return none, t.execEach(ctx, []lists{
		{sqlUnroute, listOf(updates.Unrouted, func(seq *int64) int64 { return *seq })}, {sqlDelete, seqsOf(c.Delete)},
		{sqlOpen, noteList(c.Open)}, {sqlDrop, noteList(c.Drop)}, {sqlNote, noteList(c.Notes)},
	}...)
}

// lists are a statement and the list that it is for, as JSON.
type lists struct{ template, list string }

// execEach runs the statements whose lists are not empty.
func (t *tx) execEach(ctx context.Context, all ...lists) error {
	for _, s := range all {
		if s.list == "[]" {
			continue
		}
		if err := t.exec(ctx, s.template, s.list); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	return t.changed(ctx, sqlAdopt, from.Name(), group, limit)
}
