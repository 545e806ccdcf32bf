package next

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

// The kinds of the rows that a page has. See statements/pages.sql.
const (
	kindHead = iota
	kindNote
	kindHeld
	kindReady
	kindKey

	// kindAlone is that of pages.
	kindAlone = kindNote
)

// noteKey names a note.
type noteKey struct {
	driver.Line
	name string
}

// pageRow is a row of a page, in the columns of a record.
type pageRow struct {
	rowInto
	kind, line int64
}

// columns are the targets of a page's columns. A page has neither group nor topic, which are those of its line.
func (p *pageRow) columns() []any {
	all := p.rowInto.columns()
	return append([]any{&p.kind, &p.line, all[0], all[1]}, all[4:]...)
}

// of returns the row of a line.
func (p *pageRow) of(line driver.Line) driver.Row {
	p.Broken = ""
	r := p.row()
	r.Line = line
	return r
}

func (p *pageRow) note(line driver.Line) (n driver.Note, writer int64) {
	return driver.Note{Line: line, Name: p.Key, Blocker: p.Owner, Head: p.Seq, LookAt: p.Wake, Looks: int(p.attempts)}, int64(p.Created)
}

func (p *pageRow) key() (key string, state driver.KeyState) {
	return p.Key, driver.KeyState{Other: p.Owner, Waiting: p.Seq, Held: int64(p.Created), Parked: int64(p.Wake), Due: int64(p.Next)}
}

// Page returns a page of a line.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page := t.first()
	if page.page == nil || !same(*page.Ask, ask) {
		page.page = t.addPage(ask)
		if err := t.flush(ctx); err != nil {
			return driver.Page{}, err
		}
	}
	found := page.page()
	t.state.Now = max(t.state.Now, found.Now)
	return found, nil
}

// addPage queues the lock of the line, the search of what is due, and the page. Each is a statement of its own, so the moment
// of the page is after the lock. It returns what returns the page.
func (t *tx) addPage(ask driver.Ask) func() driver.Page {
	p := &driver.Page{}
	locked := true
	if ask.Lock && t.locks {
		line := t.d.names.lockOf("line", ask.Group, ask.Name())
		if ask.Pass {
			t.add("try_lock", []any{numbersOf([]int64{line}, itself)}, func(scan scan) error { return scan(&locked) })
		} else {
			t.add("lock", []any{line}, nil)
		}
	}
	due := func() []driver.Row { return nil }
	if ask.Due > 0 {
		due = t.addSearches(ask.Searches())
	}
	r := &pageRow{}
	columns := r.columns()
	t.add("page", []any{ask.Group, ask.Name(), ask.Owner, ask.Limit, ask.Free, ask.Keys}, func(scan scan) error {
		err := scan(columns...)
		switch r.kind {
		case kindHead:
			p.Now, p.Unrouted = driver.Time(r.Seq), r.Parked
		case kindNote:
			n, writer := r.note(ask.Line)
			p.Notes = append(p.Notes, n)
			t.wrote(n, writer)
		case kindHeld:
			p.Held = append(p.Held, r.of(ask.Line))
		case kindReady:
			p.Ready = append(p.Ready, r.of(ask.Line))
		case kindKey:
			addKey(p, r)
		}
		return err
	})
	return func() driver.Page {
		if !locked {
			return driver.Page{Now: p.Now, Busy: true}
		}
		p.Due = due()
		slices.SortStableFunc(p.Notes, func(a, b driver.Note) int { return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Name, b.Name)) })
		sortHeld(p)
		slices.SortFunc(p.Ready, bySeqOf)
		return *p
	}
}

func addKey(p *driver.Page, r *pageRow) {
	if p.Keys == nil {
		p.Keys = map[string]driver.KeyState{}
	}
	key, state := r.key()
	p.Keys[key] = state
}

func bySeqOf(a, b driver.Row) int { return cmp.Compare(a.Seq, b.Seq) }

// sortHeld brings held rows into the order of their notes: no rule of SQL keeps it in the result.
func sortHeld(p *driver.Page) {
	place := make(map[string]int, len(p.Notes))
	for i, n := range p.Notes {
		place[n.Name] = i
	}
	slices.SortFunc(p.Held, func(a, b driver.Row) int { return cmp.Or(cmp.Compare(place[a.Under], place[b.Under]), bySeqOf(a, b)) })
}

// wrote notes which transaction had written the note that this one has read. See drop_notes.
func (t *tx) wrote(n driver.Note, writer int64) {
	if t.writers == nil {
		t.writers = map[noteKey]int64{}
	}
	t.writers[noteKey{n.Line, n.Name}] = writer
}

// Pages returns a page of each line.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	pages, locks := make([]driver.Page, len(lines)), t.locks
	if ask.Lock && locks {
		numbers := numbersOf(lines, func(l *driver.Line) int64 { return t.d.names.lockOf("line", l.Group, l.Name()) })
		i := 0
		t.add("try_lock", []any{numbers}, func(scan scan) error {
			free := false
			err := scan(&free)
			pages[i].Busy = !free
			i++
			return err
		})
	}
	t.locks = locks && !ask.Lock
	r := &pageRow{}
	columns := r.columns()
	lineNames := textsOf(lines, func(l *driver.Line) string { return l.Name() })
	t.add("pages", []any{lines[0].Group, lineNames, ask.Owner, ask.Limit, ask.Free, ask.Keys},
		func(scan scan) error {
			if err := scan(columns...); err != nil {
				return err
			}
			page, line := &pages[r.line-1], lines[r.line-1]
			switch r.kind {
			case kindAlone:
				page.Busy = true
			case kindReady:
				page.Ready = append(page.Ready, r.of(line))
			case kindKey:
				addKey(page, r)
			}
			return nil
		})
	t.locks = locks
	err := t.flush(ctx)
	for i := range pages {
		if pages[i].Busy {
			pages[i] = driver.Page{Busy: true}
		}
		slices.SortFunc(pages[i].Ready, bySeqOf)
	}
	return pages, err
}

// Keys returns the states of keys of a line.
func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	args := []any{line.Group, line.Name(), owner, keys}
	p, r := driver.Page{Keys: make(map[string]driver.KeyState, len(keys))}, &pageRow{}
	columns := r.columns()
	t.add("key_states", args, func(scan scan) error {
		err := scan(columns...)
		addKey(&p, r)
		return err
	})
	err := t.flush(ctx)
	return p.Keys, err
}

// Whole returns the state of a line.
func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	state := driver.KeyState{Held: driver.None, Parked: driver.None}
	t.add("whole", []any{line.Group, line.Name(), owner}, func(scan scan) error { return scan(&state.Other, &state.Waiting, &state.Due) })
	err := t.flush(ctx)
	return state, err
}
