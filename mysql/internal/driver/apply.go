package driver

import (
	"bytes"
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlStand locks the rows that are written, in the order of their places, and reads what must not have changed.
	sqlStand = `SELECT r.seq, r.id, r.grp, r.stage, r.wake_at, r.owner, r.claims, r.step FROM {p:records} AS r FORCE INDEX (PRIMARY)
WHERE r.seq IN (?) ORDER BY r.seq FOR UPDATE`

	// sqlLease is a claim.
	sqlLease = `UPDATE {p:records} SET stage = 4, wake_at = ?, owner = ?, worker = ?, claims = claims + 1, attempts = attempts + ?,
	expiries = expiries + ?, under = x'' WHERE seq IN (?)`

	// sqlExtend is the extension of leases.
	sqlExtend = `UPDATE {p:records} SET wake_at = ? WHERE seq IN (?)`

	// sqlChange is every other change: what a claim admits or holds, what ends a lease, what an operator does. A NULL leaves a column as it
	// is.
	sqlChange = `UPDATE {p:records} SET stage = ?, wake_at = ?, next_at = COALESCE(?, next_at), expires_at = COALESCE(?, expires_at),
	attempts = ?, claims = ?, expiries = ?, owner = ?, worker = ?, under = ?, parked = ?, processed_at = ?, processed_by = ?,
	last_error = COALESCE(?, last_error), history = LEFT(CONCAT(?, history), 3072) WHERE seq IN (?)`

	// sqlUnroute takes records from a group.
	sqlUnroute = `UPDATE {p:records} SET grp = x'' WHERE seq IN (?)`

	// sqlDelete is an ack where processed records do not stay, and a deletion by an operator or the janitor.
	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (?)`

	// sqlOpen has the next claim look at notes: something about their keys has changed.
	sqlOpen = `UPDATE {p:notes} SET blocker = x'', look_at = 0, looks = 0 WHERE (blocker <> x'' OR look_at <> 0 OR looks <> 0) AND (?)`
	// sqlNames and sqlNamesAndLooks are conditions for the notes of a line.
	sqlNames         = `(grp = ? AND topic = ? AND name IN (?))`
	sqlNamesAndLooks = `(grp = ? AND topic = ? AND name IN (?) AND looks = ?)`
	// sqlDrop deletes notes that hold nothing. A note that another claim has looked at since stays.
	sqlDrop = `DELETE FROM {p:notes} WHERE ?`

	// sqlPutNotes is what a claim leaves of notes. Those of pauses are written without a look at them: their looks go up, and their heads go
	// down.
	sqlPutNotes = `INSERT INTO {p:notes} (grp, topic, name, blocker, head, look_at, looks) VALUES ?
ON DUPLICATE KEY UPDATE head = IF(name = VALUES(blocker), LEAST(head, VALUES(head)), VALUES(head)),
	looks = IF(name = VALUES(blocker), looks + 1, VALUES(looks)), blocker = VALUES(blocker), look_at = VALUES(look_at)`

	// sqlForget and sqlForgetLines are for a group that is dropped.
	sqlForget      = `DELETE FROM {p:notes} WHERE grp = ?`
	sqlForgetLines = `DELETE FROM {p:lines} WHERE grp = ?`
)

// sqlUpdates are the statements of the kinds of updates.
var sqlUpdates = map[sqlkit.UpdateKind]string{sqlkit.Lease: sqlLease, sqlkit.Extend: sqlExtend, sqlkit.Change: sqlChange}

// Apply writes the changes of the rows that still stand as they were read, and then the notes.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	standing, err := t.standing(ctx, &c)
	if err != nil {
		return done, err
	}
	lost := func(was *driver.Row) bool {
		if standing(was) {
			return false
		}
		if done.Lost == nil {
			done.Lost = map[outmill.WorkItemID]bool{}
		}
		done.Lost[was.ID] = true
		return true
	}
	var updates sqlkit.Updates
	for i := range c.Rows {
		if change := &c.Rows[i]; !lost(&change.Was) {
			updates.Add(change)
			t.state.Unrouted = t.state.Unrouted || change.Now.Group == ""
		}
	}
	var deleted []int64
	for i := range c.Delete {
		if !lost(&c.Delete[i]) {
			deleted = append(deleted, c.Delete[i].Seq)
		}
	}
	err = updates.Each(func(kind sqlkit.UpdateKind, values []any, seqs []int64) error {
		return t.run(ctx, sqlUpdates[kind], append(values, seqs)...)
	})
	if err != nil {
		return done, err
	}
	if err := t.runList(ctx, sqlUnroute, updates.Unrouted); err != nil {
		return done, err
	}
	if err := t.runList(ctx, sqlDelete, deleted); err != nil {
		return done, err
	}
	return done, t.writeNotes(ctx, &c)
}

func (t *tx) runList(ctx context.Context, template string, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	return t.run(ctx, template, seqs)
}

// stands is what Apply compares of a row.
type stands struct {
	id, step    [16]byte
	group       string
	stage, wake int64
	owner       string
	claims      int64
}

// standing locks the rows that are written, and returns a function that says whether one is as it was read.
func (t *tx) standing(ctx context.Context, c *driver.Changes) (func(was *driver.Row) bool, error) {
	seqs := sqlkit.Mapped(c.Rows, func(c *driver.Change) int64 { return c.Was.Seq })
	seqs = append(seqs, seqsOf(c.Delete)...)
	found := make(map[int64]stands, len(seqs))
	if len(seqs) > 0 {
		err := t.each(ctx, func(scan scan) error {
			var seq int64
			var s stands
			err := scan(&seq, (*sqlkit.ID)(&s.id), &s.group, &s.stage, &s.wake, &s.owner, &s.claims, (*sqlkit.ID)(&s.step))
			found[seq] = s
			return err
		}, sqlStand, seqs)
		if err != nil {
			return nil, err
		}
	}
	return func(was *driver.Row) bool {
		s, known := found[was.Seq]
		if !known || !bytes.Equal(s.id[:], was.ID[:]) {
			return false
		}
		return was.Broken != "" || s == stands{was.ID, was.Step, was.Group, int64(was.Stage), int64(was.Wake), was.Owner, int64(was.Claims)}
	}, nil
}

// named is the condition for notes. The notes of a line stand in one list: the server reads a list in the order of its index, and needs
// more time for a condition for each note.
func (t *tx) named(notes []driver.Note, withLooks bool) fragment {
	type list struct {
		line  driver.Line
		looks int
	}
	return inLists(notes, func(n driver.Note) (list, string) {
		if !withLooks {
			n.Looks = 0
		}
		return list{n.Line, n.Looks}, n.Name
	}, func(l list, names []string) fragment {
		if withLooks {
			return t.d.part(sqlNamesAndLooks, l.line.Group, l.line.Name(), names, l.looks)
		}
		return t.d.part(sqlNames, l.line.Group, l.line.Name(), names)
	})
}

// writeNotes opens, drops and writes notes.
func (t *tx) writeNotes(ctx context.Context, c *driver.Changes) error {
	if len(c.Open) > 0 {
		if err := t.run(ctx, sqlOpen, t.named(c.Open, false)); err != nil {
			return err
		}
	}
	if len(c.Drop) > 0 {
		if err := t.run(ctx, sqlDrop, t.named(c.Drop, true)); err != nil {
			return err
		}
	}
	t.state.Noted(c.Notes)
	var rows fragment
	for i := range c.Notes {
		n := &c.Notes[i]
		if i > 0 {
			rows += ", "
		}
		rows += t.d.part(`(?, ?, ?, ?, ?, ?, ?)`, n.Group, n.Line.Name(), n.Name, n.Blocker, n.Head, n.LookAt, n.Looks)
	}
	if len(c.Notes) == 0 {
		return nil
	}
	return t.run(ctx, sqlPutNotes, rows)
}

// Forget deletes the notes of a group.
func (t *tx) Forget(ctx context.Context, group string) error {
	if err := t.run(ctx, sqlForget, group); err != nil {
		return err
	}
	return t.run(ctx, sqlForgetLines, group)
}
