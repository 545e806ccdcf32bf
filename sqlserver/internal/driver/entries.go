package driver

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
	"unicode/utf16"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// entryItem is an entry in a list of entries.
type entryItem struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Key   string `json:"key"`
	At    int64  `json:"at"`
	Made  int64  `json:"made_at"`
	Value string `json:"value"`
	// Done is false: the statement sets it.
	Done bool `json:"done"`
}

func entryID(e *driver.Entry) [16]byte { return hashOf(e.Kind, e.Key) }

// itemOf is the item of an entry.
func itemOf(e *driver.Entry) entryItem {
	return entryItem{idText(entryID(e)), e.Kind, e.Key, int64(e.At), int64(e.Made), e.Value, false}
}

// itemsOf are the entries in the order of their locks, each once: of several the last one.
func itemsOf(entries []driver.Entry) []entryItem {
	list := sqlkit.Mapped(entries, itemOf)
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b entryItem) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key)) })
	return slices.CompactFunc(list, func(a, b entryItem) bool { return a.ID == b.ID })
}

// Put writes entries.
func (t *tx) Put(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return t.query(ctx, "put", args{"entries": jsonOf(itemsOf(entries))})
}

// Take writes those entries that are free.
func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	if len(entries) == 0 {
		return free, nil
	}
	taken, err := list(ctx, t, "take", args{"entries": jsonOf(itemsOf(entries)), "now": t.state.Now},
		func(scan scan, i *sqlkit.ID) error { return scan(i) })
	for i := range entries {
		free[i] = slices.Contains(taken, sqlkit.ID(entryID(&entries[i])))
	}
	return free, err
}

// The answers of add and put_note.
const (
	entryAdded = 1
	entryBusy  = -1
	leaseLost  = -2
)

// millis is a wait of a statement; 0 would not wait at all.
func millis(wait time.Duration) int {
	return int(min(max(wait.Milliseconds(), 1), math.MaxInt32))
}

// Add writes an entry that does not exist.
func (t *tx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (added bool, err error) {
	entry, answer := entryID(&e), 0
	a := args{
		"id": entry[:], "kind": e.Kind, "key": e.Key, "at": e.At, "made": e.Made, "value": e.Value, "patience": -1,
		"lock": t.d.lockOf("entry", e.Kind, e.Key),
	}
	if wait > 0 {
		a["patience"] = millis(wait)
	}
	err = t.query(ctx, "add", a, func(scan scan) error { return scan(&answer) })
	if err == nil && answer == entryBusy {
		err = driver.ErrBusy
	}
	return err == nil && answer == entryAdded, err
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
	var ids []string
	for i := range keys {
		if id := itemOf(&keys[i]).ID; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return list(ctx, t, name, args{"ids": jsonOf(ids)}, sqlkit.ReadEntry)
}

// CountEntries counts the entries of each kind.
func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	return list(ctx, t, "count_entries", args{"kinds": jsonOf(kinds)}, func(scan scan, n *int) error { return scan(n) })
}

// Scan returns entries by a prefix of their keys.
func (t *tx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	const bytes = 2
	return list(ctx, t, "scan", args{"kind": kind, "prefix": prefix, "length": bytes * len(utf16.Encode([]rune(prefix)))}, sqlkit.ReadEntry)
}

// Range returns the first entries behind a key.
func (t *tx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return list(ctx, t, "range", args{"kind": kind, "prefix": after, "limit": limit}, sqlkit.ReadEntry)
}

// Old returns the entries whose time has come, without those that other transactions have locked.
func (t *tx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return list(ctx, t, "old", args{"kind": kind, "until": until, "limit": limit}, sqlkit.ReadEntry)
}

// Delete deletes entries.
func (t *tx) Delete(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return t.query(ctx, "delete_entries", args{"entries": jsonOf(itemsOf(entries))})
}
