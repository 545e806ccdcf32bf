package memdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// tx is a transaction of the engine. It has the database for itself. undo has what a failure takes back, in
// the order of the changes.
type tx struct {
	*Database
	now      driver.Time
	caller   *Tx
	undo     []func()
	onCommit []func()
	// locked are the rows that Lock has returned: they are not lost.
	locked map[outmill.WorkItemID]bool
}

func (t *tx) OnCommit(fn func()) { t.onCommit = append(t.onCommit, fn) }

func (t *tx) committed() {
	for _, fn := range t.onCommit {
		fn()
	}
}

func (t *tx) State() driver.State {
	s := driver.State{Now: t.now, Generations: t.Generations, Serial: true, Notes: len(t.notes) > 0}
	for _, n := range t.notes {
		_, paused := driver.ByPause(n.Blocker)
		s.Paused = s.Paused || paused
	}
	for line, rows := range t.lines {
		s.Unrouted = s.Unrouted || line.Group == "" && slices.ContainsFunc(rows, func(s *stored) bool { return waitsForGroup(&s.Row) })
	}
	return s
}

func (t *tx) Insert(_ context.Context, rows []driver.NewRow) error {
	mine := rows
	if t.caller != nil {
		mine = slices.Concat(t.caller.rows, rows)
	}
	if err := t.unknown(mine); err != nil {
		return err
	}
	for i, n := range rows {
		// The rows of one message share a Seq, as in a log that each message is written to once: no other driver makes it
		// so hard for package engine.
		if i == 0 || n.Record != rows[i-1].Record {
			t.seq++
		}
		n.Seq = t.seq
		if t.caller != nil {
			copied := *n.Record
			copied.Payload, copied.Metadata = slices.Clone(n.Record.Payload), maps.Clone(n.Record.Metadata)
			n.Record = &copied
			t.caller.rows = append(t.caller.rows, n)
			continue
		}
		t.set(n.ID, newRow(n))
	}
	if n := len(rows); t.caller != nil {
		t.undo = append(t.undo, func() { t.caller.rows = t.caller.rows[:len(t.caller.rows)-n] })
	}
	return nil
}

// unknown returns an error if the database has a row with one of the ids, or if two of the rows have one id.
func (d *Database) unknown(rows []driver.NewRow) error {
	ids := make(map[outmill.WorkItemID]bool, len(rows))
	for _, n := range rows {
		if d.byID[n.ID] != nil || ids[n.ID] {
			return fmt.Errorf("a record with id %s exists: leave the id empty, and Append makes one", n.ID)
		}
		ids[n.ID] = true
	}
	return nil
}

// set is put that can be undone.
func (t *tx) set(id outmill.WorkItemID, s *stored) {
	was := t.byID[id]
	t.undo = append(t.undo, func() { t.put(id, was) })
	t.put(id, s)
}

func (t *tx) Attach(_ context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	for _, r := range rows {
		s := t.byID[r.ID]
		if s == nil {
			continue
		}
		changed, record := *s, *s.record
		record.Joins = append(slices.Clone(record.Joins), join)
		changed.Step, changed.record = step, &record
		t.set(r.ID, &changed)
	}
	return nil
}

func (t *tx) Replace(_ context.Context, n driver.NewRow) error {
	changed := *t.byID[n.ID]
	record := *changed.record
	record.Payload, record.Metadata = slices.Clone(n.Record.Payload), maps.Clone(n.Record.Metadata)
	changed.Size, changed.record, changed.metadata, changed.payload = n.Size, &record, "", ""
	t.set(n.ID, &changed)
	return nil
}

// errOutside is a fault of the engine: a caller's transaction only appends.
var errOutside = errors.New("a caller's transaction changes no rows: this is a fault of package engine")

func (t *tx) Apply(_ context.Context, c driver.Changes) (driver.Applied, error) {
	done := driver.Applied{Lost: map[outmill.WorkItemID]bool{}}
	if t.caller != nil {
		return done, errOutside
	}
	for _, change := range c.Rows {
		s := t.unchanged(change.Was)
		if s == nil {
			done.Lost[change.Was.ID] = true
			continue
		}
		t.change(s, change.Now)
	}
	for _, r := range c.Delete {
		s := t.unchanged(r)
		if s == nil {
			done.Lost[r.ID] = true
			continue
		}
		t.set(r.ID, nil)
	}
	t.setNotes(c)
	return done, nil
}

// unchanged returns the stored row, if it is still the one that the engine has read.
func (t *tx) unchanged(was driver.Row) *stored {
	s := t.byID[was.ID]
	if s == nil || s.Line != was.Line || s.Stage != was.Stage || s.Owner != was.Owner || s.Claims != was.Claims ||
		s.Wake != was.Wake || s.Step != was.Step ||
		t.lose != nil && !t.locked[was.ID] && t.lose() {
		return nil
	}
	return s
}

func (t *tx) change(s *stored, now driver.Row) {
	changed := *s
	if now.Error != nil {
		record := *s.record
		record.LastError, changed.record = *now.Error, &record
	}
	if now.Tried != "" {
		changed.history = now.Tried + s.history
		changed.history = changed.history[:min(len(changed.history), driver.HistoryBytes)]
	}
	now.Error, now.Blocked, now.Tried, now.Broken, now.Size, now.Step = nil, false, "", s.identity, s.Size, s.Step
	changed.Row = now
	t.set(s.ID, &changed)
}

// setNote sets a note; nil deletes it.
func (t *tx) setNote(key noteKey, n *driver.Note) {
	was := t.notes[key]
	t.undo = append(t.undo, func() { putIn(t.notes, key, was) })
	putIn(t.notes, key, n)
}

func (t *tx) setNotes(c driver.Changes) {
	for _, n := range c.Open {
		if key := (noteKey{n.Line, n.Name}); t.notes[key] != nil {
			note := *t.notes[key]
			note.Blocker, note.LookAt, note.Looks = "", 0, 0
			t.setNote(key, &note)
		}
	}
	for _, n := range c.Drop {
		if key := (noteKey{n.Line, n.Name}); t.notes[key] != nil && t.notes[key].Looks == n.Looks {
			t.setNote(key, nil)
		}
	}
	for _, n := range c.Notes {
		key := noteKey{n.Line, n.Name}
		if old := t.notes[key]; old != nil && n.Name == n.Blocker {
			n.Head, n.Looks = min(n.Head, old.Head), old.Looks+1
		}
		t.setNote(key, &n)
	}
}

func (t *tx) Adopt(_ context.Context, from driver.Line, group string, limit int) (int, error) {
	rows := t.unrouted(from)
	rows = rows[:min(len(rows), limit)]
	for _, s := range rows {
		changed := *s
		changed.Group = group
		t.set(s.ID, &changed)
	}
	return len(rows), nil
}

func (t *tx) Forget(_ context.Context, group string) error {
	for key := range t.notes {
		if key.Group == group {
			t.setNote(key, nil)
		}
	}
	return nil
}
