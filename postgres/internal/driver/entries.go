package driver

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

func kindsOf(entries []driver.Entry) []string {
	return textsOf(entries, func(e *driver.Entry) string { return e.Kind })
}
func keysOf(entries []driver.Entry) []string {
	return textsOf(entries, func(e *driver.Entry) string { return e.Key })
}

func entryArgs(entries []driver.Entry) []any {
	return []any{
		kindsOf(entries), keysOf(entries), numbersOf(entries, func(e *driver.Entry) int64 { return int64(e.At) }),
		numbersOf(entries, func(e *driver.Entry) int64 { return int64(e.Made) }),
		textsOf(entries, func(e *driver.Entry) string { return e.Value }),
	}
}

func readEntry(scan scan, e *driver.Entry) error {
	return scan(&e.Kind, &e.Key, (*int64)(&e.At), (*int64)(&e.Made), &e.Value)
}

// inOrder are the entries in the order of their locks, each once: of several the last one.
func inOrder(entries []driver.Entry) []driver.Entry {
	list := slices.Clone(entries)
	slices.Reverse(list)
	slices.SortStableFunc(list, byName)
	return slices.CompactFunc(list, func(a, b driver.Entry) bool { return byName(a, b) == 0 })
}

func byName(a, b driver.Entry) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// Put writes entries.
func (t *tx) Put(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := t.changed(ctx, "put", entryArgs(inOrder(entries))...)
	return err
}

// Take writes those entries that are free.
func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	if len(entries) == 0 {
		return free, nil
	}
	args := append(entryArgs(inOrder(entries)), int64(t.state.Now))
	taken, err := list(ctx, t, "take", args, func(scan scan, e *driver.Entry) error { return scan(&e.Kind, &e.Key) })
	is := make(map[driver.Entry]bool, len(taken))
	for _, e := range taken {
		is[e] = true
	}
	for i, e := range entries {
		free[i] = is[driver.Entry{Kind: e.Kind, Key: e.Key}]
	}
	return free, err
}

// Add writes an entry that does not exist.
func (t *tx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (added bool, err error) {
	limited := wait > 0
	if limited {
		t.addStep(step{text: "SAVEPOINT outmill_add"})
		t.add("wait_for", []any{strconv.FormatInt(max(wait.Milliseconds(), 1), 10)}, nil)
	}
	args := []any{e.Kind, e.Key, int64(e.At), int64(e.Made), e.Value}
	t.addStep(step{text: t.d.names.text("add", false), args: args, done: func(n int) error {
		added = n > 0
		return nil
	}})
	if limited {
		t.add("waited", nil, nil)
		t.addStep(step{text: "RELEASE SAVEPOINT outmill_add"})
	}
	err = t.flush(ctx)
	if !limited || code(err) != codeLockTimeout {
		return added, err
	}
	if err := t.undo(ctx, "outmill_add"); err != nil {
		return false, err
	}
	return false, driver.ErrBusy
}

// Entries returns entries by their keys.
func (t *tx) Entries(ctx context.Context, lock bool, keys ...driver.Entry) ([]driver.Entry, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	name := "entries"
	if lock {
		name = "entries_locked"
	}
	var unique []driver.Entry
	for _, k := range keys {
		if !slices.ContainsFunc(unique, func(o driver.Entry) bool { return o.Kind == k.Kind && o.Key == k.Key }) {
			unique = append(unique, k)
		}
	}
	return list(ctx, t, name, []any{kindsOf(unique), keysOf(unique)}, readEntry)
}

// CountEntries counts the entries of each kind.
func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	return list(ctx, t, "count_entries", []any{kinds}, sqlkit.One[int])
}

// Scan returns entries by a prefix of their keys.
func (t *tx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	return list(ctx, t, "scan", []any{kind, prefix}, readEntry)
}

// Range returns the first entries behind a key.
func (t *tx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return list(ctx, t, "range", []any{kind, after, limit}, readEntry)
}

// Old returns the entries whose time has come, without those that other transactions have locked.
func (t *tx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return list(ctx, t, "old", []any{kind, int64(until), limit}, readEntry)
}

// Delete deletes entries.
func (t *tx) Delete(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := t.changed(ctx, "delete_entries", deleteArgs(entries)...)
	return err
}

func deleteArgs(entries []driver.Entry) []any {
	return []any{kindsOf(entries), keysOf(entries), numbersOf(entries, func(e *driver.Entry) int64 { return int64(e.At) })}
}

// Bump raises generations, and locks them.
func (t *tx) Bump(ctx context.Context, routes, pauses bool) (driver.Generations, error) {
	raise := map[bool]int64{true: 1}
	g := &t.state.Generations
	t.add("lock", []any{t.d.names.lockOf("routes")}, nil)
	t.add("bump", []any{raise[routes], raise[pauses]}, func(scan scan) error { return scan(&g.Routes, &g.Pauses) })
	err := t.flush(ctx)
	if err == nil {
		t.log.history = nil // another transaction may have changed it until the lock was granted
	}
	return *g, err
}
