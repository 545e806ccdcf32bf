package memdriver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

func keyOf(e driver.Entry) entryKey { return entryKey{e.Kind, e.Key} }

// setEntry writes the entry; nil deletes it.
func (t *tx) setEntry(key entryKey, e *driver.Entry) error {
	if err := t.mayChange(key); err != nil {
		return err
	}
	if err := t.guard(key, e); err != nil {
		return err
	}
	was := t.entries[key]
	t.undo = append(t.undo, func() { putIn(t.entries, key, was) })
	putIn(t.entries, key, e)
	return nil
}

func (t *tx) guard(key entryKey, changed *driver.Entry) error {
	for _, guard := range t.guards {
		for other, e := range t.entries {
			if changed == nil || other == key {
				continue
			}
			if err := guard(*changed, *e); err != nil {
				return err
			}
		}
	}
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

func (t *tx) Take(_ context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	for i, e := range entries {
		if err := t.mayChange(keyOf(e)); err != nil {
			return nil, err
		}
		old := t.entries[keyOf(e)]
		if free[i] = old == nil || old.At <= t.now; !free[i] {
			continue
		}
		if err := t.setEntry(keyOf(e), &e); err != nil {
			return nil, err
		}
	}
	return free, nil
}

func (t *tx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (bool, error) {
	var until <-chan time.Time
	for by := t.taken[keyOf(e)]; by != nil && by != t.caller; by = t.taken[keyOf(e)] {
		if wait <= 0 {
			break
		}
		if until == nil {
			until = time.After(wait)
		}
		if !t.await(ctx, by, until) {
			break
		}
	}
	if t.caller != nil && t.caller.ended {
		return false, storekit.TxGone(nil)
	}
	if t.entries[keyOf(e)] != nil {
		return false, ctx.Err()
	}
	err := cmp.Or(ctx.Err(), t.setEntry(keyOf(e), &e))
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

func (t *tx) CountEntries(_ context.Context, kind string) (int, error) {
	return len(t.find(kind, func(driver.Entry) bool { return true })), nil
}

func (t *tx) find(kind string, match func(driver.Entry) bool) (found []driver.Entry) {
	for key, e := range t.entries {
		if key.kind == kind && match(*e) {
			found = append(found, *e)
		}
	}
	return found
}

func byKey(a, b driver.Entry) int { return cmp.Compare(a.Key, b.Key) }

func (t *tx) Scan(_ context.Context, kind, prefix string) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool { return strings.HasPrefix(e.Key, prefix) })
	slices.SortFunc(found, byKey)
	return found, nil
}

func (t *tx) Range(_ context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool { return e.Key > after })
	slices.SortFunc(found, byKey)
	return found[:min(len(found), limit)], nil
}

func (t *tx) Old(_ context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool {
		by := t.taken[keyOf(e)]
		return e.At != 0 && e.At <= until && (by == nil || by == t.caller)
	})
	slices.SortFunc(found, func(a, b driver.Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), byKey(a, b)) })
	return found[:min(len(found), limit)], nil
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
