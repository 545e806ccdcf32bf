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
		s.Unrouted = s.Unrouted || line.Group == "" && slices.ContainsFunc(rows, (*stored).waitsForGroup)
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
		t.insert(n)
		t.undo = append(t.undo, func() { t.drop(t.byID[n.ID]) })
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

func (t *tx) Attach(_ context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	for _, r := range rows {
		s := t.byID[r.ID]
		if s == nil {
			continue
		}
		was, record := s.Step, s.record
		t.undo = append(t.undo, func() { s.Step, s.record = was, record })
		changed := *record
		changed.Joins = append(slices.Clone(record.Joins), join)
		s.Step, s.record = step, &changed
	}
	return nil
}

func (t *tx) Replace(_ context.Context, n driver.NewRow) error {
	s := t.byID[n.ID]
	size, was, damage := s.Size, s.record, s.damage
	t.undo = append(t.undo, func() { s.Size, s.record, s.damage, s.Broken = size, was, damage, damage.ofRow() })
	s.damage = s.damage.replaced()
	s.Broken = s.damage.ofRow()
	changed := *s.record
	changed.Payload, changed.Metadata = slices.Clone(n.Record.Payload), maps.Clone(n.Record.Metadata)
	s.Size, s.record = n.Size, &changed
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
		t.drop(s)
		t.undo = append(t.undo, func() { t.add(s) })
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
	was, text, history, damage := s.Row, s.record.LastError, s.history, s.damage
	t.undo = append(t.undo, func() {
		t.place(s, was)
		s.record.LastError, s.history, s.damage = text, history, damage
	})
	if now.Error != nil {
		s.record.LastError = *now.Error
	}
	if now.Tried != "" {
		s.history = now.Tried + s.history
		s.history = s.history[:min(len(s.history), driver.HistoryBytes)]
	}
	s.damage = s.damage.mended()
	now.Error, now.Blocked, now.Tried, now.Broken, now.Size, now.Step = nil, false, "", s.damage.ofRow(), s.Size, s.Step
	t.place(s, now)
}

// place changes the row of a record, which may leave its line.
func (t *tx) place(s *stored, now driver.Row) {
	if s.Line == now.Line {
		s.Row = now
		return
	}
	t.drop(s)
	s.Row = now
	t.add(s)
}

func (t *tx) setNotes(c driver.Changes) {
	if len(c.Open)+len(c.Drop)+len(c.Notes) == 0 {
		return
	}
	before := maps.Clone(t.notes)
	t.undo = append(t.undo, func() { t.notes = before })
	for _, n := range c.Open {
		key := noteKey{n.Line, n.Name}
		if note, known := t.notes[key]; known {
			note.Blocker, note.LookAt, note.Looks = "", 0, 0
			t.notes[key] = note
		}
	}
	for _, n := range c.Drop {
		if key := (noteKey{n.Line, n.Name}); t.notes[key].Looks == n.Looks {
			delete(t.notes, key)
		}
	}
	for _, n := range c.Notes {
		key := noteKey{n.Line, n.Name}
		if old, known := t.notes[key]; known && n.Name == n.Blocker {
			n.Head, n.Looks = min(n.Head, old.Head), old.Looks+1
		}
		t.notes[key] = n
	}
}

func (t *tx) Adopt(_ context.Context, topic, group string, limit int) (int, error) {
	rows := t.unrouted(topic)
	rows = rows[:min(len(rows), limit)]
	for _, s := range rows {
		t.regroup(s, group)
		t.undo = append(t.undo, func() { t.regroup(s, "") })
	}
	return len(rows), nil
}

func (t *tx) regroup(s *stored, group string) {
	t.drop(s)
	s.Group = group
	t.add(s)
}

func (t *tx) Forget(_ context.Context, group string) error {
	before := maps.Clone(t.notes)
	t.undo = append(t.undo, func() { t.notes = before })
	maps.DeleteFunc(t.notes, func(key noteKey, _ driver.Note) bool { return key.Group == group })
	return nil
}
