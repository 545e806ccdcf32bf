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

// lineWait is how many milliseconds a claim waits for the lock of its first line.
const lineWait = 10_000

// noteKey names a note.
type noteKey struct {
	driver.Line
	name string
}

// pageRow is a row of a page, in the columns of a record.
type pageRow struct {
	rowInto
	kind, line int
}

func readPageRow(scan scan, p *pageRow) error {
	all := p.columns()
	return scan(append([]any{&p.kind, &p.line, all[0], all[1]}, all[4:]...)...)
}

// of returns the row of a line.
func (p *pageRow) of(line driver.Line) driver.Row {
	r := p.row()
	r.Line = line
	return r
}

// note returns a note and its version.
func (p *pageRow) note(line driver.Line) (n driver.Note, version int64) {
	return driver.Note{Line: line, Name: p.Key, Blocker: p.Owner, Head: p.Seq, LookAt: p.Wake, Looks: int(p.attempts)}, int64(p.Created)
}

// addKey adds the state of a key to a page.
func (p *pageRow) addKey(page *driver.Page) {
	if page.Keys == nil {
		page.Keys = map[string]driver.KeyState{}
	}
	page.Keys[p.Key] = driver.KeyState{Other: p.Owner, Waiting: p.Seq, Held: int64(p.Created), Parked: int64(p.Wake), Due: int64(p.Next)}
}

// flag is a truth for a statement, which compares it with 1.
func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Page locks a line, and returns a page of it, in one round trip.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	p, granted := driver.Page{}, 0
	a := args{
		"group": ask.Group, "topic": ask.Name(), "owner": ask.Owner, "limit": ask.Limit, "free": jsonOf(ask.Free), "keys": flag(ask.Keys),
		"due": ask.Due, "locks": flag(ask.Lock && t.locks), "patience": lineWait, "lock": t.d.lockOf("line", ask.Group, ask.Name()),
	}
	if ask.Pass {
		a["patience"] = 0
	}
	err := t.query(ctx, "page", a, func(scan scan) error {
		return scan(&granted, (*int64)(&p.Now))
	}, func(scan scan) error {
		p.Due = append(p.Due, driver.Row{})
		return readRow(scan, &p.Due[len(p.Due)-1])
	}, func(scan scan) error {
		var r pageRow
		err := readPageRow(scan, &r)
		t.addTo(&p, &r, ask.Line)
		return err
	})
	if err != nil {
		return driver.Page{}, err
	}
	t.state.Now = max(t.state.Now, p.Now)
	if granted < 0 {
		return driver.Page{Now: p.Now, Busy: true}, nil
	}
	sortPage(&p)
	return p, nil
}

// addTo adds a row of a page.
func (t *tx) addTo(p *driver.Page, r *pageRow, line driver.Line) {
	switch r.kind {
	case kindHead:
		p.Unrouted = r.Parked
	case kindNote:
		n, version := r.note(line)
		p.Notes = append(p.Notes, n)
		if t.versions == nil {
			t.versions = map[noteKey]int64{}
		}
		t.versions[noteKey{n.Line, n.Name}] = version
	case kindHeld:
		p.Held = append(p.Held, r.of(line))
	case kindReady:
		p.Ready = append(p.Ready, r.of(line))
	case kindKey:
		r.addKey(p)
	}
}

func bySeq(a, b driver.Row) int { return cmp.Compare(a.Seq, b.Seq) }

// sortPage orders what a page has: no rule of SQL keeps the order of the parts of a UNION.
func sortPage(p *driver.Page) {
	slices.SortFunc(p.Due, byComing)
	slices.SortFunc(p.Notes, func(a, b driver.Note) int { return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Name, b.Name)) })
	slices.SortFunc(p.Held, bySeq)
	slices.SortFunc(p.Ready, bySeq)
}

// lineItem is a line in a list of lines.
type lineItem struct {
	Line     int    `json:"line"`
	Topic    string `json:"topic"`
	Resource string `json:"resource"`
	Busy     bool   `json:"busy"`
}

// Pages returns a page of each line.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	pages, items := make([]driver.Page, len(lines)), make([]lineItem, len(lines))
	for i, l := range lines {
		items[i] = lineItem{Line: i, Topic: l.Name(), Resource: t.d.lockOf("line", l.Group, l.Name())}
	}
	a := args{
		"group": lines[0].Group, "lines": jsonOf(items), "owner": ask.Owner, "limit": ask.Limit, "free": jsonOf(ask.Free), "keys": flag(ask.Keys),
		"locks": flag(ask.Lock && t.locks),
	}
	err := t.queryAs(ctx, "pages", t.locks && !ask.Lock, a, func(scan scan) error {
		var r pageRow
		if err := readPageRow(scan, &r); err != nil {
			return err
		}
		if page := &pages[r.line]; r.kind == kindAlone {
			page.Busy = true
		} else {
			t.addTo(page, &r, lines[r.line])
		}
		return nil
	})
	for i := range pages {
		if pages[i].Busy {
			pages[i] = driver.Page{Busy: true}
		}
		slices.SortFunc(pages[i].Ready, bySeq)
	}
	return pages, err
}

// Keys returns the states of keys of a line.
func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	p := driver.Page{Keys: make(map[string]driver.KeyState, len(keys))}
	a := args{"group": line.Group, "topic": line.Name(), "owner": owner, "names": jsonOf(keys)}
	err := t.query(ctx, "key_states", a, func(scan scan) error {
		var r pageRow
		err := readPageRow(scan, &r)
		r.addKey(&p)
		return err
	})
	return p.Keys, err
}

// Whole returns the state of a line.
func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	state := driver.KeyState{Held: driver.None, Parked: driver.None}
	err := t.query(ctx, "whole", args{"group": line.Group, "topic": line.Name(), "owner": owner},
		func(scan scan) error { return scan(&state.Other, &state.Waiting, &state.Due) })
	return state, err
}
