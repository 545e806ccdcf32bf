package driver

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// What Apply does to rows of the log comes before what it writes to the records. Rows of a page that become leased are a batch. An ack
// or a deletion of leased rows sets their bits. Everything else moves the rows to the records, and is then the statement of the records.

// logFirst queues the changes of rows of the log, and leaves those that are then changes of records.
func (w *writing) logFirst(ctx context.Context, c *driver.Changes) error {
	t := w.t
	if len(t.log.refs) == 0 {
		return nil
	}
	l := logChanges{writing: w, pages: map[*logPage]*pageFates{}, batches: map[int64]*batchChanges{}, unread: map[*logLine]*unreadChanges{}}
	rows := make([]driver.Change, 0, len(c.Rows))
	for i := range c.Rows {
		if !l.change(&c.Rows[i]) {
			rows = append(rows, c.Rows[i])
		}
	}
	deletes := make([]driver.Row, 0, len(c.Delete))
	for i := range c.Delete {
		if !l.delete(&c.Delete[i]) {
			deletes = append(deletes, c.Delete[i])
		}
	}
	if len(l.pages)+len(l.batches)+len(l.unread) == 0 {
		return nil
	}
	if len(l.batches)+len(l.unread) > 0 {
		w.last = false // they may be lost
	}
	t.lockTables()
	moved, err := l.write(ctx)
	c.Rows, c.Delete = slices.Concat(rows, moved), deletes
	slices.SortFunc(c.Rows, func(a, b driver.Change) int { return bytes.Compare(a.Was.ID[:], b.Was.ID[:]) })
	return err
}

// logChanges are the changes of an Apply that begin in the log.
type logChanges struct {
	*writing
	pages   map[*logPage]*pageFates
	batches map[int64]*batchChanges // by token
	unread  map[*logLine]*unreadChanges
}

// pageFates are what becomes of the rows of a page.
type pageFates struct {
	fates map[int64]logFate
	kept  []int64
	lease driver.Row
	rows  []logRef
}

// batchChanges are those of a batch.
type batchChanges struct {
	ref                   logRef
	deleted, moved, later []logRef
	changes, extended     []driver.Change
}

// unreadChanges are those of rows that no page has shown.
type unreadChanges struct{ deleted, moved []logRef }

func (l *logChanges) page(p *logPage) *pageFates {
	if l.pages[p] == nil {
		l.pages[p] = &pageFates{fates: map[int64]logFate{}}
	}
	return l.pages[p]
}

func (l *logChanges) batch(ref logRef) *batchChanges {
	token := ref.batch.token
	if l.batches[token] == nil {
		l.batches[token] = &batchChanges{ref: ref}
	}
	return l.batches[token]
}

func (l *logChanges) unreadOf(line *logLine) *unreadChanges {
	if l.unread[line] == nil {
		l.unread[line] = &unreadChanges{}
	}
	return l.unread[line]
}

// shown is the page that has shown the row, if it is still the newest of the line.
func (l *logChanges) shown(r *driver.Row, ref logRef) *logPage {
	if ref.page == nil || l.t.log.pages[r.Line] != ref.page {
		return nil
	}
	return ref.page
}

// change takes over the change of a row of the log, and reports whether it needs no change of a record.
func (l *logChanges) change(c *driver.Change) (done bool) {
	ref, known := l.t.log.refs[c.Was.ID]
	if !known {
		return false
	}
	if ref.batch != nil {
		b := l.batch(ref)
		if c.IsExtension() {
			b.later, b.extended = append(b.later, ref), append(b.extended, *c)
			return true
		}
		b.moved, b.changes = append(b.moved, ref), append(b.changes, *c)
		return true
	}
	p := l.shown(&c.Was, ref)
	if p == nil {
		u := l.unreadOf(ref.line)
		u.moved = append(u.moved, ref)
		delete(l.t.log.refs, ref.id)
		return false
	}
	f := l.page(p)
	if c.IsLease() && c.Now.Attempts == c.Was.Attempts && c.Now.Expiries == c.Was.Expiries && (f.lease.Owner == "" ||
		f.lease.Owner == c.Now.Owner && f.lease.Worker == c.Now.Worker && f.lease.Wake == c.Now.Wake) {
		f.fates[ref.pos], f.lease = logTaken, c.Now
		f.rows = append(f.rows, ref)
		return true
	}
	f.fates[ref.pos] = logMoved
	f.kept = append(f.kept, ref.pos)
	delete(l.t.log.refs, ref.id)
	return false
}

// delete takes over the deletion of a row of the log.
func (l *logChanges) delete(r *driver.Row) (done bool) {
	ref, known := l.t.log.refs[r.ID]
	if !known {
		return false
	}
	if ref.batch != nil {
		b := l.batch(ref)
		b.deleted = append(b.deleted, ref)
		return true
	}
	delete(l.t.log.refs, ref.id)
	if p := l.shown(r, ref); p != nil {
		l.page(p).fates[ref.pos] = logMoved
		return true
	}
	u := l.unreadOf(ref.line)
	u.deleted = append(u.deleted, ref)
	return true
}

// write queues what is done in the log, chain by chain. It returns the changes that are then those of records.
func (l *logChanges) write(ctx context.Context) (moved []driver.Change, err error) {
	lines := make([]*logLine, 0, len(l.pages)+len(l.unread)+len(l.batches))
	add := func(line *logLine) {
		if !slices.ContainsFunc(lines, func(known *logLine) bool { return known.topic == line.topic && known.chain == line.chain }) {
			lines = append(lines, line)
		}
	}
	for p := range l.pages {
		add(&p.logLine)
	}
	for line := range l.unread {
		add(line)
	}
	for _, b := range l.batches {
		add(b.ref.line)
	}
	slices.SortFunc(lines, func(a, b *logLine) int { return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.chain, b.chain)) })
	same := func(a, b *logLine) bool { return a.topic == b.topic && a.chain == b.chain }
	var extending []*batchChanges
	for _, line := range lines {
		for p, f := range l.pages {
			if same(&p.logLine, line) {
				l.take(p, f)
			}
		}
		for of, u := range l.unread {
			if same(of, line) {
				l.skip(of, u.deleted, false)
				l.skip(of, u.moved, true)
			}
		}
		var batches []*batchChanges
		for _, b := range l.batches {
			if same(b.ref.line, line) {
				batches = append(batches, b)
			}
		}
		slices.SortFunc(batches, func(a, b *batchChanges) int { return cmp.Compare(a.ref.batch.n, b.ref.batch.n) })
		for _, b := range batches {
			l.settle(b)
			l.move(b.ref, b.moved, b.changes[:min(len(b.changes), 1)])
			moved = append(moved, b.changes...)
			if len(b.later) > 0 {
				extending = append(extending, b)
			}
		}
	}
	if len(extending) == 0 {
		return moved, nil
	}
	// Those of which others are open move, and are extended there.
	apart := make([]bool, len(extending))
	for i, b := range extending {
		l.extend(b, &apart[i])
	}
	if err := l.t.flush(ctx); err != nil {
		return nil, err
	}
	for i, b := range extending {
		if apart[i] {
			l.move(b.ref, b.later, b.extended[:1])
			moved = append(moved, b.extended...)
		}
	}
	return moved, nil
}

// take queues the lease of rows of a page, and the move of others.
func (l *logChanges) take(p *logPage, f *pageFates) {
	t := l.t
	fates := make([]logFate, len(p.rows))
	for i, r := range p.rows {
		fates[i] = f.fates[r.pos]
	}
	token := rand.Int64()
	batch := &workBatch{
		token: token, until: f.lease.Wake, owner: f.lease.Owner, worker: f.lease.Worker, ends: time.Now().Add(untilOf(f.lease.Wake, t.state.Now)),
	}
	t.d.log.pace.used.Store(true)
	args, places := p.taking(fates, t.log.place, token, logLease{owner: batch.owner, worker: batch.worker, until: batch.until})
	batch.size = int64(len(places))
	t.add("log_take", args, func(scan scan) error { return scan(&batch.n) })
	delete(t.log.pages, driver.LineOf(p.group, p.topic))
	if len(f.kept) > 0 {
		slices.Sort(f.kept)
		t.add("log_move_read", []any{p.topic, numbersOf(f.kept, itself), p.group, p.masks.events(), p.masks.values(p.chain)}, nil)
	}
	if len(places) == 0 {
		return
	}
	slices.SortFunc(f.rows, func(a, b logRef) int { return cmp.Compare(a.pos, b.pos) })
	ids := make([]outmill.WorkItemID, len(f.rows))
	for i, ref := range f.rows {
		ref.page, ref.batch, ref.ordinal = nil, batch, i
		t.log.refs[ref.id], f.rows[i], ids[i] = ref, ref, ref.id
	}
	t.log.leases = append(t.log.leases, &leasedBatch{&p.logLine, batch, places, ids})
	if l.last && l.want != 0 {
		l.contents(p, f.rows)
	}
}

// untilOf is how long a lease lasts.
func untilOf(until, now driver.Time) time.Duration {
	return time.Duration(until-now) * time.Microsecond
}

// contents queues the read of what is leased, and was not brought by the page.
func (l *logChanges) contents(p *logPage, rows []logRef) {
	byPlace := make(map[int64]outmill.WorkItemID, len(rows))
	places := make([]int64, 0, len(rows))
	for _, ref := range rows {
		if _, came := p.contents[ref.pos]; !came {
			byPlace[ref.pos], places = ref.id, append(places, ref.pos)
		}
	}
	if len(places) == 0 {
		return
	}
	if l.done.Contents == nil {
		l.done.Contents = make(map[outmill.WorkItemID]driver.Content, len(places))
	}
	name, args := "log_content", []any{p.topic, numbersOf(places, itself), int(l.want)}
	first, last := places[0], places[len(places)-1]
	between := 0
	for _, r := range p.rows {
		if first <= r.pos && r.pos <= last {
			between++
		}
	}
	if 2*len(places) > between && p.late == 0 {
		name, args = "log_content_between", []any{p.topic, first, int(l.want), last}
	}
	l.t.add(name, args, func(scan scan) error {
		var pos int64
		var c content
		err := readContent(func(into ...any) error { return scan(append([]any{&pos}, into...)...) }, &c)
		if id, wanted := byPlace[pos]; wanted {
			l.done.Contents[id] = c.Content
		}
		return err
	})
}

// skip queues that rows that are not read leave the chain.
func (l *logChanges) skip(line *logLine, rows []logRef, keep bool) {
	if len(rows) == 0 {
		return
	}
	t := l.t
	left := map[int64]bool{}
	slices.SortFunc(rows, func(a, b logRef) int { return cmp.Compare(a.pos, b.pos) })
	t.add("log_change_unread", []any{
		line.lock(t.d.names), line.stamp, line.topic, line.chain, line.begin.pos, line.begin.seen,
		numbersOf(rows, func(r *logRef) int64 { return r.pos }), line.group, line.masks.events(), line.masks.values(line.chain), keep,
	}, func(scan scan) error {
		var pos int64
		err := scan(&pos)
		left[pos] = true
		return err
	})
	if keep {
		return // the change of the record says what was lost
	}
	l.lost = append(l.lost, func() {
		for _, r := range rows {
			if !left[r.pos] {
				l.lose(r.id)
			}
		}
	})
}

// maskOf has a bit for each row of the batch.
func maskOf(batch *workBatch, rows []logRef) string {
	bits := []byte(strings.Repeat("0", int(batch.size)))
	for _, r := range rows {
		bits[r.ordinal] = '1'
	}
	return string(bits)
}

// settle queues the end of rows of a batch.
func (l *logChanges) settle(b *batchChanges) {
	if len(b.deleted) == 0 {
		return
	}
	batch, rows := b.ref.batch, b.deleted
	var mask any
	if len(rows) < int(batch.size) {
		mask = maskOf(batch, rows)
	}
	won := ""
	l.t.add("log_settle", []any{b.ref.line.topic, b.ref.line.chain, batch.n, batch.token, mask}, func(scan scan) error { return scan(&won) })
	l.loses(rows, &won)
}

// loses notes that rows are lost that have no bit in won.
func (l *logChanges) loses(rows []logRef, won *string) {
	l.lost = append(l.lost, func() {
		for _, r := range rows {
			if r.ordinal >= len(*won) || (*won)[r.ordinal] != '1' {
				l.lose(r.id)
				continue
			}
			delete(l.t.log.refs, r.id)
		}
	})
}

// move queues the move of rows of a batch, for a change of records behind it. first is one of the changes.
func (l *logChanges) move(ref logRef, rows []logRef, first []driver.Change) {
	if len(rows) == 0 {
		return
	}
	t, line, batch := l.t, ref.line, ref.batch
	t.add("log_change_leased", []any{
		line.lock(t.d.names), line.stamp, line.topic, line.chain, batch.n, batch.token, maskOf(batch, rows), int64(batch.until),
		first[0].Was.Group, line.masks.events(), line.masks.values(line.chain),
	}, nil)
	for _, r := range rows {
		delete(t.log.refs, r.id)
		t.log.moved = append(t.log.moved, r.id)
	}
}

// extend queues the extension of rows of a batch. apart says that others are open.
func (l *logChanges) extend(b *batchChanges, apart *bool) {
	batch, rows := b.ref.batch, b.later
	until := b.extended[0].Now.Wake
	var won *string
	line := b.ref.line
	args := []any{line.topic, line.chain, batch.n, batch.token, maskOf(batch, rows), int64(batch.until), int64(until)}
	l.t.add("log_extend_rows", args, func(scan scan) error {
		err := scan(&won)
		*apart = won == nil
		return err
	})
	l.lost = append(l.lost, func() {
		if won == nil {
			return
		}
		for _, r := range rows {
			if r.ordinal >= len(*won) || (*won)[r.ordinal] != '1' {
				l.lose(r.id)
			}
		}
	})
}
