package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// kindAlone is the kind of a row of pages that says that its line is not among them. See statements/pages.sql.
const kindAlone = sqlkit.PageNote

// lineWait is how many milliseconds a claim waits for the lock of its first line.
const lineWait = 10_000

// noteKey names a note.
type noteKey struct {
	driver.Line
	name string
}

// pageRow is a row of a page, with the number of its line.
type pageRow struct {
	sqlkit.PageRow
	line int
}

func readPageRow(scan scan, p *pageRow) error {
	return scan(append([]any{&p.Kind, &p.line}, p.PageColumns(sqlkit.ScanID, &p.Parked)...)...)
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
	name, a := "page", args{"group": ask.Group, "topic": ask.Name(), "limit": ask.Limit, "free": jsonOf(ask.Free)}
	readers := []func(scan scan) error{func(scan scan) error {
		return scan(&granted, (*int64)(&p.Now))
	}, sqlkit.Into(&p.Due, sqlkit.ReadRow), func(scan scan) error {
		var r pageRow
		err := readPageRow(scan, &r)
		t.addTo(&p, &r, ask.Line)
		return err
	}}
	if t.locks && !ask.Lock && !ask.Keys && ask.Due == 0 {
		name, readers = "page_held", slices.Delete(readers, 1, 2)
	} else {
		maps.Copy(a, args{
			"owner": ask.Owner, "keys": flag(ask.Keys), "due": ask.Due, "locks": flag(ask.Lock && t.locks), "patience": lineWait,
			"lock": t.d.lockOf("line", ask.Group, ask.Name()),
		})
		if ask.Pass {
			a["patience"] = 0
		}
	}
	err := t.query(ctx, name, a, readers...)
	if err != nil {
		return driver.Page{}, err
	}
	t.state.Now = max(t.state.Now, p.Now)
	if granted < 0 {
		return driver.Page{Now: p.Now, Busy: true}, nil
	}
	p.Sort()
	return p, nil
}

// addTo adds a row of a page.
func (t *tx) addTo(p *driver.Page, r *pageRow, line driver.Line) {
	switch r.Kind {
	case sqlkit.PageHead:
		p.Unrouted = r.Parked
		return
	case sqlkit.PageNote:
		if t.versions == nil {
			t.versions = map[noteKey]int64{}
		}
		t.versions[noteKey{line, r.Key}] = int64(r.Created)
	}
	r.AddTo(p, line)
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
		if page := &pages[r.line]; r.Kind == kindAlone {
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
		pages[i].Sort()
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
		r.AddTo(&p, line)
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
