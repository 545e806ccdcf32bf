package drivertest

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var entryKeys = []string{"", "a", "A", "a b", "b%", "日", "日本"}

func (w *walk) entry() driver.Entry {
	return driver.Entry{
		Kind: pick(w, "kind", kinds), Key: pick(w, "entry", entryKeys), At: w.maybe(w.time()), Made: w.maybe(w.past()),
		Value: pick(w, "value", []string{"", "value", "日\x01"}),
	}
}

// entries are some of different keys, sorted.
func (w *walk) entries() []driver.Entry {
	var list []driver.Entry
	for range rapid.IntRange(0, 3).Draw(w.T, "entries") {
		e := w.entry()
		if !slices.ContainsFunc(list, func(o driver.Entry) bool { return o.Kind == e.Kind && o.Key == e.Key }) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, byKindAndKey)
	return list
}

func byKindAndKey(a, b driver.Entry) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

func (w *walk) changeEntries() operation {
	list := w.entries()
	switch rapid.IntRange(0, 3).Draw(w.T, "change of entries") {
	case 0:
		return operation{name: "Put", run: func(_ *side, t driver.Tx) (any, error) { return nil, t.Put(w.ctx, list...) }}
	case 1:
		return operation{name: "Take", run: func(_ *side, t driver.Tx) (any, error) {
			free, err := t.Take(w.ctx, list...)
			return orEmpty(free), err
		}}
	case 2:
		e := w.entry()
		return operation{name: "Add", run: func(_ *side, t driver.Tx) (any, error) { return t.Add(w.ctx, 0, e) }}
	}
	// Those of the list have other times than those that are found.
	anyTime, others := w.chance(2), w.chance(2)
	return operation{name: "Delete", run: func(_ *side, t driver.Tx) (any, error) {
		found, err := t.Entries(w.ctx, true, list...)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(found, byKindAndKey)
		for i := range found {
			if anyTime {
				found[i].At = 0
			}
		}
		if others {
			return orEmpty(found), t.Delete(w.ctx, list...)
		}
		return orEmpty(found), t.Delete(w.ctx, found...)
	}}
}

func (w *walk) readEntries() operation {
	kind, key, limit, until, keys := pick(w, "kind", kinds), pick(w, "entry", entryKeys), w.limit(), w.time(), w.entries()
	counted := rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, len(kinds), rapid.ID).Draw(w.T, "counted kinds")
	name := fmt.Sprintf("reads of entries of %q at %q up to %d, counts of %q", kind, key, limit, counted)
	return operation{name: name, run: func(_ *side, t driver.Tx) (any, error) {
		scanned, err := t.Scan(w.ctx, kind, key)
		if err != nil {
			return nil, err
		}
		ranged, err := t.Range(w.ctx, kind, key, limit)
		if err != nil {
			return nil, err
		}
		old, err := t.Old(w.ctx, kind, until, limit)
		if err != nil {
			return nil, err
		}
		named, err := t.Entries(w.ctx, false, keys...)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(named, byKindAndKey)
		n, err := t.CountEntries(w.ctx, counted...)
		return []any{orEmpty(scanned), orEmpty(ranged), orEmpty(old), orEmpty(named), n}, err
	}}
}

// callersOperation is one that the engine makes in a caller's transaction. It does not find the rows that the same
// transaction has inserted.
func (w *walk) callersOperation() operation {
	switch rapid.IntRange(0, 3).Draw(w.T, "operation of a caller") {
	case 0:
		rows := w.newRows()
		return operation{name: "Insert within", run: func(_ *side, t driver.Tx) (any, error) { return nil, t.Insert(w.ctx, rows) }}
	case 1:
		var known []outmill.WorkItemID
		for _, r := range w.rows {
			known = append(known, r.ID)
		}
		return w.found(w.idsOf(known))
	case 2:
		return w.readEntries()
	}
	return w.changeEntries()
}
