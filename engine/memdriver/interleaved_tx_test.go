package memdriver

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

func (t *itx) State() driver.State { return t.state }

func (t *itx) OnCommit(fn func()) { t.inner.OnCommit(fn) }

func (t *itx) Insert(ctx context.Context, rows []driver.NewRow) error {
	lock := func() error {
		for _, n := range rows {
			if err := t.lock(rowLock(n.ID)); err != nil {
				return err
			}
			t.own(n.ID)
		}
		return nil
	}
	return t.step(ctx, "Insert", lock, func() error {
		err := t.inner.Insert(ctx, rows)
		t.keep()
		return err
	})
}

func (t *itx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	lock := func() error {
		var ids []outmill.WorkItemID
		for _, change := range c.Rows {
			ids = append(ids, change.Was.ID)
		}
		for _, r := range c.Delete {
			ids = append(ids, r.ID)
		}
		if err := t.lockRows(ids); err != nil {
			return err
		}
		for _, list := range [][]driver.Note{c.Open, c.Drop, c.Notes} {
			for _, n := range list {
				if err := t.lockNotes(len(c.Notes) > 0 && &list[0] == &c.Notes[0], noteKey{n.Line, n.Name}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = t.step(ctx, "Apply", lock, func() (err error) {
		done, err = t.inner.Apply(ctx, c)
		t.keep()
		t.over = c.Last && len(done.Lost) == 0
		return err
	})
	return done, err
}

// Rows locks what it finds if the search is Free.
func (t *itx) Rows(ctx context.Context, searches ...driver.Search) (rows []driver.Row, err error) {
	err = t.step(ctx, "Rows", nil, func() (err error) {
		rows, err = parts{t.inner, t, false}.Rows(ctx, searches...)
		return err
	})
	return rows, err
}

// parts are driver.Parts with locks. free says that the page leaves out held rows that others have locked.
type parts struct {
	*tx
	t    *itx
	free bool
}

// Under locks what it finds if the page is free.
func (p parts) Under(ctx context.Context, line driver.Line, names []string, limit int) (all []driver.Row, _ error) {
	if !p.free {
		return p.tx.Under(ctx, line, names, limit)
	}
	for _, name := range names {
		rows, err := p.tx.Under(ctx, line, []string{name}, math.MaxInt)
		if err == nil {
			rows, err = p.lockFree(rows, limit)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// lockFree locks the first rows that no other transaction has locked.
func (p parts) lockFree(rows []driver.Row, limit int) ([]driver.Row, error) {
	rows = slices.DeleteFunc(rows, func(r driver.Row) bool {
		by := p.t.held[rowLock(r.ID)]
		return by != nil && by != p.t
	})
	rows = rows[:min(len(rows), limit)]
	for _, r := range rows {
		if p.t.NoLocks {
			break
		}
		if err := p.t.lock(rowLock(r.ID)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (p parts) Rows(ctx context.Context, searches ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range simple(searches) {
		limit := s.Limit
		if s.Free {
			s.Limit = math.MaxInt
		}
		rows, err := p.tx.Rows(ctx, s)
		if err != nil {
			return nil, err
		}
		if s.Free {
			if rows, err = p.lockFree(rows, limit); err != nil {
				return nil, err
			}
		}
		all = append(all, rows...)
	}
	return all, nil
}

func (t *itx) Page(ctx context.Context, ask driver.Ask) (page driver.Page, err error) {
	busy := false
	lock := func() error {
		holder := t.held[ask.Line]
		if busy = ask.Lock && ask.Pass && holder != nil && holder != t; ask.Lock && !busy {
			return t.lock(ask.Line)
		}
		return nil
	}
	err = t.step(ctx, "Page", lock, func() (err error) {
		if busy {
			page.Busy, page.Now = true, t.db.now()
			return nil
		}
		t.inner.now = max(t.inner.now, t.db.now())
		page, err = driver.ReadPage(ctx, parts{t.inner, t, !ask.Lock}, ask)
		return err
	})
	return page, err
}

func read[R any](ctx context.Context, t *itx, call string, fn func() (R, error)) (result R, err error) {
	err = t.step(ctx, call, nil, func() (err error) {
		result, err = fn()
		return err
	})
	return result, err
}

func (t *itx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	return read(ctx, t, "Find", func() ([]driver.Row, error) { return t.inner.Find(ctx, ids) })
}

func (t *itx) After(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) (
	ids []outmill.WorkItemID, rows []driver.Row, err error) {
	err = t.step(ctx, "After", nil, func() (err error) {
		ids, rows, err = t.inner.After(ctx, id, limit, like)
		return err
	})
	return ids, rows, err
}

func (t *itx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	return read(ctx, t, "Load", func() ([]driver.Content, error) { return t.db.contents(rows, want), nil })
}

func (t *itx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	return read(ctx, t, "Whole", func() (driver.KeyState, error) { return t.inner.Whole(ctx, line, owner) })
}

func (t *itx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	return read(ctx, t, "Pages", func() ([]driver.Page, error) {
		t.inner.now = max(t.inner.now, t.db.now())
		pages, err := t.inner.Pages(ctx, ask, lines)
		for i, line := range lines {
			if holder := t.held[line]; ask.Lock && holder != nil && holder != t {
				pages[i] = driver.Page{Busy: true}
			}
			if ask.Lock && !pages[i].Busy {
				err = errors.Join(err, t.lock(line))
			}
			if ask.Lock {
				continue
			}
			pages[i].Ready = slices.DeleteFunc(pages[i].Ready, func(r driver.Row) bool {
				by := t.held[rowLock(r.ID)]
				return by != nil && by != t
			})
			for _, r := range pages[i].Ready {
				if !t.NoLocks {
					err = errors.Join(err, t.lock(rowLock(r.ID)))
				}
			}
		}
		return pages, err
	})
}

func (t *itx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	return read(ctx, t, "Due", func() ([]driver.Line, error) { return t.inner.Due(ctx, ask) })
}

func (t *itx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return read(ctx, t, "LinesOf", func() ([]driver.Line, error) { return t.inner.LinesOf(ctx, groups...) })
}

func (t *itx) Pausing(ctx context.Context, group string) ([]string, error) {
	return read(ctx, t, "Pausing", func() ([]string, error) { return t.inner.Pausing(ctx, group) })
}

func (t *itx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	return read(ctx, t, "Count", func() ([]driver.Counted, error) { return t.inner.Count(ctx, searches...) })
}

func (t *itx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	return read(ctx, t, "Keys", func() (map[string]driver.KeyState, error) { return t.inner.Keys(ctx, line, owner, keys) })
}

func (t *itx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return read(ctx, t, "Range", func() ([]driver.Entry, error) { return t.inner.Range(ctx, kind, after, limit) })
}

func (t *itx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	lock := func() error { return t.lockRows([]outmill.WorkItemID{id}) }
	err = t.step(ctx, "Lock", lock, func() (err error) {
		r, found, err = t.inner.Lock(ctx, id)
		return err
	})
	return r, found, err
}

func (t *itx) Replace(ctx context.Context, row driver.NewRow) error {
	lock := func() error { return t.lockRows([]outmill.WorkItemID{row.ID}) }
	return t.step(ctx, "Replace", lock, func() error {
		err := t.inner.Replace(ctx, row)
		t.keep()
		return err
	})
}

func (t *itx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	lock := func() error {
		ids := make([]outmill.WorkItemID, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		return t.lockRows(ids)
	}
	return t.step(ctx, "Attach", lock, func() error {
		err := t.inner.Attach(ctx, step, join, rows)
		t.keep()
		return err
	})
}

func (t *itx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (n int, err error) {
	lock := func() error {
		for {
			rows := t.inner.unrouted(from, limit)
			var ids []outmill.WorkItemID
			for _, s := range rows {
				ids = append(ids, s.ID)
			}
			if err := t.lockRows(ids); err != nil {
				return err
			}
			again := t.inner.unrouted(from, limit)
			if !slices.ContainsFunc(again, func(r driver.Row) bool { return t.held[rowLock(r.ID)] != t }) {
				return nil
			}
		}
	}
	err = t.step(ctx, "Adopt", lock, func() (err error) {
		n, err = t.inner.Adopt(ctx, from, group, limit)
		t.keep()
		return err
	})
	return n, err
}

func (t *itx) Forget(ctx context.Context, group string) error {
	lock := func() error {
		var keys []noteKey
		for key := range t.db.notes {
			if key.Group == group {
				keys = append(keys, key)
			}
		}
		return t.lockNotes(false, keys...)
	}
	return t.step(ctx, "Forget", lock, func() error {
		for key := range t.notes {
			if key.Group == group && t.held[key] == t {
				delete(t.db.notes, key)
			}
		}
		t.keep()
		return nil
	})
}

func (t *itx) lockEntries(entries []driver.Entry) func() error {
	return func() error {
		for _, e := range entries {
			key := entryKey{e.Kind, e.Key}
			if err := t.lock(key); err != nil {
				return err
			}
			t.rest()
			if _, known := t.entries[key]; known {
				continue
			}
			t.entries[key] = t.db.entries[key]
		}
		return nil
	}
}

func (t *itx) Put(ctx context.Context, entries ...driver.Entry) error {
	return t.step(ctx, "Put", t.lockEntries(entries), func() error {
		err := t.inner.Put(ctx, entries...)
		t.keep()
		return err
	})
}

func (t *itx) Take(ctx context.Context, entries ...driver.Entry) (free []bool, err error) {
	err = t.step(ctx, "Take", t.lockEntries(entries), func() (err error) {
		free, err = t.inner.Take(ctx, entries...)
		t.keep()
		return err
	})
	return free, err
}

func (t *itx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (added bool, err error) {
	err = t.step(ctx, "Add", t.lockEntries([]driver.Entry{e}), func() (err error) {
		added, err = t.inner.Add(ctx, 0, e)
		t.keep()
		return err
	})
	return added, err
}

func (t *itx) Entries(ctx context.Context, lock bool, keys ...driver.Entry) (found []driver.Entry, err error) {
	locks := func() error { return nil }
	if lock {
		locks = t.lockEntries(keys)
	}
	err = t.step(ctx, "Entries", locks, func() (err error) {
		found, err = t.inner.Entries(ctx, lock, keys...)
		return err
	})
	return found, err
}

func (t *itx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	return read(ctx, t, "CountEntries", func() ([]int, error) { return t.inner.CountEntries(ctx, kinds...) })
}

func (t *itx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	return read(ctx, t, "Scan", func() ([]driver.Entry, error) { return t.inner.Scan(ctx, kind, prefix) })
}

func (t *itx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return read(ctx, t, "Old", func() ([]driver.Entry, error) { return t.inner.Old(ctx, kind, until, limit) })
}

func (t *itx) Delete(ctx context.Context, entries ...driver.Entry) error {
	return t.step(ctx, "Delete", t.lockEntries(entries), func() error {
		err := t.inner.Delete(ctx, entries...)
		t.keep()
		return err
	})
}

func (t *itx) Bump(ctx context.Context, routes, pauses bool) (now driver.Generations, err error) {
	lock := func() error {
		if err := t.lock(bumpLock{}); err != nil || t.bumped != nil {
			return err
		}
		was := t.db.Generations
		t.bumped = &was
		return nil
	}
	err = t.step(ctx, "Bump", lock, func() (err error) {
		now, err = t.inner.Bump(ctx, routes, pauses)
		after := now
		t.bumped, t.inner.undo = &after, nil
		return err
	})
	return now, err
}
