package memdriver

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

func keyOf(e driver.Entry) entryKey { return entryKey{e.Kind, e.Key} }

// mayChange returns an error if another open transaction has changed the entry. Otherwise that of the caller has
// from now on.
func (t *tx) mayChange(key entryKey) error {
	switch by := t.taken[key]; {
	case by != nil && by != t.caller:
		return fmt.Errorf("%s %q: %w", key.kind, key.key, driver.ErrBusy)
	case by == nil && t.caller != nil:
		t.taken[key], t.caller.other[key] = t.caller, t.entries[key]
	}
	return nil
}

// await waits until no other open transaction has changed the entry, for at most that time. Until then the database is
// as others see it, and they may work. So it is for calls that have changed nothing yet.
func (t *tx) await(ctx context.Context, key entryKey, most time.Duration) {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	for by := t.taken[key]; by != nil && by != t.caller && ctx.Err() == nil; by = t.taken[key] {
		t.caller.turn()
		t.mu.Unlock()
		select {
		case <-by.over:
		case <-ctx.Done():
		}
		t.mu.Lock()
		t.caller.turn()
	}
}

// setEntry writes the entry; nil deletes it.
func (t *tx) setEntry(key entryKey, e *driver.Entry) error {
	if err := t.mayChange(key); err != nil {
		return err
	}
	for _, guard := range t.guards {
		for other, has := range t.entries {
			if e == nil || other == key {
				continue
			}
			if err := guard(*e, *has); err != nil {
				return err
			}
		}
	}
	swap(t, t.entries, key, e)
	return nil
}

func (t *tx) Put(_ context.Context, entries ...driver.Entry) error {
	for _, e := range entries {
		if err := t.setEntry(keyOf(e), &e); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	for i, e := range entries {
		if err := t.mayChange(keyOf(e)); err != nil {
			return nil, err
		}
		if old := t.entries[keyOf(e)]; old != nil && old.At > t.now {
			continue
		}
		if err := t.Put(ctx, e); err != nil {
			return nil, err
		}
		free[i] = true
	}
	return free, nil
}

func (t *tx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (bool, error) {
	t.await(ctx, keyOf(e), wait)
	switch {
	case t.caller != nil && t.caller.ended:
		return false, storekit.TxGone(nil)
	case t.entries[keyOf(e)] != nil:
		return false, ctx.Err()
	}
	err := cmp.Or(ctx.Err(), t.Put(ctx, e))
	return err == nil, err
}

func (t *tx) Entries(_ context.Context, lock bool, keys ...driver.Entry) (found []driver.Entry, _ error) {
	seen := map[entryKey]bool{}
	for _, k := range keys {
		e := t.entries[keyOf(k)]
		if e == nil || seen[keyOf(k)] {
			continue
		}
		seen[keyOf(k)] = true
		if lock {
			if err := t.mayChange(keyOf(k)); err != nil {
				return nil, err
			}
		}
		found = append(found, *e)
	}
	return found, nil
}

// find returns up to limit entries of a kind that match.
func (t *tx) find(kind string, limit int, by func(a, b driver.Entry) int, match func(e *driver.Entry) bool) ([]driver.Entry, error) {
	var found []driver.Entry
	for key, e := range t.entries {
		if key.kind == kind && match(e) {
			found = append(found, *e)
		}
	}
	slices.SortFunc(found, by)
	return found[:min(len(found), limit)], nil
}

func byKey(a, b driver.Entry) int { return cmp.Compare(a.Key, b.Key) }
func byAt(a, b driver.Entry) int  { return cmp.Or(cmp.Compare(a.At, b.At), byKey(a, b)) }

func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	n := make([]int, len(kinds))
	for i, kind := range kinds {
		all, err := t.Scan(ctx, kind, "")
		if err != nil {
			return nil, err
		}
		n[i] = len(all)
	}
	return n, nil
}

func (t *tx) Scan(_ context.Context, kind, prefix string) ([]driver.Entry, error) {
	return t.find(kind, math.MaxInt, byKey, func(e *driver.Entry) bool { return strings.HasPrefix(e.Key, prefix) })
}

func (t *tx) Range(_ context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return t.find(kind, limit, byKey, func(e *driver.Entry) bool { return e.Key > after })
}

func (t *tx) Old(_ context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return t.find(kind, limit, byAt, func(e *driver.Entry) bool {
		by := t.taken[keyOf(*e)]
		return e.At != 0 && e.At <= until && (by == nil || by == t.caller)
	})
}

func (t *tx) Delete(_ context.Context, entries ...driver.Entry) error {
	for _, e := range entries {
		if now := t.entries[keyOf(e)]; now == nil || e.At != 0 && now.At != e.At {
			continue
		}
		if err := t.setEntry(keyOf(e), nil); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) Bump(_ context.Context, routes, pauses bool) (driver.Generations, error) {
	was := t.Generations
	t.undo = append(t.undo, func() { t.Generations = was })
	if routes {
		t.Routes++
	}
	if pauses {
		t.Pauses++
	}
	return t.Generations, nil
}
