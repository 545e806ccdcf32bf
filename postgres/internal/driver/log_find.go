package driver

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// idsBehind are the first and the last id that begin as the id: the row and its copies.
func idsBehind(id outmill.WorkItemID) (low, high outmill.WorkItemID) {
	low, high = id, id
	for i := 8; i < len(id); i++ {
		low[i], high[i] = 0, 0xff
	}
	return low, high
}

// placed is a chain of which the states of rows are read.
type placed struct {
	*logLine
	// works is the line of what the chain has in work, and unread says that the chain has not ended.
	works   driver.Line
	unread  bool
	batches map[int64]*workBatch
}

// addPlaces queues the states of rows of chains of a line. places are lists from numbersOf: one for each chain, or one for all. What is not
// read or in work is given to found.
func (t *tx) addPlaces(h *logHistory, topic string, chains []int64, places []string, found func(r driver.Row)) {
	line := driver.LineOf("", topic)
	known, list := h.chains(line.Topic), make([]placed, len(chains))
	for i, chain := range chains {
		line.Group = known.worker(chain)
		p := placed{logLine: h.line(line, chain), works: line, batches: map[int64]*workBatch{}}
		_, p.unread = known.holder(chain)
		list[i] = p
	}
	args := []any{
		topic, numbersOf(list, func(p *placed) int64 { return p.chain }), numbersOf(list, func(p *placed) int64 { return p.begin.pos }),
		textsOf(list, func(p *placed) string { return p.begin.seen }), boolsOf(list, func(p *placed) bool { return p.unread }), places,
	}
	var r logRow
	var b workBatch
	var nth, ordinal int
	t.add("log_places", args, func(scan scan) error {
		err := scan(slices.Concat([]any{&nth}, r.columns(), b.columns(&ordinal))...)
		if err != nil {
			return err
		}
		p := &list[nth-1]
		if b.n >= 0 {
			found(t.inWork(p.logLine, p.works, r, b, ordinal, p.batches))
			return nil
		}
		row := p.row(driver.LineOf(p.group, topic), &r)
		if known, ok := t.log.refs[row.ID]; !ok || known.page == nil {
			t.log.refs[row.ID] = logRef{line: p.logLine, id: row.ID, pos: r.pos}
		}
		found(row)
		return nil
	})
}

// logPlaces are places of chains, by their topics.
type logPlaces map[string]map[int64][]int64

func (l logPlaces) add(topic string, chain, pos int64) {
	of := l[topic]
	if of == nil {
		of = map[int64][]int64{}
		l[topic] = of
	}
	of[chain] = append(of[chain], pos)
}

// addAllPlaces queues the states of rows of chains.
func (t *tx) addAllPlaces(h *logHistory, all logPlaces, found func(r driver.Row)) {
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		chains := slices.Sorted(maps.Keys(all[topic]))
		t.addPlaces(h, topic, chains, textsOf(chains, func(chain *int64) string { return numbersOf(all[topic][*chain], itself) }), found)
	}
}

// addRemembered queues the states of those rows of which the process knows where they are.
func (t *tx) addRemembered(ids []outmill.WorkItemID, found func(r driver.Row)) {
	h := t.log.history
	all := logPlaces{}
	refs := t.d.log.remembered(ids)
	for _, ref := range refs {
		all.add(ref.line.topic, ref.line.chain, ref.pos)
	}
	t.addAllPlaces(h, all, found)
}

// findInLog adds the rows of the log that have the ids, in two round trips. The id of a row also leads to the row of the chain that waits
// instead of its own: others are the ids of such rows.
func (t *tx) findInLog(ctx context.Context, ids []outmill.WorkItemID, found func(r driver.Row)) (others []outmill.WorkItemID, err error) {
	h, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[outmill.WorkItemID][]outmill.WorkItemID{}
	var lows, highs []outmill.WorkItemID
	for _, id := range ids {
		low, high := idsBehind(id)
		if wanted[low] == nil {
			lows, highs = append(lows, low), append(highs, high)
		}
		wanted[low] = append(wanted[low], id)
	}
	all := logPlaces{}
	t.add("log_find", []any{idsOf(lows, itself), idsOf(highs, itself)}, func(scan scan) error {
		var topic string
		var pos, event int64
		var row outmill.WorkItemID
		if err := scan(&topic, &pos, (*[16]byte)(&row), &event); err != nil {
			return err
		}
		low, _ := idsBehind(row)
		for _, id := range wanted[low] {
			chains := h.chains(driver.LineOf("", topic).Topic)
			for i, chain := range chains.ofRow(row, event, id) {
				if all.add(topic, chain, pos); i > 0 {
					others = append(others, chains.masks[chain].id(chain, row, event))
				}
			}
		}
		return nil
	})
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	t.addAllPlaces(h, all, found)
	return others, t.flush(ctx)
}

// alsoInLog adds the rows of the log to those of the records. A row may have moved to the records between the two searches.
func (t *tx) alsoInLog(ctx context.Context, ids []outmill.WorkItemID, records []driver.Row, logged *[]driver.Row) ([]driver.Row, error) {
	found := byIDs(records)
	rows := slices.Clone(records)
	add := func(list []driver.Row) {
		for _, r := range list {
			if !found[r.ID] {
				found[r.ID] = true
				rows = append(rows, r)
			}
		}
	}
	for id := range found {
		delete(t.log.refs, id)
	}
	add(*logged)
	missing := func() []outmill.WorkItemID {
		return slices.DeleteFunc(once(ids), func(id outmill.WorkItemID) bool { return found[id] })
	}
	left := missing()
	if len(left) == 0 {
		return rows, nil
	}
	var more []driver.Row
	others, err := t.findInLog(ctx, left, func(r driver.Row) { more = append(more, r) })
	if err != nil {
		return nil, err
	}
	add(more)
	if left = missing(); len(left) == 0 {
		return rows, nil
	}
	moved := t.collectRows("find", []any{idsOf(append(left, others...), itself)}, true)
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	for _, r := range *moved {
		delete(t.log.refs, r.ID)
	}
	add(*moved)
	return rows, nil
}

func byIDs(rows []driver.Row) map[outmill.WorkItemID]bool {
	ids := make(map[outmill.WorkItemID]bool, len(rows))
	for _, r := range rows {
		ids[r.ID] = true
	}
	return ids
}

// toRecord moves a row of the log to the records, and reports whether there was one.
func (t *tx) toRecord(ctx context.Context, id outmill.WorkItemID) (moved bool, err error) {
	var found []driver.Row
	if _, err := t.findInLog(ctx, []outmill.WorkItemID{id}, func(r driver.Row) { found = append(found, r) }); err != nil {
		return false, err
	}
	for _, r := range found {
		if r.ID == id {
			t.moveRow(r)
			moved = true
		}
	}
	if !moved {
		return false, nil
	}
	return true, t.flush(ctx)
}

// moveRow queues the move of a row that the transaction has read in the log.
func (t *tx) moveRow(r driver.Row) {
	ref := t.log.refs[r.ID]
	l := logChanges{writing: &writing{t: t, done: &driver.Applied{}}}
	t.lockTables()
	if ref.batch != nil {
		l.move(ref, []logRef{ref}, []driver.Change{{Was: r}})
		return
	}
	l.skip(ref.line, []logRef{ref}, true)
	delete(t.log.refs, r.ID)
}

// logAfter is what the log has behind an id: rows that are like the given one, and an id for each of the others, behind those of its
// copies.
type logAfter struct {
	id     outmill.WorkItemID
	like   driver.Like
	found  []driver.Row
	others []outmill.WorkItemID
}

// besides are the others but for those that lead to the same messages as the rows: their copies have become records.
func (a *logAfter) besides(rows []driver.Row) []outmill.WorkItemID {
	known := make(map[outmill.WorkItemID]bool, len(rows))
	for _, r := range rows {
		_, behind := idsBehind(r.ID)
		known[behind] = true
	}
	return slices.DeleteFunc(a.others, func(id outmill.WorkItemID) bool { return known[id] })
}

// afterInLog looks at the log until it has found enough: what is settled stays there until its segment goes.
func (t *tx) afterInLog(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) (*logAfter, error) {
	a := &logAfter{id: id, like: like}
	// The log has no rows of later stages.
	if like.First > driver.Leased {
		return a, nil
	}
	h, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	low, _ := idsBehind(id)
	for look, left := lookFor(limit), limit; ; {
		end, whole, err := t.lookBehind(ctx, h, a, low, look)
		if err != nil {
			return nil, err
		}
		before := left
		if left = limit - len(a.found) - len(a.others); whole || left <= 0 {
			return a, nil
		}
		if before-left < look/2 || end == low {
			look = min(4*look, mostLooked)
		} else {
			look = lookFor(left)
		}
		low = end
	}
}

// lookBehind adds up to look rows from low on. end is where the next look begins; whole says that there is nothing more.
func (t *tx) lookBehind(ctx context.Context, h *logHistory, a *logAfter, low outmill.WorkItemID, look int) (
	end outmill.WorkItemID, whole bool, err error) {
	alike := map[string][]int64{}
	last, n := low, 0
	args := []any{low.String(), look, a.like.Key, a.like.Tenant, a.like.MessageID, a.like.CorrelationID}
	t.add("log_after", args, func(scan scan) error {
		var topic string
		var pos int64
		var texts bool
		if err := scan(&topic, &pos, (*[16]byte)(&last), &texts); err != nil {
			return err
		}
		n++
		line := driver.LineOf("", topic)
		if !texts || a.like.Topic != "" && a.like.Topic != line.Topic {
			_, behind := idsBehind(last)
			a.others = append(a.others, behind)
			return nil
		}
		alike[topic] = append(alike[topic], pos)
		return nil
	})
	if err := t.flush(ctx); err != nil {
		return end, false, err
	}
	whole = n < look
	// More rows may begin as the last id.
	end, behind := idsBehind(last)
	if !whole && end == low && look == mostLooked {
		end = behind
	}
	in := func(id outmill.WorkItemID) bool {
		return bytes.Compare(id[:], a.id[:]) > 0 && (whole || bytes.Compare(id[:], end[:]) < 0)
	}
	_, here := idsBehind(a.id)
	a.others = slices.DeleteFunc(a.others, func(id outmill.WorkItemID) bool { return id == here || !in(id) })
	for _, topic := range slices.Sorted(maps.Keys(alike)) {
		chains := h.chains(driver.LineOf("", topic).Topic).known
		t.addPlaces(h, topic, chains, []string{numbersOf(alike[topic], itself)}, func(r driver.Row) {
			if in(r.ID) {
				a.found = append(a.found, r)
			}
		})
	}
	return end, whole, t.flush(ctx)
}

// leastLooked and mostLooked are how many rows of the log a search by id looks at in one round.
const leastLooked, mostLooked = 100, 100_000

// lookFor is how many rows a search looks at that wants so many: some more, because it leaves the last one, and those that begin as it,
// to the next round.
func lookFor(limit int) int { return min(max(limit+limit/100+1, leastLooked), mostLooked) }

// overAllLines returns what the log has for a search over all lines, which has found some of the records.
func (t *tx) overAllLines(ctx context.Context, s driver.Search, found int) (rows []driver.Row, err error) {
	switch {
	case s.By == driver.ByEnded && found < s.Limit:
		return t.allEnded(ctx, s.Limit-found)
	case s.By == driver.ByOpen && found == 0:
		return t.anyOpen(ctx)
	}
	return nil, nil
}

// allEnded returns rows in work whose leases have ended.
func (t *tx) allEnded(ctx context.Context, limit int) (rows []driver.Row, err error) {
	h := t.log.history
	batches := map[int64]*workBatch{}
	var topic string
	var chain int64
	var r logRow
	var b workBatch
	var ordinal int
	t.add("log_all_ended", []any{limit, int64(t.state.Now)}, func(scan scan) error {
		if err := scan(slices.Concat([]any{&topic, &chain}, r.columns(), b.columns(&ordinal))...); err != nil {
			return err
		}
		line := driver.LineOf("", topic)
		line.Group = h.chains(line.Topic).worker(chain)
		rows = append(rows, t.inWork(h.line(line, chain), line, r, b, ordinal, batches))
		return nil
	})
	err = t.flush(ctx)
	return rows, err
}

// anyOpen returns a row if the log has one that is not read, or in work. It has nothing but its line.
func (t *tx) anyOpen(ctx context.Context) (rows []driver.Row, err error) {
	lines, err := t.logTopics(ctx)
	if err != nil {
		return nil, err
	}
	var chains []anyChain
	for _, line := range lines {
		chains = append(chains, t.log.history.all(line)...)
	}
	t.addAny(chains, func(c anyChain) { rows = []driver.Row{{Line: c.line}} })
	err = t.flush(ctx)
	return rows, err
}

// anyChain is a chain of a line. unread says that somebody reads it, or will.
type anyChain struct {
	*logLine
	line   driver.Line
	unread bool
}

// all are the chains of a line, those that have ended, too: they may have rows in work.
func (h *logHistory) all(line driver.Line) (all []anyChain) {
	chains := h.chains(line.Topic)
	for _, chain := range chains.known {
		_, unread := chains.holder(chain)
		all = append(all, anyChain{h.line(line, chain), line, unread})
	}
	return all
}
