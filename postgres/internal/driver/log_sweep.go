package driver

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

// sweep takes rows away that wait since the end of a registration of the group, and whose appends knew the registration. Once there are no
// more, another chain waits instead, which begins at the mark of the end: what transactions that were open then have appended
// under the registration comes there, for a later sweep.
func (t *tx) sweep(ctx context.Context, h *logHistory, e driver.Event, left *driver.Left) error {
	ended := slices.ContainsFunc(h.readings, func(r logReading) bool { return r.group == e.Group && r.ended > 0 && r.swept >= 0 })
	if !ended {
		return nil
	}
	// As in the upkeep, the registrations come before the chains.
	t.add("log_alone", nil, nil)
	lines, err := t.logTopics(ctx)
	if err != nil {
		return err
	}
	for _, line := range lines {
		c := h.chains(line.Topic)
		i := slices.IndexFunc(h.readings, func(r logReading) bool { return r.number == c.waitsBy && r.group == e.Group && r.swept >= 0 })
		if c.waiting == noChain || i < 0 {
			continue
		}
		n, more, err := t.sweepLine(ctx, h.line(line, c.waiting), h.readings[i].ended, e.Limit-left.Gone)
		left.Gone += n
		if left.More = more; err != nil || more {
			return err
		}
	}
	if slices.ContainsFunc(h.readings, func(r logReading) bool { return r.group == e.Group && r.ended > 0 && r.swept == 0 }) {
		t.add("log_swept", []any{e.Group, t.log.stamp}, nil)
	}
	return nil
}

// sweepLine has the cursor of a chain that waits pass up to limit rows of appends that did not know the event, and reports whether there
// are more. Rows between them stay to be read.
func (t *tx) sweepLine(ctx context.Context, l *logLine, event int64, limit int) (n int, more bool, err error) {
	t.lockTables()
	t.add("lock", []any{l.lock(t.d.names)}, nil)
	p := t.addLogPage(l, limit+mostCounted)
	if err := t.flush(ctx); err != nil {
		return 0, false, err
	}
	if p.stale {
		return 0, false, errStale
	}
	p.moreLate = p.late == limit+mostCounted
	fates := make([]logFate, len(p.rows))
	for i, r := range p.rows {
		if r.event >= event {
			continue
		}
		if n == limit {
			more = true
			break
		}
		fates[i] = logMoved
		n++
	}
	if args, _ := p.taking(fates, t.log.place, rand.Int64(), logLease{}); args != nil {
		t.add("log_take", args, nil)
	}
	return n, more, nil
}
