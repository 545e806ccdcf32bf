package memdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// tx is a transaction of the engine. It has the database for itself. undo has what a failure takes back, in
// the order of the changes.
type tx struct {
	*Database
	now    driver.Time
	caller *Tx
	undo   []func()
	storekit.AfterCommit
	// locked are the rows that Lock has returned: they are not lost.
	locked []outmill.WorkItemID
}

func (t *tx) State() driver.State {
	s := driver.State{Now: t.now, Generations: t.Generations, Serial: true, Notes: len(t.notes) > 0}
	for _, n := range t.notes {
		_, paused := driver.ByPause(n.Blocker)
		s.Paused = s.Paused || paused
	}
	for line := range t.lines {
		s.Unrouted = s.Unrouted || line.Group == "" && len(t.unrouted(line, 1)) > 0
	}
	return s
}

func (t *tx) Insert(_ context.Context, rows []driver.NewRow) error {
	made := make([]*stored, len(rows))
	for i, n := range rows {
		// The rows of one message share a Seq, as in a log that each message is written to once: no other driver makes it
		// so hard for package engine.
		if i == 0 || n.Record != rows[i-1].Record {
			t.seq++
		}
		n.Seq = t.seq
		made[i] = newRow(n)
	}
	if caller := t.caller; caller != nil {
		was := caller.rows
		t.undo = append(t.undo, func() { caller.rows = was })
		caller.rows = slices.Concat(was, made)
		return t.unknown(caller.rows)
	}
	if err := t.unknown(made); err != nil {
		return err
	}
	for _, s := range made {
		t.set(s.ID, s)
	}
	return nil
}

// unknown returns an error if the database has a row with one of the ids, or if two of the rows have one id.
func (d *Database) unknown(rows []*stored) error {
	ids := make(map[outmill.WorkItemID]bool, len(rows))
	for _, s := range rows {
		if d.byID[s.ID] != nil || ids[s.ID] {
			return fmt.Errorf("a record with id %s exists: leave the id empty, and Append makes one", s.ID)
		}
		ids[s.ID] = true
	}
	return nil
}

// set is put that can be undone.
func (t *tx) set(id outmill.WorkItemID, s *stored) {
	was := t.byID[id]
	t.undo = append(t.undo, func() { t.put(id, was) })
	t.put(id, s)
}

// swap is putIn that can be undone.
func swap[K comparable, V any](t *tx, m map[K]*V, key K, value *V) {
	was := m[key]
	t.undo = append(t.undo, func() { putIn(m, key, was) })
	putIn(m, key, value)
}

// edit puts a changed copy of a row in its place.
func (t *tx) edit(s *stored, how func(s *stored)) {
	changed, record := *s, *s.record
	changed.record = &record
	how(&changed)
	t.set(s.ID, &changed)
}

func (t *tx) Attach(_ context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	for _, r := range rows {
		if s := t.byID[r.ID]; s != nil {
			t.edit(s, func(s *stored) { s.Step, s.record.Joins = step, append(slices.Clone(s.record.Joins), join) })
		}
	}
	return nil
}

func (t *tx) Replace(_ context.Context, n driver.NewRow) error {
	t.edit(t.byID[n.ID], func(s *stored) {
		s.record.Payload, s.record.Metadata = slices.Clone(n.Record.Payload), maps.Clone(n.Record.Metadata)
		s.Size, s.metadata, s.payload = n.Size, "", ""
	})
	return nil
}

func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	rows, err := t.Find(ctx, []outmill.WorkItemID{id})
	if len(rows) == 0 {
		return r, false, err
	}
	t.locked = append(t.locked, id)
	return rows[0], true, nil
}

// errOutside is a fault of the engine: a caller's transaction only appends.
var errOutside = errors.New("a caller's transaction changes no rows: this is a fault of package engine")

func (t *tx) Apply(_ context.Context, c driver.Changes) (driver.Applied, error) {
	done := driver.Applied{Lost: map[outmill.WorkItemID]bool{}}
	if t.caller != nil {
		return done, errOutside
	}
	write := func(was driver.Row, how func(s *stored)) {
		if s := t.unchanged(was); s != nil {
			how(s)
		} else {
			done.Lost[was.ID] = true
		}
	}
	for _, change := range c.Rows {
		write(change.Was, func(s *stored) { t.edit(s, func(s *stored) { s.become(change.Now) }) })
	}
	for _, r := range c.Delete {
		write(r, func(s *stored) { t.set(s.ID, nil) })
	}
	t.setNotes(c)
	return done, nil
}

// unchanged returns the stored row, if it is still the one that the engine has read.
func (t *tx) unchanged(was driver.Row) *stored {
	s := t.byID[was.ID]
	if s == nil || s.Line != was.Line || s.Stage != was.Stage || s.Owner != was.Owner || s.Claims != was.Claims ||
		s.Wake != was.Wake || s.Step != was.Step ||
		t.lose != nil && !slices.Contains(t.locked, was.ID) && t.lose() {
		return nil
	}
	return s
}

// become takes over what Apply writes of a row.
func (s *stored) become(now driver.Row) {
	if now.Error != nil {
		s.record.LastError = *now.Error
	}
	if now.Tried != "" {
		s.history = now.Tried + s.history
		s.history = s.history[:min(len(s.history), driver.HistoryBytes)]
	}
	now.Error, now.Blocked, now.Tried, now.Broken, now.Size, now.Step = nil, false, "", s.identity, s.Size, s.Step
	s.Row = now
}

func (t *tx) setNotes(c driver.Changes) {
	for _, n := range c.Open {
		if key := (noteKey{n.Line, n.Name}); t.notes[key] != nil {
			note := *t.notes[key]
			note.Blocker, note.LookAt, note.Looks = "", 0, 0
			swap(t, t.notes, key, &note)
		}
	}
	for _, n := range c.Drop {
		if key := (noteKey{n.Line, n.Name}); t.notes[key] != nil && t.notes[key].Looks == n.Looks {
			swap(t, t.notes, key, nil)
		}
	}
	for _, n := range c.Notes {
		key := noteKey{n.Line, n.Name}
		if old := t.notes[key]; old != nil && n.Name == n.Blocker {
			n.Head, n.Looks = min(n.Head, old.Head), old.Looks+1
		}
		swap(t, t.notes, key, &n)
	}
}

func (t *tx) Adopt(_ context.Context, from driver.Line, group string, limit int) (int, error) {
	rows := t.unrouted(from, limit)
	for _, r := range rows {
		t.edit(t.byID[r.ID], func(s *stored) { s.Group = group })
	}
	return len(rows), nil
}

// unrouted are the first rows of the topic and part that wait for a first group.
func (t *tx) unrouted(line driver.Line, limit int) []driver.Row {
	rows := t.found(driver.Search{By: driver.ByUnrouted, Line: line})
	return rows[:min(len(rows), limit)]
}

func (t *tx) Forget(_ context.Context, group string) error {
	for key := range t.notes {
		if key.Group == group {
			swap(t, t.notes, key, nil)
		}
	}
	return nil
}
