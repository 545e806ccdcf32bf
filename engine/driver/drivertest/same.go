package drivertest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// find returns rows with their places, by place.
func (w *walk) find(s *side, t driver.Tx, ids []outmill.WorkItemID) ([]driver.Row, error) {
	rows, err := t.Find(w.ctx, ids)
	if err != nil {
		return nil, err
	}
	if s.seq == nil {
		s.seq = map[outmill.WorkItemID]int64{}
	}
	for _, r := range rows {
		s.seq[r.ID] = r.Seq
	}
	rows = w.placed(rows)
	slices.SortFunc(rows, byPlace)
	return rows, nil
}

func byPlace(a, b driver.Row) int { return cmp.Compare(a.Seq, b.Seq) }

// placed returns the rows with their places as Seqs.
func (w *walk) placed(rows []driver.Row) []driver.Row {
	list := make([]driver.Row, len(rows))
	for i, r := range rows {
		r.Seq = w.nth[r.ID]
		list[i] = r
	}
	return list
}

// seqOf is the Seq that a driver has given to the row in this place; 0 is before every row, and None behind.
func (w *walk) seqOf(s *side, place int64) int64 {
	if place <= 0 || place == driver.None {
		return place
	}
	return s.seq[w.ids[place-1]]
}

// placeOf is the reverse of seqOf.
func (w *walk) placeOf(s *side, seq int64) int64 {
	if seq == driver.None || seq == 0 {
		return seq
	}
	for id, other := range s.seq {
		if other == seq {
			return w.nth[id]
		}
	}
	return -seq
}

// of returns the rows as the driver knows them.
func (w *walk) of(s *side, rows ...driver.Row) []driver.Row {
	list := make([]driver.Row, len(rows))
	for i, r := range rows {
		r.Seq = w.seqOf(s, r.Seq)
		list[i] = r
	}
	return list
}

func (w *walk) notesOf(s *side, notes []driver.Note) []driver.Note {
	list := make([]driver.Note, len(notes))
	for i, n := range notes {
		n.Head = w.seqOf(s, n.Head)
		list[i] = n
	}
	return list
}

func (w *walk) searchOf(s *side, search driver.Search) driver.Search {
	search.From = w.seqOf(s, search.From)
	return search
}

func (w *walk) state(s *side, k driver.KeyState) driver.KeyState {
	if w.serial {
		k.Due = driver.None
	}
	k.Due, k.Waiting, k.Held, k.Parked = w.placeOf(s, k.Due), w.placeOf(s, k.Waiting), w.placeOf(s, k.Held), w.placeOf(s, k.Parked)
	return k
}

func (w *walk) states(s *side, states map[string]driver.KeyState) map[string]driver.KeyState {
	all := make(map[string]driver.KeyState, len(states))
	for key, k := range states {
		all[key] = w.state(s, k)
	}
	return all
}

// unblocked returns the rows as a search may return them: only Find and After say whether they are blocked.
func unblocked(rows []driver.Row) []driver.Row {
	for i := range rows {
		rows[i].Blocked = false
	}
	return rows
}

// pageOf leaves out what may differ.
func (w *walk) pageOf(s *side, p driver.Page) driver.Page {
	p.Now, p.Contents = 0, nil
	p.Due = unblocked(w.placed(p.Due))
	if len(p.Due) > 0 {
		return driver.Page{Due: p.Due}
	}
	p.Held, p.Ready = unblocked(w.placed(p.Held)), unblocked(w.placed(p.Ready))
	slices.SortFunc(p.Held, byPlace)
	p.Notes = slices.Clone(p.Notes)
	for i := range p.Notes {
		p.Notes[i].Head = w.placeOf(s, p.Notes[i].Head)
	}
	p.Keys = w.states(s, p.Keys)
	if len(p.Notes) == 0 {
		p.Notes = nil
	}
	return p
}

// content keeps what a driver stores: Load may set the fields that the row has, and need not.
func content(c driver.Content) driver.Content {
	r := c.Record
	if r == nil {
		return driver.Content{}
	}
	c.Record = &outmill.Record{
		MessageID: r.MessageID, Payload: r.Payload, Metadata: maps.Clone(r.Metadata), CorrelationID: r.CorrelationID,
		CausationID: r.CausationID, TraceParent: r.TraceParent, TraceState: r.TraceState, DedupKey: r.DedupKey,
		DueAt: r.DueAt.UTC(), LastError: r.LastError, Joins: slices.Clone(r.Joins),
	}
	if len(c.Record.Payload) == 0 {
		c.Record.Payload = nil
	}
	if len(c.Record.Metadata) == 0 {
		c.Record.Metadata = nil
	}
	if len(c.Record.Joins) == 0 {
		c.Record.Joins = nil
	}
	return c
}

// sorted is for results without an order.
func sorted[T cmp.Ordered](list []T) []T {
	list = orEmpty(list)
	slices.Sort(list)
	return list
}

// inOrder is sorted for lines.
func inOrder(lines []driver.Line) []driver.Line {
	lines = orEmpty(lines)
	slices.SortFunc(lines, func(a, b driver.Line) int { return cmp.Compare(a.Name(), b.Name()) })
	return lines
}

// orEmpty is the same for nil and empty.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }
