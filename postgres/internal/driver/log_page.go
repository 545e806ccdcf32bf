package driver

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

// driverLog is what a process remembers of the log.
type driverLog struct {
	history atomic.Pointer[logHistory]
	// topics are the lines that the log had when they were read last. Nobody changes the list.
	topics atomic.Pointer[[]driver.Line]
	keeper *segments.Keeper
	pace   pace
	// adapted says that the log is one of this server: see adapt.
	adapted  atomic.Bool
	adapting sync.Mutex

	refused refusals

	// segment is the one that the last transaction has read.
	segment atomic.Int64
	mu      sync.Mutex
	leased  map[outmill.WorkItemID]leasedRow
	// unindexed are batches whose rows are not in leased.
	unindexed []*leasedBatch
	// looked is when those were dropped last whose leases have ended.
	looked time.Time
}

// txLog is the log in a transaction.
type txLog struct {
	// history is what the process knows; nil must be read. shown is the stamp that the transaction began with, and stamp that of its
	// own events.
	history      *logHistory
	shown, stamp int64
	// segment is where it appends, and event the last one that it began with.
	segment, event int64
	// tables says that the tables are locked, and locked has the chains by their locks.
	tables bool
	locked map[int64]bool
	// place is that of logTx.
	place int64
	// stale says that a page was of another stamp.
	stale bool
	pages map[driver.Line]*logPage
	// refs are the rows that the transaction has read.
	refs map[outmill.WorkItemID]logRef
	// leases are those of this transaction, and moved what it has moved of batches.
	leases []*leasedBatch
	moved  []outmill.WorkItemID
}

// logRef is where a row is.
type logRef struct {
	line *logLine
	id   outmill.WorkItemID
	pos  int64
	// page has shown the row, which is not read; nil is one that was found by another search, or one of a batch.
	page *logPage
	// batch is nil unless the row is in work.
	batch   *workBatch
	ordinal int
}

// workBatch is a batch in work, as it was read.
type workBatch struct {
	n, token, size int64
	until          driver.Time
	owner, worker  string
	// ends is when the process no longer remembers it.
	ends time.Time
}

func (d *Driver) newTxLog() *txLog {
	return &txLog{
		history: d.log.history.Load(), segment: d.log.segment.Load(), locked: map[int64]bool{}, pages: map[driver.Line]*logPage{},
		refs: map[outmill.WorkItemID]logRef{},
	}
}

// keepSegment keeps the segment for appends that guess the state.
func (t *tx) keepSegment() { t.d.log.segment.Store(t.log.segment) }

// sameHistory reports whether what the process knows of the registrations is what the transaction has read, and forgets it otherwise.
func (t *tx) sameHistory() bool {
	if h := t.log.history; h != nil && h.stamp == t.log.shown {
		return true
	}
	if t.learn(t.log.shown); t.log.history != nil {
		// Another transaction has read it since this one began. What it has sent is of before.
		t.log.pages, t.log.refs = map[driver.Line]*logPage{}, map[outmill.WorkItemID]logRef{}
	}
	return false
}

// lockTables locks the tables of the log in a statement of its own.
func (t *tx) lockTables() {
	if !t.log.tables {
		t.log.tables = true
		t.add("log_tables", nil, nil)
	}
}

// row is the row of the line that the log has there, ready.
func (l *logLine) row(line driver.Line, r *logRow) driver.Row {
	return driver.Row{
		Seq: r.pos, ID: l.masks.id(l.chain, r.id, r.event), Line: line, Key: r.key, Tenant: r.tenant,
		Created: r.created, Size: r.size, Next: r.created,
	}
}

// worked is the row with the lease of its batch.
func (b *workBatch) worked(r driver.Row) driver.Row {
	r.Stage, r.Wake, r.Owner, r.Worker, r.Claims = driver.Leased, b.until, b.owner, b.worker, 1
	return r
}

// addMoves queues what comes before the page of a chain, whose lock the caller has queued.
func (t *tx) addMoves(l *logLine) {
	if l != nil && !l.dropping && t.locks {
		t.add("log_move_ended", []any{l.topic, l.chain, l.stamp, l.group, l.masks.events(), l.masks.values(l.chain), mostMoved}, nil)
	}
}

// mostMoved is how many batches with ended leases a page moves.
const mostMoved = 1000

// add adds a row of a page to the log's page, as log_page returns it.
func (p *logPage) add(r *logRow, seen string, fresh bool) {
	if seen != "" {
		p.stale, p.seen, p.odd, p.passes, p.fresh = false, seen, r.late, int64(r.size), fresh
		p.last = max(p.last, p.passes)
	} else {
		if r.late {
			p.late++
		}
		p.rows = append(p.rows, *r)
	}
	p.last = max(p.last, r.pos)
}

// merge returns the ready rows of records and log in their order, at most limit, and notes which rows of the log these are.
func (t *tx) merge(line driver.Line, p *logPage, ready []driver.Row, limit int, claims bool) []driver.Row {
	if p == nil {
		return ready
	}
	if p.stale {
		t.log.stale = true
		return ready
	}
	if p.fresh {
		t.log.place = max(t.log.place, p.last)
	}
	p.moreLate = p.late == limit
	slices.SortFunc(p.rows, func(a, b logRow) int { return cmp.Compare(a.pos, b.pos) })
	rows := append(make([]driver.Row, 0, len(ready)+len(p.rows)), ready...)
	for i := range p.rows {
		rows = append(rows, p.row(line, &p.rows[i]))
	}
	driver.ByPlace.Sort(rows)
	rows = rows[:min(len(rows), limit)]
	given := 0
	for _, r := range rows {
		if given < len(p.rows) && r.Seq == p.rows[given].pos {
			ref := logRef{line: &p.logLine, id: r.ID, pos: r.Seq}
			if claims {
				ref.page = p
			}
			t.log.refs[r.ID] = ref
			given++
		}
	}
	p.rows = p.rows[:given]
	if claims {
		t.log.pages[line] = p
		t.passOver(p)
	}
	return rows
}

// contentsOf is what pages whose rows the transaction may take have brought of the rows.
func (t *tx) contentsOf(rows []driver.Row) map[outmill.WorkItemID]driver.Content {
	var contents map[outmill.WorkItemID]driver.Content
	for _, r := range rows {
		ref := t.log.refs[r.ID]
		if ref.page == nil {
			continue
		}
		if c, came := ref.page.contents[ref.pos]; came {
			if contents == nil {
				contents = make(map[outmill.WorkItemID]driver.Content, len(rows))
			}
			contents[r.ID] = c
		}
	}
	return contents
}

// passOver queues the move of the cursor over what is skipped, where the page has found nothing else.
func (t *tx) passOver(p *logPage) {
	if p.passes != 0 {
		t.add("log_take", p.passing(t.log.place), nil)
	}
}

// passing are the arguments of log_take that move the cursor alone.
func (p *logPage) passing(place int64) []any {
	return p.args(p.seen, place, p.passes, []int64{}, true, []int64{}, nil, int64(0), rand.Int64(), "", "")
}

// otherKeys sets what other owners have in work, and fills in the states of keys that only the log has.
func otherKeys(p *driver.Page, others map[string]string) {
	if p.Keys == nil {
		p.Keys = map[string]driver.KeyState{}
	}
	none := driver.KeyState{Due: driver.None, Waiting: driver.None, Held: driver.None, Parked: driver.None}
	add := func(key string) {
		if _, known := p.Keys[key]; !known && key != "" {
			p.Keys[key] = none
		}
	}
	for _, r := range p.Ready {
		add(r.Key)
	}
	for _, r := range p.Held {
		add(r.Key)
	}
	for _, n := range p.Notes {
		if key, ok := driver.KeyOf(n.Name); ok {
			add(key)
		}
	}
	for key, owner := range others {
		if state, known := p.Keys[key]; known && state.Other == "" {
			state.Other = owner
			p.Keys[key] = state
		}
	}
}

// logSearch is what a search finds in the log.
type logSearch struct {
	page   *logPage
	locked *bool
	leased []driver.Row
}

// addLogSearch queues what a search finds in the log; nil is nothing.
func (t *tx) addLogSearch(s driver.Search) *logSearch {
	ready, mode := false, -1
	switch s.By {
	case driver.ByStage:
		ready = s.Stage == driver.Ready
		if s.Stage == driver.Leased {
			mode = 0
		}
	case driver.ByPlace:
		ready = true
	case driver.ByDue:
		ready, mode = true, 1
	case driver.ByComing:
		mode = 1
	case driver.ByLater:
		if s.Stage == driver.Leased {
			mode = 2
		}
	default:
	}
	h := t.log.history
	if h == nil || !ready && mode < 0 {
		return nil
	}
	if l := h.reads(s.Line); s.By == driver.ByComing && s.Free && l != nil && t.log.locked[l.lock(t.d.names)] {
		return nil // the page has moved them
	}
	found, always := &logSearch{}, true
	found.locked = &always
	l := h.unread(s.Line)
	if l != nil && l.dropping && s.Group != "" {
		l = nil
	}
	if ready && l != nil {
		claims := t.locks && t.log.locked[l.lock(t.d.names)]
		if t.locks && s.Free && !claims {
			t.lockTables()
			locked := new(bool)
			found.locked = locked
			number := l.lock(t.d.names)
			t.add("try_lock", []any{numbersOf([]int64{number}, itself)}, func(scan scan) error {
				err := scan(locked)
				t.log.locked[number] = *locked
				return err
			})
			claims = true
		}
		found.page = t.addLogPage(l, s.Limit)
		found.page.claims = claims
	}
	if mode >= 0 {
		for _, l := range h.works(s.Line) {
			t.addLeased(found, s.Line, l, mode, s.Limit)
		}
	}
	return found
}

// addLogPage queues a page of a chain alone.
func (t *tx) addLogPage(l *logLine, limit int) *logPage {
	p := &logPage{logLine: *l, stale: true}
	var r logRow
	var seen *string
	var fresh bool
	t.add("log_page", l.args(limit, l.stamp), func(scan scan) error {
		err := scan(&r.pos, &r.late, &seen, &fresh, (*[16]byte)(&r.id), (*int64)(&r.created), &r.key, &r.tenant, &r.size, &r.event)
		text := ""
		if seen != nil {
			text = *seen
		}
		p.add(&r, text, fresh)
		return err
	})
	return p
}

// addLeased queues the rows in work of a chain.
func (t *tx) addLeased(found *logSearch, line driver.Line, l *logLine, mode, limit int) {
	batches := map[int64]*workBatch{}
	var r logRow
	var b workBatch
	var ordinal int
	t.add("log_leased", []any{l.topic, l.chain, mode, int64(t.state.Now), limit}, func(scan scan) error {
		err := scan(append(r.columns(), b.columns(&ordinal)...)...)
		if err != nil {
			return err
		}
		found.leased = append(found.leased, t.inWork(l, line, r, b, ordinal, batches))
		return nil
	})
}

// columns are the targets of those of log_places and log_leased: first the row, and then its batch.
func (r *logRow) columns() []any {
	return []any{&r.pos, (*[16]byte)(&r.id), (*int64)(&r.created), &r.key, &r.tenant, &r.size, &r.event}
}

func (b *workBatch) columns(ordinal *int) []any {
	return []any{&b.n, &b.token, &b.size, ordinal, (*int64)(&b.until), &b.owner, &b.worker}
}

// inWork is a row of a batch, and notes where it is.
func (t *tx) inWork(l *logLine, line driver.Line, r logRow, b workBatch, ordinal int, batches map[int64]*workBatch) driver.Row {
	known := batches[b.token]
	if known == nil {
		copied := b
		known = &copied
		batches[b.token] = known
	}
	row := known.worked(l.row(line, &r))
	t.log.refs[row.ID] = logRef{line: l, id: row.ID, pos: r.pos, batch: known, ordinal: ordinal}
	return row
}

// searched merges the rows of a search with those of the records.
func (t *tx) searched(s driver.Search, f *logSearch, records []driver.Row) []driver.Row {
	if f == nil {
		return records
	}
	t.dropMoved(s.Line, f, records)
	if f.page != nil && *f.locked {
		ready := slices.DeleteFunc(slices.Clone(records), func(r driver.Row) bool { return r.Stage != driver.Ready })
		others := slices.DeleteFunc(slices.Clone(records), func(r driver.Row) bool { return r.Stage == driver.Ready })
		records = append(t.merge(s.Line, f.page, ready, s.Limit, f.page.claims), others...)
		if s.By == driver.ByPlace {
			s.By.Sort(records)
			records = records[:min(len(records), s.Limit)]
		}
	}
	if len(f.leased) == 0 {
		return records
	}
	records = append(slices.Clone(records), f.leased...)
	if s.By == driver.ByStage || s.By == driver.ByLater {
		slices.SortFunc(records, func(a, b driver.Row) int { return cmp.Compare(a.Wake, b.Wake) })
		records = records[:min(len(records), s.Limit)]
	}
	return records
}

// dropMoved drops what has become a record. The log is read first, at a moment of its own, so a row that moves after that is in both.
// One that was changed since, and is not among the records, stays: its change will be lost.
func (t *tx) dropMoved(line driver.Line, f *logSearch, records []driver.Row) {
	// Nobody else moves the rows of a page whose chain this transaction has locked.
	unlocked := f.page != nil && !f.page.claims
	if len(records) == 0 || len(f.leased) == 0 && !unlocked {
		return
	}
	moved := byIDs(records)
	f.leased = slices.DeleteFunc(f.leased, func(r driver.Row) bool {
		if moved[r.ID] {
			delete(t.log.refs, r.ID)
		}
		return moved[r.ID]
	})
	if unlocked {
		f.page.rows = slices.DeleteFunc(f.page.rows, func(r logRow) bool { return moved[f.page.row(line, &r).ID] })
	}
}

// needsHistory reads the registrations before statements that need them.
func (t *tx) needsHistory(ctx context.Context) error {
	_, err := t.history(ctx)
	return err
}
