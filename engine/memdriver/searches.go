package memdriver

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// Rows goes through the rows of a line, or of all lines.
func (t *tx) Rows(_ context.Context, searches ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range searches {
		var found []driver.Row
		for _, r := range t.among(s) {
			if t.matches(s, &r.Row) {
				found = append(found, r.Row)
			}
		}
		slices.SortStableFunc(found, func(a, b driver.Row) int {
			return cmp.Or(cmp.Compare(orderOf(s, a), orderOf(s, b)), cmp.Compare(a.Seq, b.Seq))
		})
		all = append(all, found[:min(len(found), s.Limit)]...)
	}
	return all, nil
}

// among returns the rows that the search may find.
func (t *tx) among(s driver.Search) []*stored {
	switch s.By {
	case driver.ByEnded, driver.ByExpiry, driver.ByDone, driver.ByStep, driver.ByWaiter, driver.ByOpen:
		return slices.Collect(maps.Values(t.byID))
	case driver.ByUnrouted:
		return t.unrouted(s.Topic)
	case driver.ByLine, driver.ByHeld, driver.ByWaiting, driver.ByDelayed, driver.ByLease, driver.ByKey, driver.ByParked, driver.ByStage:
	}
	return t.lines[s.Line]
}

func (t *tx) matches(s driver.Search, r *driver.Row) bool {
	come := r.Wake <= t.now
	switch s.By {
	case driver.ByLine:
		return r.Stage == driver.Ready && r.Seq > s.From
	case driver.ByHeld:
		return r.Stage == driver.Held && r.Seq > s.From
	case driver.ByWaiting:
		return r.Stage == driver.Waiting && come
	case driver.ByDelayed:
		return r.Stage == driver.Delayed && come
	case driver.ByLease:
		return r.Stage == driver.Leased && come
	case driver.ByEnded:
		return r.Stage == driver.Leased && come
	case driver.ByExpiry:
		return t.expired(r) && r.Stage < driver.Processed && (r.Stage != driver.Leased || come)
	case driver.ByKey:
		return r.Key == s.Key && r.Seq > s.From && r.Stage < driver.Leased
	case driver.ByParked:
		return r.Key == s.Key && r.Parked && r.Seq > s.From
	case driver.ByDone:
		return r.Stage == driver.Processed && r.Processed <= s.Until
	case driver.ByStage:
		return r.Stage == s.Stage
	case driver.ByUnrouted:
		return true
	case driver.ByOpen:
		return r.Stage < driver.Processed
	case driver.ByStep:
		return r.Step == s.Step
	case driver.ByWaiter:
		return r.WaitsFor == s.Join && (r.Stage == driver.Waiting || r.Stage == driver.Delayed) && !come
	}
	return false
}

func (t *tx) expired(r *driver.Row) bool { return r.Expires != 0 && r.Expires <= t.now }

// orderOf is what the rows of the search are sorted by, before their Seqs.
func orderOf(s driver.Search, r driver.Row) driver.Time {
	switch s.By {
	case driver.ByWaiting, driver.ByDelayed, driver.ByLease, driver.ByEnded, driver.ByStage:
		return r.Wake
	case driver.ByExpiry:
		return r.Expires
	case driver.ByDone:
		return r.Processed
	case driver.ByLine, driver.ByHeld, driver.ByKey, driver.ByParked, driver.ByUnrouted, driver.ByStep, driver.ByWaiter, driver.ByOpen:
	}
	return 0
}

// unrouted are the rows of the topic that wait for a first group.
func (t *tx) unrouted(topic string) (rows []*stored) {
	for _, s := range t.lines[driver.Line{Topic: topic}] {
		if s.waitsForGroup() {
			rows = append(rows, s)
		}
	}
	return rows
}

// waitsForGroup is for rows without a group.
func (s *stored) waitsForGroup() bool { return s.Stage == driver.Ready || s.Stage == driver.Delayed }

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
	r.Blocked = r.Stage == driver.Held && ofKey && t.notes[noteKey{r.Line, r.Under}].Blocker != ""
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

func (t *tx) TopicsOf(_ context.Context, group string) ([]string, error) {
	var topics []string
	for line := range t.lines {
		if line.Group == group {
			topics = append(topics, line.Topic)
		}
	}
	slices.Sort(topics)
	return topics, nil
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

func (t *tx) Count(_ context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	counted := make([]driver.Counted, len(searches))
	for i, search := range searches {
		for _, s := range t.among(search) {
			if t.matches(search, &s.Row) {
				t.count(&counted[i], search, &s.Row)
			}
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
