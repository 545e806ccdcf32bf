package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// logDue adds the lines of a group of which the log has something that is due, with the time since when.
func (t *tx) logDue(ctx context.Context, ask driver.Topics) (map[string]int64, error) {
	h, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	lines := slices.Clone(ask.Lines)
	if ask.Lines == nil {
		if lines, err = t.logTopics(ctx); err != nil {
			return nil, err
		}
		lines = inLine(ask.Group, lines)
	}
	chains := h.dueChains(lines)
	since := map[string]int64{}
	if len(chains) == 0 {
		return since, nil
	}
	t.add("log_due", append(chainArgs(chains), int64(t.state.Now)), func(scan scan) error {
		var topic string
		var first int64
		err := scan(&topic, &first)
		since[topic] = first
		return err
	})
	return since, t.flush(ctx)
}

// dueChains are those that the lines read now.
func (h *logHistory) dueChains(lines []driver.Line) (chains []*logLine) {
	for _, line := range lines {
		if l := h.reads(line); l != nil && !l.dropping {
			chains = append(chains, l)
		}
	}
	return chains
}

// chainArgs are the topics, the numbers and the begins of chains, as lists.
func chainArgs(chains []*logLine) []any {
	return []any{
		textsOf(chains, func(l **logLine) string { return (*l).topic }), numbersOf(chains, func(l **logLine) int64 { return (*l).chain }),
		numbersOf(chains, func(l **logLine) int64 { return (*l).begin.pos }),
		textsOf(chains, func(l **logLine) string { return (*l).begin.seen }),
	}
}

// logCount adds what a search finds in the log to what it has counted in the records.
func (t *tx) logCount(ctx context.Context, searches []driver.Search, counted []driver.Counted) error {
	if _, err := t.history(ctx); err != nil {
		return err
	}
	found := make([]*logSearch, len(searches))
	for i, s := range searches {
		s.Free = false
		found[i] = t.addLogSearch(s)
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	for i, f := range found {
		if f == nil {
			continue
		}
		rows := f.leased
		if f.page != nil {
			for _, r := range f.page.rows {
				rows = append(rows, driver.Row{Created: r.created, Next: r.created})
			}
		}
		c := &counted[i]
		for _, r := range rows {
			at := r.Next
			if r.Stage == driver.Leased {
				at = r.Wake
			}
			c.N = min(c.N+1, searches[i].Limit)
			if c.Oldest == 0 || at < c.Oldest {
				c.Oldest = at
			}
		}
	}
	return nil
}

// logOthers returns which keys of a line other owners have in work in the log; with no keys, one of them for any.
func (t *tx) logOthers(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]string, error) {
	h, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	others := map[string]string{}
	for _, l := range h.works(line) {
		t.add("log_others", []any{l.topic, l.chain, owner, keys}, func(scan scan) error {
			var key, other string
			err := scan(&key, &other)
			others[key] = other
			return err
		})
	}
	return others, t.flush(ctx)
}

// logOwner returns another owner that has something of the line in work; "" is none.
func (t *tx) logOwner(ctx context.Context, line driver.Line, owner string) (other string, err error) {
	h, err := t.history(ctx)
	if err != nil {
		return "", err
	}
	for _, l := range h.works(line) {
		t.add("log_owner", []any{l.topic, l.chain, owner}, func(scan scan) error { return scan(&other) })
	}
	err = t.flush(ctx)
	return other, err
}

// addLogLoad queues the read of the content of those rows that are in the log, and returns the others.
func (t *tx) addLogLoad(rows []driver.Row, want driver.Want, found *[]content) (records []driver.Row) {
	refs := t.log.refs
	if t.reads {
		refs = make(map[outmill.WorkItemID]logRef, len(rows))
		remembered := t.d.log.remembered(rowIDs(rows))
		for _, ref := range remembered {
			refs[ref.id] = ref
		}
	}
	byTopic := map[string][]logRef{}
	for _, r := range rows {
		// A row of the process's batches may be a record by now, which it has claimed again.
		if ref, known := refs[r.ID]; known && (!t.reads || r.Claims == 1 && r.Owner == ref.batch.owner) {
			byTopic[ref.line.topic] = append(byTopic[ref.line.topic], ref)
			continue
		}
		records = append(records, r)
	}
	for topic, refs := range byTopic {
		ids := make(map[int64][]outmill.WorkItemID, len(refs))
		for _, ref := range refs {
			ids[ref.pos] = append(ids[ref.pos], ref.id)
		}
		t.add("log_content", []any{topic, numbersOf(refs, func(r *logRef) int64 { return r.pos }), int(want)}, func(scan scan) error {
			var pos int64
			var c content
			err := readContent(func(into ...any) error { return scan(append([]any{&pos}, into...)...) }, &c)
			for i, id := range ids[pos] {
				own := c
				if own.id = id; i > 0 {
					record := *c.Record
					record.Metadata, record.Payload = maps.Clone(record.Metadata), slices.Clone(record.Payload)
					own.Record = &record
				}
				*found = append(*found, own)
			}
			return err
		})
	}
	return records
}

func rowIDs(rows []driver.Row) []outmill.WorkItemID {
	ids := make([]outmill.WorkItemID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}
