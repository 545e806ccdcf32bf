package memdriver

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// search is what a search finds.
type search struct {
	// all: it looks at all lines.
	all bool
	// by is what the rows are sorted by, before their Seqs; nil is nothing.
	by func(r *driver.Row) driver.Time
	is func(t *tx, s driver.Search, r *driver.Row) bool
}

func byWake(r *driver.Row) driver.Time      { return r.Wake }
func byExpires(r *driver.Row) driver.Time   { return r.Expires }
func byProcessed(r *driver.Row) driver.Time { return r.Processed }

// ended finds rows of a stage whose Wake has come.
func ended(stage driver.Stage) func(t *tx, s driver.Search, r *driver.Row) bool {
	return func(t *tx, _ driver.Search, r *driver.Row) bool { return r.Stage == stage && r.Wake <= t.now }
}

// behind finds rows of a stage behind Search.From.
func behind(stage driver.Stage) func(t *tx, s driver.Search, r *driver.Row) bool {
	return func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Stage == stage && r.Seq > s.From }
}

var searches = map[driver.Index]search{
	driver.ByLine:    {is: behind(driver.Ready)},
	driver.ByHeld:    {is: behind(driver.Held)},
	driver.ByWaiting: {is: ended(driver.Waiting), by: byWake},
	driver.ByDelayed: {is: ended(driver.Delayed), by: byWake},
	driver.ByLease:   {is: ended(driver.Leased), by: byWake},
	driver.ByEnded:   {is: ended(driver.Leased), by: byWake, all: true},
	driver.ByExpiry: {all: true, by: byExpires, is: func(t *tx, _ driver.Search, r *driver.Row) bool {
		return t.expired(r) && r.Stage < driver.Processed && (r.Stage != driver.Leased || r.Wake <= t.now)
	}},
	driver.ByKey: {is: func(_ *tx, s driver.Search, r *driver.Row) bool {
		return r.Key == s.Key && r.Seq > s.From && r.Stage < driver.Leased
	}},
	driver.ByParked: {is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Key == s.Key && r.Parked && r.Seq > s.From }},
	driver.ByDone: {all: true, by: byProcessed, is: func(_ *tx, s driver.Search, r *driver.Row) bool {
		return r.Stage == driver.Processed && r.Processed <= s.Until
	}},
	driver.ByStage:    {by: byWake, is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Stage == s.Stage }},
	driver.ByUnrouted: {is: func(_ *tx, _ driver.Search, r *driver.Row) bool { return waitsForGroup(r) }},
	driver.ByStep:     {all: true, is: func(_ *tx, s driver.Search, r *driver.Row) bool { return r.Step == s.Step }},
	driver.ByWaiter: {all: true, is: func(t *tx, s driver.Search, r *driver.Row) bool {
		return r.WaitsFor == s.Join && (r.Stage == driver.Waiting || r.Stage == driver.Delayed) && r.Wake > t.now
	}},
	driver.ByOpen: {all: true, is: func(_ *tx, _ driver.Search, r *driver.Row) bool { return r.Stage < driver.Processed }},
}

// Rows goes through the rows of a line, or of all lines.
func (t *tx) Rows(_ context.Context, list ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range list {
		found := t.found(s)
		if by := searches[s.By].by; by != nil {
			slices.SortStableFunc(found, func(a, b driver.Row) int { return cmp.Or(cmp.Compare(by(&a), by(&b)), cmp.Compare(a.Seq, b.Seq)) })
		} else {
			slices.SortFunc(found, func(a, b driver.Row) int { return cmp.Compare(a.Seq, b.Seq) })
		}
		all = append(all, found[:min(len(found), s.Limit)]...)
	}
	return all, nil
}

// found are the rows of a search, in any order.
func (t *tx) found(s driver.Search) (found []driver.Row) {
	how := searches[s.By]
	add := func(rows ...*stored) {
		for _, r := range rows {
			if how.is(t, s, &r.Row) {
				found = append(found, r.Row)
			}
		}
	}
	switch {
	case how.all:
		for _, r := range t.byID {
			add(r)
		}
	case s.By == driver.ByUnrouted:
		add(t.lines[driver.Line{Topic: s.Topic, Part: s.Part}]...)
	default:
		add(t.lines[s.Line]...)
	}
	return found
}

func (t *tx) expired(r *driver.Row) bool { return r.Expires != 0 && r.Expires <= t.now }

// unrouted are the rows of the topic and part that wait for a first group.
func (t *tx) unrouted(line driver.Line) (rows []*stored) {
	line.Group = ""
	for _, s := range t.lines[line] {
		if waitsForGroup(&s.Row) {
			rows = append(rows, s)
		}
	}
	return rows
}

// waitsForGroup is for rows without a group.
func waitsForGroup(r *driver.Row) bool { return r.Stage == driver.Ready || r.Stage == driver.Delayed }

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

func (t *tx) After(_ context.Context, id outmill.WorkItemID, limit int) (rows []driver.Row, _ error) {
	for other, s := range t.byID {
		if slices.Compare(other[:], id[:]) > 0 {
			rows = append(rows, t.shown(s.Row))
		}
	}
	slices.SortFunc(rows, func(a, b driver.Row) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return rows[:min(len(rows), limit)], nil
}

// shown sets Blocked.
func (t *tx) shown(r driver.Row) driver.Row {
	_, ofKey := driver.KeyOf(r.Under)
	r.Blocked = false
	if n := t.notes[noteKey{r.Line, r.Under}]; n != nil && ofKey {
		r.Blocked = r.Stage == driver.Held && n.Blocker != ""
	}
	return r
}

func (t *tx) Load(_ context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	return t.contents(rows, want), nil
}

func (d *Database) contents(rows []driver.Row, want driver.Want) []driver.Content {
	contents := make([]driver.Content, len(rows))
	for i, r := range rows {
		if s := d.byID[r.ID]; s != nil {
			contents[i] = s.content(want)
		}
	}
	return contents
}

func (t *tx) LinesOf(_ context.Context, group string) ([]driver.Line, error) {
	var lines []driver.Line
	for line := range t.lines {
		if line.Group == group {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, byTopic)
	return lines, nil
}

func byTopic(a, b driver.Line) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part))
}

func (t *tx) Lock(_ context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	s := t.byID[id]
	if s == nil {
		return r, false, nil
	}
	if t.locked == nil {
		t.locked = map[outmill.WorkItemID]bool{}
	}
	t.locked[id] = true
	return t.shown(s.Row), true, nil
}

func (t *tx) Count(_ context.Context, list ...driver.Search) ([]driver.Counted, error) {
	counted := make([]driver.Counted, len(list))
	for i, s := range list {
		for _, r := range t.found(s) {
			t.count(&counted[i], s, &r)
		}
	}
	return counted, nil
}

func (t *tx) count(c *driver.Counted, search driver.Search, r *driver.Row) {
	one := func(n *int) { *n = min(*n+1, search.Limit) }
	leased, due := search.By == driver.ByStage && r.Stage == driver.Leased, r.Next
	if leased {
		due = r.Wake
	}
	switch {
	case leased && due > t.now:
		one(&c.N)
		return
	case leased:
		one(&c.Ended)
	case due > t.now:
		one(&c.Later)
		one(&c.N)
	default:
		one(&c.N)
	}
	if !t.expired(r) && (c.Oldest == 0 || due < c.Oldest) {
		c.Oldest = due
	}
}
