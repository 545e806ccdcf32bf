package drivertest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// empty empties the driver, and notes what both begin with.
func (w *walk) empty() error {
	for _, s := range []*side{w.want, w.have} {
		err := s.db.Update(w.ctx, driver.Begin{}, func(t driver.Tx) error {
			s.first = t.State().Generations
			_, rows, err := t.After(w.ctx, outmill.WorkItemID{}, all, anything)
			if err != nil {
				return err
			}
			slices.SortFunc(rows, byPlace)
			if _, err := t.Apply(w.ctx, driver.Changes{Delete: rows}); err != nil {
				return err
			}
			for _, group := range append([]string{""}, groups...) {
				if err := t.Forget(w.ctx, group); err != nil {
					return err
				}
			}
			for _, kind := range kinds {
				entries, err := t.Scan(w.ctx, kind, "")
				if err != nil {
					return err
				}
				for i := range entries {
					entries[i].At = 0
				}
				if err := t.Delete(w.ctx, entries...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return w.want.db.View(w.ctx, driver.Begin{}, func(t driver.Tx) error {
		w.base = t.State().Now
		return nil
	})
}

// dump reads all rows and notes. From then on both know the Seqs of all rows.
func (w *walk) dump() []operation {
	list := []operation{{name: "rows", run: func(s *side, t driver.Tx) (any, error) {
		rows, err := w.find(s, t, w.ids)
		if err != nil {
			return nil, err
		}
		_, behind, err := t.After(w.ctx, outmill.WorkItemID{}, all, anything)
		behind = w.placed(behind)
		slices.SortFunc(behind, byID)
		return [][]driver.Row{orEmpty(rows), orEmpty(behind)}, err
	}}, {name: "state", run: func(s *side, t driver.Tx) (any, error) {
		s.state = t.State()
		return raised(s.first, s.state.Generations), nil
	}}}
	for _, group := range groups {
		for i := range len(topics) * len(parts[1:]) {
			ask := driver.Ask{
				Line: driver.Line{Group: group, Topic: topics[i%len(topics)], Part: parts[1+i/len(topics)]}, Owner: owners[0], Limit: all, Keys: true,
				Free: []string{
					"", driver.RetryBlocks, owners[0], owners[1], driver.PauseNote(7), driver.KeyedPauseNote(7), driver.PauseNote(8),
				},
			}
			list = append(list, operation{name: fmt.Sprint("page of ", ask.Line), run: func(s *side, t driver.Tx) (any, error) {
				p, err := t.Page(w.ctx, ask)
				return w.pageOf(s, p), err
			}})
		}
	}
	return list
}

func (w *walk) dumpEntries() (list []operation) {
	for _, kind := range kinds {
		list = append(list, operation{name: "entries of " + kind, run: func(_ *side, t driver.Tx) (any, error) {
			entries, err := t.Scan(w.ctx, kind, "")
			return orEmpty(entries), err
		}})
	}
	return list
}

// compareContents compares what DB.Read returns of all rows.
func (w *walk) compareContents() error {
	var contents [2][]driver.Content
	for i, s := range []*side{w.want, w.have} {
		var rows []driver.Row
		for n, id := range w.ids {
			// The row of a rolled back Insert has no Seq.
			if seq, known := s.seq[id]; known {
				rows = append(rows, driver.Row{ID: id, Seq: seq})
			} else {
				rows = append(rows, driver.Row{ID: id, Seq: driver.None - int64(n)})
			}
		}
		read, err := s.db.Read(w.ctx, rows, driver.Metadata|driver.Payload|driver.History)
		if err != nil {
			return err
		}
		for _, c := range read {
			contents[i] = append(contents[i], content(c))
		}
	}
	if !reflect.DeepEqual(contents[0], contents[1]) {
		return difference(fmt.Sprintf("Read of all contents after a transaction of %v", w.last), contents[0], contents[1], nil)
	}
	return nil
}
