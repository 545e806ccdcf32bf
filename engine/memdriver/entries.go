package memdriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outmill/outmill/engine/driver"
)

func (t *tx) set(e driver.Entry) {
	key := entryKey{e.Kind, e.Key}
	t.keepEntry(key)
	t.entries[key] = e
}

// keepEntry has a failure bring the entry back as it is now.
func (t *tx) keepEntry(key entryKey) {
	was, known := t.entries[key]
	t.undo = append(t.undo, func() {
		if delete(t.entries, key); known {
			t.entries[key] = was
		}
	})
}

func (t *tx) Put(_ context.Context, entries ...driver.Entry) error {
	if t.caller != nil && len(entries) > 0 {
		return errOutside
	}
	for _, e := range entries {
		t.set(e)
	}
	return nil
}

func (t *tx) Take(_ context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	for i, e := range entries {
		key := entryKey{e.Kind, e.Key}
		by := t.taken[key]
		if by != nil && by != t.caller {
			return nil, fmt.Errorf("key %q: another open transaction has it: repeat the transaction", e.Key)
		}
		old, known := t.entries[key]
		if free[i] = by == nil && (!known || old.At <= t.now); !free[i] {
			continue
		}
		if t.caller == nil {
			t.set(e)
			continue
		}
		t.taken[key] = t.caller
		t.caller.entries = append(t.caller.entries, e)
		t.undo = append(t.undo, func() {
			delete(t.taken, key)
			t.caller.entries = t.caller.entries[:len(t.caller.entries)-1]
		})
	}
	return free, nil
}

func (t *tx) find(kind string, match func(driver.Entry) bool) (found []driver.Entry) {
	for key, e := range t.entries {
		if key.kind == kind && match(e) {
			found = append(found, e)
		}
	}
	return found
}

func (t *tx) Scan(_ context.Context, kind, prefix string) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool { return strings.HasPrefix(e.Key, prefix) })
	slices.SortFunc(found, func(a, b driver.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return found, nil
}

func (t *tx) Range(_ context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool { return e.Key > after })
	slices.SortFunc(found, func(a, b driver.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return found[:min(len(found), limit)], nil
}

func (t *tx) Old(_ context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	found := t.find(kind, func(e driver.Entry) bool { return e.At != 0 && e.At <= until })
	slices.SortFunc(found, func(a, b driver.Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Key, b.Key)) })
	return found[:min(len(found), limit)], nil
}

func (t *tx) Delete(_ context.Context, entries ...driver.Entry) error {
	for _, e := range entries {
		key := entryKey{e.Kind, e.Key}
		if e.At != 0 && t.entries[key].At != e.At {
			continue
		}
		t.keepEntry(key)
		delete(t.entries, key)
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
