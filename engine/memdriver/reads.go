package memdriver

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// search is what a search finds.
type search struct {
	// all: it looks at all lines.
	all bool
	is  func(t *tx, s driver.Search, r *driver.Row) bool
}

// byCome finds the rows of a line in a stage whose Wake has come.
const byCome driver.Index = -1

var searches = map[driver.Index]search{
	driver.ByStage: {is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Stage == s.Stage }},
	driver.ByPlace: {is: func(_ *tx, _ driver.Search, r *driver.Row) bool {
		return r.Stage == driver.Ready || r.Stage == driver.Held
	}},
	driver.ByKeyed:  {is: func(_ *tx, _ driver.Search, r *driver.Row) bool { return r.Stage == driver.Held && ofKey(r.Under) }},
	driver.ByPaused: {is: func(_ *tx, _ driver.Search, r *driver.Row) bool { return r.Stage == driver.Held && !ofKey(r.Under) }},
	byCome:          {is: func(t *tx, s driver.Search, r *driver.Row) bool { return r.Stage == s.Stage && r.Wake <= t.now }},
	driver.ByLater:  {is: func(t *tx, s driver.Search, r *driver.Row) bool { return r.Stage == s.Stage && r.Wake > t.now }},
	driver.ByEnded: {all: true, is: func(t *tx, s driver.Search, r *driver.Row) bool {
		return r.Stage == driver.Leased && r.Wake <= t.now
	}},
	driver.ByExpiry: {all: true, is: func(t *tx, _ driver.Search, r *driver.Row) bool {
		return t.expired(r) && r.Stage < driver.Processed && (r.Stage != driver.Leased || r.Wake <= t.now)
	}},
	driver.ByKey: {is: func(_ *tx, s driver.Search, r *driver.Row) bool {
		return r.Key == s.Key && r.Seq > s.From && r.Stage < driver.Leased
	}},
	driver.ByParked: {is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Key == s.Key && r.Parked && r.Seq > s.From }},
	driver.ByDone: {all: true, is: func(_ *tx, s driver.Search, r *driver.Row) bool {
		return r.Stage == driver.Processed && r.Processed <= s.Until
	}},
	driver.ByUnrouted: {is: func(_ *tx, _ driver.Search, r *driver.Row) bool {
		return r.Stage == driver.Ready || r.Stage == driver.Delayed
	}},
	driver.ByStep: {all: true, is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Step == s.Step }},
	driver.ByWaiter: {all: true, is: func(t *tx, s driver.Search, r *driver.Row) bool {
		return r.WaitsFor == s.Join && (r.Stage == driver.Waiting || r.Stage == driver.Delayed) && r.Wake > t.now
	}},
	driver.ByOpen: {all: true, is: func(_ *tx, _ driver.Search, r *driver.Row) bool { return r.Stage < driver.Processed }},
}

// simple makes one search for each stage of a search that has a limit for each.
func simple(list []driver.Search) (all []driver.Search) {
	stages := map[driver.Index][]driver.Stage{
		driver.ByComing: {driver.Waiting, driver.Delayed, driver.Leased},
		driver.ByDue:    {driver.Ready, driver.Waiting, driver.Delayed, driver.Leased},
	}
	for _, s := range list {
		if stages[s.By] == nil {
			all = append(all, s)
		}
		for _, stage := range stages[s.By] {
			one := s
			one.By, one.Stage = byCome, stage
			all = append(all, one)
		}
	}
	return all
}

// Rows goes through the rows of a line, or of all lines.
func (t *tx) Rows(_ context.Context, list ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range simple(list) {
		found := t.found(s)
		by := s.By
		if by == byCome {
			by = driver.ByStage
		}
		by.Sort(found)
		all = append(all, found[:min(len(found), s.Limit)]...)
	}
	return all, nil
}

// found are the rows of a search, in any order.
func (t *tx) found(s driver.Search) (found []driver.Row) {
	how, line := searches[s.By], s.Line
	add := func(r *stored) {
		if how.is(t, s, &r.Row) {
			found = append(found, r.Row)
		}
	}
	if how.all {
		for _, r := range t.byID {
			add(r)
		}
		return found
	}
	if s.By == driver.ByUnrouted {
		line.Group = ""
	}
	for _, r := range t.lines[line] {
		add(r)
	}
	return found
}

func (t *tx) expired(r *driver.Row) bool { return r.Expires != 0 && r.Expires <= t.now }

func (t *tx) Find(_ context.Context, ids []outmill.WorkItemID) (rows []driver.Row, _ error) {
	seen := map[outmill.WorkItemID]bool{}
	for _, id := range ids {
		if s := t.byID[id]; s != nil && !seen[id] {
			seen[id] = true
			rows = append(rows, t.shown(s.Row))
		}
	}
	return rows, nil
}

func (t *tx) After(_ context.Context, id outmill.WorkItemID, limit int, like driver.Like) (
	ids []outmill.WorkItemID, rows []driver.Row, _ error) {
	for other := range t.byID {
		if slices.Compare(other[:], id[:]) > 0 {
			ids = append(ids, other)
		}
	}
	slices.SortFunc(ids, func(a, b outmill.WorkItemID) int { return slices.Compare(a[:], b[:]) })
	ids = ids[:min(len(ids), limit)]
	for _, id := range ids {
		if s := t.byID[id]; isLike(s, like) {
			rows = append(rows, t.shown(s.Row))
		}
	}
	return ids, rows, nil
}

func isLike(s *stored, like driver.Like) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(like.Group, s.Group) && same(like.Topic, s.Topic) && same(like.Key, s.Key) && same(like.Tenant, s.Tenant) &&
		same(like.MessageID, s.record.MessageID) && same(like.CorrelationID, s.record.CorrelationID) &&
		s.Stage >= like.First && s.Stage <= like.Last
}

// shown sets Blocked.
func (t *tx) shown(r driver.Row) driver.Row {
	n := t.notes[noteKey{r.Line, r.Under}]
	r.Blocked = n != nil && ofKey(r.Under) && r.Stage == driver.Held && n.Blocker != ""
	return r
}

func (t *tx) Load(_ context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	return t.contents(rows, want), nil
}

func (t *tx) Count(ctx context.Context, list ...driver.Search) ([]driver.Counted, error) {
	counted := make([]driver.Counted, len(list))
	for i, s := range list {
		rows, err := t.Rows(ctx, s)
		if err != nil {
			return nil, err
		}
		c := &counted[i]
		c.N = len(rows)
		for _, r := range rows {
			due := r.Next
			if r.Stage == driver.Leased {
				due = r.Wake
			} else if due > t.now {
				c.Later++
			}
			if !t.expired(&r) && (c.Oldest == 0 || due < c.Oldest) {
				c.Oldest = due
			}
		}
	}
	return counted, nil
}

func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	return driver.ReadPage(ctx, t, ask)
}

func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	return driver.ReadPages(ctx, t, ask, lines)
}

// looks reports whether a claim looks at the note.
func (t *tx) looks(n *driver.Note, free []string) bool {
	return slices.Contains(free, n.Blocker) || n.LookAt != 0 && n.LookAt <= t.now
}

// Notes is a part of a page. See driver.Parts.
func (t *tx) Notes(_ context.Context, ask driver.Ask) (notes []driver.Note, _ error) {
	for _, n := range t.notes {
		if n.Line == ask.Line && (t.looks(n, ask.Free) || ask.Keys && driver.IsKeyedPause(n.Name)) {
			notes = append(notes, *n)
		}
	}
	driver.SortNotes(notes)
	return notes[:min(len(notes), ask.Limit)], nil
}

// held returns the first held rows of a line under the notes that match.
func (t *tx) held(line driver.Line, limit int, match func(under string) bool) (rows []driver.Row) {
	for _, s := range t.lines[line] {
		if s.Stage == driver.Held && match(s.Under) && len(rows) < limit {
			rows = append(rows, s.Row)
		}
	}
	return rows
}

// Under is a part of a page.
func (t *tx) Under(_ context.Context, line driver.Line, names []string, limit int) (rows []driver.Row, _ error) {
	for _, name := range names {
		rows = append(rows, t.held(line, limit, func(under string) bool { return under == name })...)
	}
	return rows, nil
}

func ofKey(under string) bool {
	_, is := driver.KeyOf(under)
	return is
}

// none is the state of a key without rows.
var none = driver.KeyState{Due: driver.None, Waiting: driver.None, Held: driver.None, Parked: driver.None}

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

func (t *tx) stateWith(state driver.KeyState, s *stored, owner string) driver.KeyState {
	over, come, others := t.expired(&s.Row), s.Wake <= t.now, s.Stage == driver.Leased && s.Owner != owner
	if others && (!come || !over) {
		state.Other = s.Owner
	}
	first := func(seq *int64, is bool) {
		if is {
			*seq = min(*seq, s.Seq)
		}
	}
	first(&state.Due, s.Stage >= driver.Waiting && s.Stage <= driver.Leased && come && !over && !others)
	first(&state.Waiting, s.Stage == driver.Waiting && !over)
	first(&state.Held, s.Stage == driver.Held && s.Under == driver.KeyNote(s.Key))
	first(&state.Parked, s.Parked)
	return state
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
	for _, rows := range t.lines {
		for _, s := range rows {
			if t.claimable(ask, s) {
				note(s.Line, max(s.Next, s.Created))
			}
		}
	}
	for _, n := range t.notes {
		if t.looks(n, ask.Free) {
			note(n.Line, n.LookAt)
		}
	}
	lines := slices.SortedFunc(maps.Keys(since), func(a, b driver.Line) int {
		return cmp.Or(cmp.Compare(since[a], since[b]), driver.ByTopic(a, b))
	})
	return slices.DeleteFunc(lines, func(line driver.Line) bool {
		return line.Group != ask.Group || ask.Lines != nil && !slices.Contains(ask.Lines, line)
	}), nil
}

func (t *tx) claimable(ask driver.Topics, s *stored) bool {
	if s.Stage == driver.Held {
		return ask.Held && ofKey(s.Under)
	}
	return s.Stage == driver.Ready || s.Stage <= driver.Leased && s.Wake <= t.now
}

func (t *tx) LinesOf(_ context.Context, groups ...string) (all []driver.Line, _ error) {
	lines := slices.SortedFunc(maps.Keys(t.lines), driver.ByTopic)
	for _, group := range groups {
		for _, line := range lines {
			if line.Group == group {
				all = append(all, line)
			}
		}
	}
	return all, nil
}
