package drivertest

import (
	"cmp"
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// anyOperation is a read or a change.
func (w *walk) anyOperation() operation {
	ops := []func() operation{w.insert, w.apply, w.apply, w.apply, w.read, w.read, w.changeEntries, w.rare}
	return pick(w, "operation", ops)()
}

func (w *walk) rare() operation {
	ops := []func() operation{w.replace, w.attach, w.adopt, w.forget, w.bump, w.insertKnown, w.crowd}
	return pick(w, "rare operation", ops)()
}

func (w *walk) insert() operation {
	rows := w.newRows()
	return operation{name: "Insert", run: func(s *side, t driver.Tx) (any, error) {
		if err := t.Insert(w.ctx, rows); err != nil {
			return nil, err
		}
		ids := make([]outmill.WorkItemID, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		found, err := w.find(s, t, ids)
		return orEmpty(found), err
	}}
}

// newRows are rows for one Insert. They have their places from now on.
func (w *walk) newRows() (rows []driver.NewRow) {
	for range rapid.IntRange(1, 4).Draw(w.T, "rows") {
		n := w.newRow(w.lineOf(append([]string{""}, groups...)))
		w.ids = append(w.ids, n.ID)
		w.nth[n.ID] = int64(len(w.ids))
		rows = append(rows, n)
	}
	return rows
}

// crowd holds several rows of each of two keys: random rows are rarely so many. Then it reads a page that has no room for all of them.
func (w *walk) crowd() operation {
	line, names, ids, rows := w.line(), keyNames[1:3], []outmill.WorkItemID(nil), []driver.NewRow(nil)
	for i := range 3 * len(names) {
		n := w.newRow(line)
		n.Key = names[i%len(names)]
		n.Record.Key = n.Key
		w.ids, ids, rows = append(w.ids, n.ID), append(ids, n.ID), append(rows, n)
		w.nth[n.ID] = int64(len(w.ids))
		w.useHead(line, w.nth[n.ID])
	}
	return operation{name: "Page of crowded keys", run: func(s *side, t driver.Tx) (any, error) {
		if err := t.Insert(w.ctx, rows); err != nil {
			return nil, err
		}
		found, err := w.find(s, t, ids)
		if err != nil {
			return nil, err
		}
		c := driver.Changes{}
		for i, r := range found {
			was := w.of(s, r)[0]
			now := was
			now.Stage, now.Wake, now.Under = driver.Held, 0, driver.KeyNote(r.Key)
			c.Rows = append(c.Rows, driver.Change{Was: was, Now: now})
			if i < len(names) {
				c.Notes = append(c.Notes, driver.Note{Line: line, Name: now.Under, Head: was.Seq})
			}
		}
		if _, err := t.Apply(w.ctx, c); err != nil {
			return nil, err
		}
		p, err := t.Page(w.ctx, driver.Ask{Line: line, Owner: owners[0], Free: []string{""}, Limit: 4, Keys: true})
		return w.pageOf(s, p), err
	}}
}

// insertKnown is refused as a whole.
func (w *walk) insertKnown() operation {
	if len(w.rows) == 0 {
		return w.insert()
	}
	rows := w.newRows()
	again := w.newRow(w.row().Line)
	again.ID = w.row().ID
	rows = append(rows, again)
	return operation{name: "Insert of an id that exists", run: func(_ *side, t driver.Tx) (any, error) {
		return nil, t.Insert(w.ctx, rows)
	}}
}

func (w *walk) apply() operation {
	var c driver.Changes
	for _, r := range w.rows {
		if !w.chance(3) {
			continue
		}
		was := r
		if !w.serial && w.chance(6) { // somebody else has changed it
			was.Claims++
		}
		if w.chance(5) {
			c.Delete = append(c.Delete, was)
			continue
		}
		now := w.changed(was)
		c.Rows = append(c.Rows, driver.Change{Was: was, Now: now})
	}
	c.Open, c.Drop, c.Notes = w.notes(false), w.notes(false), w.notes(true)
	return operation{name: "Apply", run: func(s *side, t driver.Tx) (any, error) {
		mine := driver.Changes{Delete: w.of(s, c.Delete...)}
		for _, change := range c.Rows {
			pair := w.of(s, change.Was, change.Now)
			mine.Rows = append(mine.Rows, driver.Change{Was: pair[0], Now: pair[1]})
		}
		mine.Open, mine.Drop, mine.Notes = w.notesOf(s, c.Open), w.notesOf(s, c.Drop), w.notesOf(s, c.Notes)
		done, err := t.Apply(w.ctx, mine)
		lost := []int64{}
		for id, is := range done.Lost {
			if is {
				lost = append(lost, w.nth[id])
			}
		}
		return sorted(lost), err
	}}
}

// notes are some of different names, sorted by line and name. Those to be set have Heads that no other note has.
func (w *walk) notes(set bool) []driver.Note {
	notes := map[[3]string]driver.Note{}
	for range rapid.IntRange(0, 2).Draw(w.T, "notes") {
		n := driver.Note{Line: w.line(), Name: w.noteName(), Looks: rapid.IntRange(0, 1).Draw(w.T, "looks")}
		if set {
			n.Blocker, n.LookAt = w.blocker(n.Name), w.maybe(w.time())
			if n.Head = w.head(n.Line); n.Head == 0 {
				continue
			}
		}
		notes[[3]string{n.Group, n.Topic, n.Name}] = n
	}
	list := []driver.Note{}
	for _, n := range notes {
		list = append(list, n)
	}
	slices.SortFunc(list, byName)
	return list
}

func byName(a, b driver.Note) int {
	return slices.Compare([]string{a.Group, a.Topic, a.Name}, []string{b.Group, b.Topic, b.Name})
}

// head is a place of a row that no note of the line has had as its Head, or one before every row.
func (w *walk) head(line driver.Line) int64 {
	for _, r := range w.rows {
		if r.Line == line && !w.heads[line][r.Seq] {
			w.useHead(line, r.Seq)
			return r.Seq
		}
	}
	return math.MinInt64
}

func (w *walk) useHead(line driver.Line, head int64) {
	if w.heads[line] == nil {
		w.heads[line] = map[int64]bool{}
	}
	w.heads[line][head] = true
}

// replace locks a row and changes its content, as an edit does.
func (w *walk) replace() operation {
	if len(w.rows) == 0 {
		return w.insert()
	}
	r := w.row()
	n := w.newRow(r.Line)
	n.Row = r
	n.Size = n.Record.Size()
	return operation{name: "Replace", run: func(s *side, t driver.Tx) (any, error) {
		locked, found, err := t.Lock(w.ctx, n.ID)
		if err != nil || !found {
			return found, err
		}
		mine := n
		mine.Row = w.of(s, n.Row)[0]
		return w.placed([]driver.Row{locked}), t.Replace(w.ctx, mine)
	}}
}

func (w *walk) attach() operation {
	rows, step, join := w.rows[:min(len(w.rows), 2)], pick(w, "step", steps[1:]), pick(w, "join", joins[1:])
	return operation{name: "Attach", run: func(s *side, t driver.Tx) (any, error) {
		return nil, t.Attach(w.ctx, step, join, w.of(s, rows...))
	}}
}

func (w *walk) adopt() operation {
	from, group, limit := w.lineOf([]string{""}), pick(w, "group", groups), rapid.IntRange(1, 4).Draw(w.T, "limit")
	for _, r := range w.rows {
		if r.Group == "" && w.chance(2) {
			from = r.Line
		}
	}
	return operation{name: "Adopt", run: func(_ *side, t driver.Tx) (any, error) { return t.Adopt(w.ctx, from, group, limit) }}
}

func (w *walk) forget() operation {
	group := pick(w, "group", groups)
	return operation{name: "Forget", run: func(_ *side, t driver.Tx) (any, error) { return nil, t.Forget(w.ctx, group) }}
}

func (w *walk) bump() operation {
	routes, pauses := w.chance(2), w.chance(2)
	return operation{name: "Bump", run: func(_ *side, t driver.Tx) (any, error) {
		was := t.State().Generations
		g, err := t.Bump(w.ctx, routes, pauses)
		return raised(was, g), err
	}}
}

// raised says which generations are higher than before: by how much is up to the driver.
func raised(was, is driver.Generations) [2]int {
	return [2]int{cmp.Compare(is.Routes, was.Routes), cmp.Compare(is.Pauses, was.Pauses)}
}
