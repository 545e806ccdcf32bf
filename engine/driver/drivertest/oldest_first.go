package drivertest

import (
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// span is since when a line is due, as closely as the contract says it: a driver may take the first of its ready rows for
// the oldest, and the end of a wait or of a lease for the time at which a row is due.
type span struct{ from, to driver.Time }

// requireOldestFirst returns an error if a line of the answer stands before one that has been due longer. It leaves out
// lines with notes that the claim looks at.
func (w *walk) requireOldestFirst(t driver.Tx, ask driver.Topics, due []driver.Line) error {
	_, rows, err := t.After(w.ctx, outmill.WorkItemID{}, all, anything)
	if err != nil {
		return err
	}
	spans := spansOf(rows, t.State().Now)
	var last span
	for _, line := range due {
		page, err := t.Page(w.ctx, driver.Ask{Line: line, Free: ask.Free, Limit: 1})
		if err != nil {
			return err
		}
		span, known := spans[line]
		if !known || len(page.Notes) > 0 || ask.Held && hasHeld(rows, line) {
			continue
		}
		if span.to < last.from {
			return fmt.Errorf("Due of %+v returns %v: %v stands behind a line that has been due for a shorter time", ask, due, line)
		}
		if span.from > last.from {
			last = span
		}
	}
	return nil
}

func hasHeld(rows []driver.Row, line driver.Line) bool {
	for i := range rows {
		if rows[i].Line == line && rows[i].Stage == driver.Held {
			return true
		}
	}
	return false
}

// spansOf are those of the lines with rows that are due.
func spansOf(rows []driver.Row, now driver.Time) map[driver.Line]span {
	spans, first := map[driver.Line]span{}, map[driver.Line]int64{}
	for i := range rows {
		r := &rows[i]
		due := max(r.Next, r.Created)
		one := span{due, max(due, r.Wake)}
		switch {
		case r.Stage == driver.Ready:
			if seq, known := first[r.Line]; !known || r.Seq < seq {
				first[r.Line] = r.Seq
			}
			one.to = driver.Never
		case r.Stage >= driver.Waiting && r.Stage <= driver.Leased && r.Wake <= now:
			one.from = min(due, r.Wake)
		default:
			continue
		}
		if known, found := spans[r.Line]; found {
			one = span{min(one.from, known.from), min(one.to, known.to)}
		}
		spans[r.Line] = one
	}
	for i := range rows {
		if r := &rows[i]; r.Stage == driver.Ready && r.Seq == first[r.Line] {
			s := spans[r.Line]
			s.to = min(s.to, max(r.Next, r.Created))
			spans[r.Line] = s
		}
	}
	return spans
}
