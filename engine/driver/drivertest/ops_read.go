package drivertest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// all is a limit that no result reaches.
const all = 10_000

// read is one search.
func (w *walk) read() operation {
	ops := []func() operation{
		w.searches, w.searches, w.searches, w.ofAllLines, w.page, w.page, w.pages, w.findSome, w.after, w.load, w.keys,
		w.unrouted, w.due, w.count,
		w.readEntries,
	}
	return pick(w, "read", ops)()
}

// search is one of a line along an index whose order is certain.
func (w *walk) search(limit int) driver.Search {
	by := pick(w, "by", []driver.Index{
		driver.ByStage, driver.ByStage, driver.ByPlace, driver.ByKeyed, driver.ByPaused, driver.ByComing, driver.ByDue,
		driver.ByLater, driver.ByKey, driver.ByParked,
	})
	s := driver.Search{By: by, Limit: limit, Free: w.chance(2)}
	switch by {
	case driver.ByEnded, driver.ByExpiry, driver.ByOpen, driver.ByDone, driver.ByStep, driver.ByWaiter:
	case driver.ByStage:
		s.Line, s.Stage = w.line(), pick(w, "stage", stages)
	case driver.ByLater:
		s.Line, s.Stage = w.line(), pick(w, "stage", []driver.Stage{driver.Waiting, driver.Delayed, driver.Leased})
	case driver.ByKey, driver.ByParked:
		s.Line = w.line()
		s.Key = pick(w, "key", keyNames[1:])
		if len(w.rows) > 0 && !w.chance(3) {
			if r := w.row(); r.Key != "" {
				s.Line, s.Key = r.Line, r.Key
			}
		}
		s.From = w.placeIn(s.Line)
	case driver.ByPlace, driver.ByKeyed, driver.ByPaused, driver.ByComing, driver.ByDue, driver.ByUnrouted:
		s.Line = w.line()
	}
	return s
}

func (w *walk) limit() int { return pick(w, "limit", []int{1, 2, 3, all}) }

func (w *walk) searches() operation {
	var list []driver.Search
	for range rapid.IntRange(1, 3).Draw(w.T, "searches") {
		list = append(list, w.search(w.limit()))
	}
	of := func(s *side) []driver.Search {
		mine := slices.Clone(list)
		for i := range mine {
			mine[i] = w.searchOf(s, mine[i])
		}
		return mine
	}
	return operation{
		name: fmt.Sprintf("Rows of %+v", list),
		run: func(s *side, t driver.Tx) (any, error) {
			rows, err := t.Rows(w.ctx, of(s)...)
			return unblocked(w.placed(rows)), err
		},
		begin: func(s *side) driver.Begin { return driver.Begin{Searches: of(s)} },
	}
}

// ofAllLines is a search of all lines. The order of its rows is certain only as far as their times are.
func (w *walk) ofAllLines() operation {
	by := pick(w, "by", []driver.Index{driver.ByEnded, driver.ByExpiry, driver.ByDone, driver.ByStep, driver.ByWaiter, driver.ByOpen})
	search := driver.Search{By: by, Limit: w.limit(), Free: w.chance(2), Until: w.past(), Step: pick(w, "step", steps[1:]),
		Join: pick(w, "join", joins[1:])}
	return operation{name: fmt.Sprintf("Rows of %+v", search), run: func(_ *side, t driver.Tx) (any, error) {
		rows, err := t.Rows(w.ctx, search)
		times := make([]driver.Time, len(rows))
		for i, r := range rows {
			times[i] = map[driver.Index]driver.Time{driver.ByEnded: r.Wake, driver.ByExpiry: r.Expires, driver.ByDone: r.Processed}[by]
		}
		if rows = unblocked(w.placed(rows)); search.Limit < all {
			rows = nil
		}
		slices.SortFunc(rows, byPlace)
		return []any{times, rows}, err
	}}
}

// pages are those of several lines.
func (w *walk) pages() operation {
	// Without keys a driver may look for rows that are held only where there are notes: see driver.State.
	ask := driver.Ask{Owner: pick(w, "owner", owners), Free: w.free(), Limit: w.limit(), Keys: w.chance(2) || w.orphans, Pass: true}
	ask.Lock = ask.Keys
	lines := []driver.Line{w.line()}
	for range rapid.IntRange(1, 3).Draw(w.T, "lines") {
		line := w.line()
		if line.Group = lines[0].Group; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return operation{name: fmt.Sprintf("Pages of %+v for %+v", lines, ask), run: func(s *side, t driver.Tx) (any, error) {
		pages, err := t.Pages(w.ctx, ask, lines)
		for i := range pages {
			pages[i] = w.pageOf(s, pages[i])
		}
		return pages, err
	}}
}

func (w *walk) page() operation {
	ask := driver.Ask{
		Line: w.line(), Owner: pick(w, "owner", owners), Free: w.free(), Limit: w.limit(), Keys: w.chance(2), Lock: w.chance(2),
		Due: pick(w, "due", []int{0, 0, 1, all}),
	}
	ask.Pass = ask.Lock && w.chance(2)
	askBrought(&ask)
	return operation{
		name: fmt.Sprintf("Page of %+v", ask),
		run: func(s *side, t driver.Tx) (any, error) {
			p, err := t.Page(w.ctx, ask)
			if err == nil {
				err = w.requireBrought(t, ask, p)
			}
			return w.pageOf(s, p), err
		},
		begin: func(*side) driver.Begin { return driver.Begin{Ask: &ask} },
	}
}

func (w *walk) findSome() operation { return w.found(w.someIDs()) }

func (w *walk) found(ids []outmill.WorkItemID) operation {
	return operation{
		name: "Find",
		run: func(_ *side, t driver.Tx) (any, error) {
			rows, err := t.Find(w.ctx, ids)
			rows = w.placed(rows)
			slices.SortFunc(rows, byPlace)
			return rows, err
		},
		begin: func(*side) driver.Begin { return driver.Begin{Find: ids} },
	}
}

func (w *walk) load() operation {
	want, rows := driver.Want(rapid.IntRange(0, 7).Draw(w.T, "want")), w.rows[:min(len(w.rows), 3)]
	return operation{name: fmt.Sprint("Load of ", want), run: func(s *side, t driver.Tx) (any, error) {
		contents, err := t.Load(w.ctx, w.of(s, rows...), want)
		for i := range contents {
			contents[i] = content(contents[i])
		}
		return orEmpty(contents), err
	}}
}

func (w *walk) keys() operation {
	line, owner, names := w.line(), pick(w, "owner", owners), keyNames[1:]
	return operation{name: "Keys and Whole", run: func(s *side, t driver.Tx) (any, error) {
		states, err := t.Keys(w.ctx, line, owner, names)
		if err != nil {
			return nil, err
		}
		whole, err := t.Whole(w.ctx, line, owner)
		whole.Held, whole.Parked = driver.None, driver.None
		return []any{w.states(s, states), w.state(s, whole)}, err
	}}
}

// unrouted finds some rows, so only the number of fewer than all is certain.
func (w *walk) unrouted() operation {
	line, limit := w.line(), w.limit()
	return operation{name: "Rows of ByUnrouted", run: func(_ *side, t driver.Tx) (any, error) {
		rows, err := t.Rows(w.ctx, driver.Search{By: driver.ByUnrouted, Line: line, Limit: limit})
		if rows = unblocked(w.placed(rows)); limit < all {
			return len(rows), err
		}
		slices.SortFunc(rows, byPlace)
		return rows, err
	}}
}

func (w *walk) due() operation {
	// See driver.State: where there are no notes, a driver need not find rows that are held.
	ask := driver.Topics{Group: pick(w, "group", groups), Free: w.free(), Held: w.chance(2) && !w.orphans}
	if w.chance(2) {
		for _, part := range parts[1:3] {
			for _, topic := range topics[:2] {
				ask.Lines = append(ask.Lines, driver.Line{Group: ask.Group, Topic: topic, Part: part})
			}
		}
	}
	with := ask
	with.Held = !ask.Held && !w.orphans
	return operation{
		name: fmt.Sprintf("Due of %+v, LinesOf, Pausing", ask),
		run: func(_ *side, t driver.Tx) (any, error) {
			due, err := t.Due(w.ctx, ask)
			if err == nil {
				err = w.requireOldestFirst(t, ask, due)
			}
			if err != nil {
				return nil, err
			}
			other, err := t.Due(w.ctx, with)
			if err != nil {
				return nil, err
			}
			of, err := t.LinesOf(w.ctx, ask.Group, "")
			if err != nil {
				return nil, err
			}
			pausing, err := t.Pausing(w.ctx, ask.Group)
			return []any{inOrder(due), inOrder(other), orEmpty(of), sorted(pausing)}, err
		},
		begin: func(*side) driver.Begin { return driver.Begin{Topics: &ask} },
	}
}

// count compares the numbers of some searches of lines, and of each stage.
func (w *walk) count() operation {
	limit := w.limit()
	list := []driver.Search{w.search(limit), w.search(limit)}
	for _, stage := range stages {
		line := w.line()
		if at := slices.IndexFunc(w.rows, func(r driver.Row) bool { return r.Stage == stage }); at >= 0 && !w.chance(3) {
			line = w.rows[at].Line
		}
		list = append(list, driver.Search{By: driver.ByStage, Line: line, Stage: stage, Limit: limit})
	}
	return operation{name: fmt.Sprintf("Count of %+v", list), run: func(s *side, t driver.Tx) (any, error) {
		mine := slices.Clone(list)
		for i := range mine {
			mine[i] = w.searchOf(s, mine[i])
		}
		counted, err := t.Count(w.ctx, mine...)
		return orEmpty(counted), err
	}}
}
