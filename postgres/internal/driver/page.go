package driver

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The further kinds of the rows that a page has. See statements/pages.sql.
const (
	// kindLogHead is the head of a page of the log, kindLog one of its rows, and kindOther a key that another owner has in work there.
	kindLogHead = sqlkit.PageMore + iota
	kindLog
	kindOther

	// kindAlone is that of pages.
	kindAlone = sqlkit.PageNote
)

// noteKey names a note.
type noteKey struct {
	driver.Line
	name string
}

// pageRow is a row of a page, in the columns of a record.
type pageRow struct {
	sqlkit.PageRow
	line int
	// message and the others are the content of a row of the log, if message is not empty.
	message, correlation, causation, parent, state, dedup, metadata string
	payload                                                         []byte
}

// brought are the targets of the columns that a page of the log has beside those of columns.
func (p *pageRow) brought() []any {
	return []any{&p.message, &p.correlation, &p.causation, &p.parent, &p.state, &p.dedup, &p.metadata, &p.payload}
}

// content is what a page brings of a row of the log.
func (p *pageRow) content() (c content) {
	c.Record = &outmill.Record{
		MessageID: p.message, CorrelationID: p.correlation, CausationID: p.causation, TraceParent: p.parent, TraceState: p.state,
		DedupKey: p.dedup, Payload: p.payload,
	}
	c.set(p.Created, "", p.metadata)
	return c
}

// columns are the targets of a page's columns. A page has neither group nor topic, which are those of its line.
func (p *pageRow) columns() []any {
	return append([]any{&p.Kind, &p.line}, p.PageColumns(bytesOfID, &p.Parked)...)
}

// Page returns a page of a line.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page := t.first()
	if page.page == nil || !same(*page.Ask, ask) {
		if err := t.needsHistory(ctx); err != nil {
			return driver.Page{}, err
		}
		page.page = t.addPage(ask)
		if err := t.flush(ctx); err != nil {
			return driver.Page{}, err
		}
	}
	found := page.page()
	if t.log.stale {
		return driver.Page{}, errStale
	}
	t.state.Now = max(t.state.Now, found.Now)
	return found, nil
}

// addPage queues the lock of the line, the search of what is due, and the page. Each is a statement of its own, so the moment
// of the page is after the lock. It returns what returns the page.
func (t *tx) addPage(ask driver.Ask) func() driver.Page {
	p := &driver.Page{}
	locked := true
	chain := t.addPageLocks(ask, &locked)
	due := func() []driver.Row { return nil }
	if ask.Due > 0 {
		due = t.addSearches(ask.Searches())
	}
	locks := t.locks
	t.locks = locks && !ask.Lock
	defer func() { t.locks = locks }()
	r := &pageRow{}
	columns := r.columns()
	name, args := "page", []any{ask.Group, ask.Name(), ask.Owner, ask.Limit, ask.Free, ask.Keys}
	var logged *logPage
	others := map[string]string{}
	if chain != nil && ask.Keys && !chain.dropping {
		name, args = "page_with_log", append(args, chain.chain, chain.begin.pos, chain.begin.seen, chain.stamp)
		logged = &logPage{logLine: *chain, stale: true, contents: map[int64]driver.Content{}}
		if ask.Want == 0 {
			ask.MaxRows = 0
		}
		args, columns = append(args, int(ask.Want), ask.MaxBytes, ask.MaxRows), append(columns, r.brought()...)
	}
	t.add(name, args, func(scan scan) error {
		err := scan(columns...)
		switch r.Kind {
		case sqlkit.PageHead:
			p.Now, p.Unrouted = driver.Time(r.Seq), r.Parked || chain != nil && chain.dropping
		case sqlkit.PageNote:
			t.wrote(r.Note(ask.Line), int64(r.Created))
			r.AddTo(p, ask.Line)
		case sqlkit.PageHeld, sqlkit.PageReady, sqlkit.PageKey:
			r.AddTo(p, ask.Line)
		case kindOther:
			others[r.Key] = r.Owner
		default:
			if logged.add(r.logged()); r.message != "" {
				logged.contents[r.Seq] = r.content().Content
			}
		}
		return err
	})
	return func() driver.Page {
		if !locked {
			return driver.Page{Now: p.Now, Busy: true}
		}
		p.Due = due()
		p.Sort()
		if logged != nil {
			p.Ready = t.merge(ask.Line, logged, p.Ready, ask.Limit, ask.Lock)
			p.Contents = t.contentsOf(p.Ready)
			otherKeys(p, others)
		}
		return *p
	}
}

// logged is a row of the log's page.
func (p *pageRow) logged() (r *logRow, seen string, fresh bool) {
	r = &logRow{pos: p.Seq, late: p.Parked, id: p.ID, created: p.Created, key: p.Key, tenant: p.Tenant, size: p.Bytes(),
		event: int64(p.Expires)}
	return r, p.Owner, p.Created != 0 && p.Kind == kindLogHead
}

// addPageLocks queues the locks of the line and of its chain, which it returns.
func (t *tx) addPageLocks(ask driver.Ask, locked *bool) (chain *logLine) {
	if t.log.history != nil {
		chain = t.log.history.reads(ask.Line)
	}
	if !ask.Lock || !t.locks {
		return chain
	}
	numbers := []int64{t.d.names.lockOf("line", ask.Group, ask.Name())}
	chains := t.chainsToLock(ask.Line, chain)
	for _, l := range chains {
		t.lockTables()
		numbers = append(numbers, l.lock(t.d.names))
	}
	switch {
	case ask.Pass:
		t.add("try_lock", []any{numbersOf(numbers, itself)}, func(scan scan) error {
			free := false
			err := scan(&free)
			*locked = *locked && free
			return err
		})
	case len(chains) == 0:
		t.add("lock", []any{numbers[0]}, nil)
	default:
		t.add("lock_all", []any{numbersOf(numbers, itself)}, nil)
	}
	for i, l := range chains {
		t.log.locked[numbers[i+1]] = true
		t.addMoves(l)
	}
	return chain
}

// chainsToLock are the chain that a group reads and those that it has lost, but has still in work: what has ended of these moves, too.
func (t *tx) chainsToLock(line driver.Line, chain *logLine) []*logLine {
	if t.log.history == nil {
		return nil
	}
	chains := t.log.history.works(line)
	same := func(l *logLine) bool { return l.chain == chain.chain }
	if chain != nil && !slices.ContainsFunc(chains, same) {
		chains = append(chains, chain)
	}
	slices.SortFunc(chains, func(a, b *logLine) int { return cmp.Compare(a.chain, b.chain) })
	return chains
}

// wrote notes which transaction had written the note that this one has read. See drop_notes.
func (t *tx) wrote(n driver.Note, writer int64) {
	if t.writers == nil {
		t.writers = map[noteKey]int64{}
	}
	t.writers[noteKey{n.Line, n.Name}] = writer
}

// Pages returns a page of each line.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	if err := t.needsHistory(ctx); err != nil {
		return nil, err
	}
	pages, locks := make([]driver.Page, len(lines)), t.locks
	chains := make([]*logLine, len(lines))
	for i := range lines {
		chains[i] = t.log.history.reads(lines[i])
		pages[i].Busy = chains[i] != nil && chains[i].dropping
	}
	t.addPagesLocks(ask, lines, chains, pages)
	t.locks = locks && !ask.Lock
	r := &pageRow{}
	columns := r.columns()
	lineNames := textsOf(lines, func(l *driver.Line) string { return l.Name() })
	args := []any{lines[0].Group, lineNames, ask.Owner, ask.Limit, ask.Free, ask.Keys}
	logged, others := make([]*logPage, len(lines)), make([]map[string]string, len(lines))
	args = append(args, t.addChains(chains, logged)...)
	t.add("pages", args, func(scan scan) error {
		if err := scan(columns...); err != nil {
			return err
		}
		i := r.line - 1
		page, line := &pages[i], lines[i]
		switch r.Kind {
		case kindAlone:
			page.Busy = true
		case sqlkit.PageReady, sqlkit.PageKey:
			r.AddTo(page, line)
		case kindOther:
			if others[i] == nil {
				others[i] = map[string]string{}
			}
			others[i][r.Key] = r.Owner
		default:
			logged[i].add(r.logged())
		}
		return nil
	})
	t.locks = locks
	err := t.flush(ctx)
	for i := range pages {
		if pages[i].Busy {
			pages[i] = driver.Page{Busy: true}
			continue
		}
		pages[i].Sort()
		if logged[i] != nil {
			pages[i].Ready = t.merge(lines[i], logged[i], pages[i].Ready, ask.Limit, true)
			if ask.Keys {
				otherKeys(&pages[i], others[i])
			}
		}
	}
	if err == nil && t.log.stale {
		err = errStale
	}
	return pages, err
}

// addPagesLocks tries the locks of the lines and of their chains. Without an order only those of the chains are needed.
func (t *tx) addPagesLocks(ask driver.Ask, lines []driver.Line, chains []*logLine, pages []driver.Page) {
	if !t.locks {
		return
	}
	var numbers []int64
	var of []int
	add := func(i int, number int64) { numbers, of = append(numbers, number), append(of, i) }
	for i, l := range lines {
		if ask.Lock {
			add(i, t.d.names.lockOf("line", l.Group, l.Name()))
		}
		if chains[i] != nil {
			add(i, chains[i].lock(t.d.names))
			t.lockTables()
		}
	}
	if len(numbers) == 0 {
		return
	}
	nth := 0
	t.add("try_lock", []any{numbersOf(numbers, itself)}, func(scan scan) error {
		free := false
		err := scan(&free)
		i := of[nth]
		pages[i].Busy = pages[i].Busy || !free
		if free {
			t.log.locked[numbers[nth]] = true
		}
		nth++
		return err
	})
}

// addChains are the arguments that say which chains the lines have.
func (t *tx) addChains(chains []*logLine, logged []*logPage) []any {
	numbers, places, seen := make([]int64, len(chains)), make([]int64, len(chains)), make([]string, len(chains))
	for i, chain := range chains {
		numbers[i] = noChain
		if chain != nil && !chain.dropping {
			numbers[i], places[i], seen[i] = chain.chain, chain.begin.pos, chain.begin.seen
			logged[i] = &logPage{logLine: *chain, stale: true}
		}
	}
	return []any{numbersOf(numbers, itself), numbersOf(places, itself), seen, t.log.history.stamp}
}

// Keys returns the states of keys of a line.
func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	args := []any{line.Group, line.Name(), owner, keys}
	p, r := driver.Page{Keys: make(map[string]driver.KeyState, len(keys))}, &pageRow{}
	columns := r.columns()
	t.add("key_states", args, func(scan scan) error {
		err := scan(columns...)
		r.AddTo(&p, line)
		return err
	})
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	others, err := t.logOthers(ctx, line, owner, keys)
	otherKeys(&p, others)
	return p.Keys, err
}

// Whole returns the state of a line.
func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	state := driver.KeyState{Held: driver.None, Parked: driver.None}
	t.add("whole", []any{line.Group, line.Name(), owner}, func(scan scan) error { return scan(&state.Other, &state.Waiting, &state.Due) })
	err := t.flush(ctx)
	if err == nil && state.Other == "" {
		state.Other, err = t.logOwner(ctx, line, owner)
	}
	return state, err
}
