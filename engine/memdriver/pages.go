package memdriver

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page, err := driver.ReadPage(ctx, t, true, ask)
	page.Now = t.now
	return page, err
}

func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	pages := make([]driver.Page, len(lines))
	for i, line := range lines {
		ask.Line, ask.Due = line, 1
		alone := ask
		alone.Keys = true
		page, err := t.Page(ctx, alone)
		switch {
		case err != nil:
			return nil, err
		case len(page.Due)+len(page.Notes) > 0 || page.Unrouted:
			pages[i].Busy = true
		case ask.Keys:
			pages[i].Keys = page.Keys
			fallthrough
		default:
			pages[i].Ready = page.Ready
		}
	}
	return pages, nil
}

// looks reports whether a claim looks at the note.
func (t *tx) looks(n *driver.Note, free []string) bool {
	return slices.Contains(free, n.Blocker) || n.LookAt != 0 && n.LookAt <= t.now
}

// Notes is a part of a page. See driver.Parts.
func (t *tx) Notes(_ context.Context, line driver.Line, free []string, limit int) (notes []driver.Note, _ error) {
	for _, n := range t.notes {
		if n.Line == line && t.looks(n, free) {
			notes = append(notes, *n)
		}
	}
	slices.SortFunc(notes, func(a, b driver.Note) int { return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Name, b.Name)) })
	return notes[:min(len(notes), limit)], nil
}

// Under is a part of a page.
func (t *tx) Under(_ context.Context, line driver.Line, names []string, limit int) (rows []driver.Row, _ error) {
	for _, name := range names {
		n := 0
		for _, s := range t.lines[line] {
			if s.Stage == driver.Held && s.Under == name && n < limit {
				rows = append(rows, s.Row)
				n++
			}
		}
	}
	return rows, nil
}

// Keys is a part of a page.
func (t *tx) Keys(_ context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	states := make(map[string]driver.KeyState, len(keys))
	for _, key := range keys {
		states[key] = none
	}
	for _, s := range t.lines[line] {
		if state, asked := states[s.Key]; asked {
			states[s.Key] = t.stateWith(state, s, owner)
		}
	}
	return states, nil
}

func (t *tx) Whole(_ context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	state := none
	for _, s := range t.lines[line] {
		state = t.stateWith(state, s, owner)
	}
	return state, nil
}

// none is the state of a key without rows.
var none = driver.KeyState{Due: driver.None, Waiting: driver.None, Held: driver.None, Parked: driver.None}

func (t *tx) stateWith(state driver.KeyState, s *stored, owner string) driver.KeyState {
	over := t.expired(&s.Row)
	switch {
	case s.Stage == driver.Leased && s.Owner != owner && (s.Wake > t.now || !over):
		state.Other = s.Owner
	case s.Stage == driver.Leased && s.Wake <= t.now && !over:
		state.Due = min(state.Due, s.Seq)
	case s.Stage == driver.Delayed && s.Wake <= t.now && !over:
		state.Due = min(state.Due, s.Seq)
	case s.Stage == driver.Waiting && !over:
		if s.Wake <= t.now {
			state.Due = min(state.Due, s.Seq)
		}
		state.Waiting = min(state.Waiting, s.Seq)
	case s.Stage == driver.Held && s.Under == driver.KeyNote(s.Key):
		state.Held = min(state.Held, s.Seq)
	}
	if s.Parked {
		state.Parked = min(state.Parked, s.Seq)
	}
	return state
}

func (t *tx) HeldByKey(_ context.Context, line driver.Line, limit int) (rows []driver.Row, _ error) {
	for _, s := range t.lines[line] {
		if _, ofKey := driver.KeyOf(s.Under); s.Stage == driver.Held && ofKey && len(rows) < limit {
			rows = append(rows, s.Row)
		}
	}
	return rows, nil
}

func (t *tx) Pausing(_ context.Context, group string) ([]string, error) {
	blockers := map[string]bool{}
	for _, n := range t.notes {
		if _, paused := driver.ByPause(n.Blocker); n.Group == group && paused {
			blockers[n.Blocker] = true
		}
	}
	return slices.Sorted(maps.Keys(blockers)), nil
}

func (t *tx) Due(_ context.Context, ask driver.Topics) ([]driver.Line, error) {
	since := map[driver.Line]driver.Time{}
	note := func(line driver.Line, due driver.Time) {
		if first, known := since[line]; !known || due < first {
			since[line] = due
		}
	}
	for line, rows := range t.lines {
		if line.Group != ask.Group {
			continue
		}
		for _, s := range rows {
			if t.claimable(ask, s) {
				note(line, max(s.Next, s.Created))
			}
		}
	}
	for _, n := range t.notes {
		if n.Group == ask.Group && t.looks(n, ask.Free) {
			note(n.Line, n.LookAt)
		}
	}
	lines := slices.SortedFunc(maps.Keys(since), func(a, b driver.Line) int { return cmp.Or(cmp.Compare(since[a], since[b]), byTopic(a, b)) })
	return slices.DeleteFunc(lines, func(line driver.Line) bool { return ask.Lines != nil && !slices.Contains(ask.Lines, line) }), nil
}

func (t *tx) claimable(ask driver.Topics, s *stored) bool {
	switch s.Stage {
	case driver.Ready:
		return true
	case driver.Waiting, driver.Delayed, driver.Leased:
		return s.Wake <= t.now
	case driver.Held:
		_, ofKey := driver.KeyOf(s.Under)
		return ask.Held && ofKey
	case driver.Processed, driver.Dead:
	}
	return false
}
