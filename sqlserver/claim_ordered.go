package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The lock of a line serialises claims in order of one topic and group, so that each claim begins
// after the previous one has committed. Every change of whether a key is held shares that lock.
// All other work is concurrent. See the procedures in schema.

const (
	// minLooks bounds how many expired or blocked records one transaction of a claim skips. Each
	// record counts once.
	minLooks = 1000
	minPage  = 32
)

// line is an ordered claim of one topic, in one transaction.
type line struct {
	storekit.OrderedScan
	c       *claim
	tx      *sql.Tx
	topic   string
	byTopic bool
	// looks is how many more records this transaction may read.
	looks   int
	lanes   []storekit.Candidate
	page    []storekit.Candidate
	dropped int
	// before bounds the records that the claim sees: see Outbox_LineOpen.
	before sql.NullTime
	// served means that the topic is not paused as a whole, and that no record must come back
	// first that a claim without an order has set aside.
	served bool
	// leased are the records that were leased so far, and counted the joins that were counted.
	leased  []placed
	counted []outmill.JoinID
}

func (c *claim) newLine(tx *sql.Tx, topic string, want int, byTopic bool) *line {
	return &line{
		c: c, tx: tx, topic: topic, byTopic: byTopic, looks: max(minLooks, 10*want),
		OrderedScan: storekit.OrderedScan{Policy: c.req.KeyPolicy, Want: want, MaxBytes: c.req.MaxBytes, Bytes: c.bytes,
			First: len(c.records) == 0, Group: c.req.Group, Topic: topic, WholeTopic: byTopic},
	}
}

// takeByKey leases up to want records, in order within each key.
//
// It reads each page from the first ready record, after it has carried out its decisions on the
// previous page, because another transaction may have made earlier records ready.
func (c *claim) takeByKey(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, want, false, func(ctx context.Context, l *line) error {
		if err := l.lookAtLanes(ctx); err != nil {
			return err
		}
		for {
			size := len(l.page)
			l.Page(l.page)
			if err := l.settle(ctx); err != nil {
				return err
			}
			// If a new record cut a page off, there may be more records behind the page.
			c.again = c.again || l.dropped > 0
			if l.Full || l.Taken == l.Want || size < l.pageSize() || !l.look(size) {
				return nil
			}
			if err := l.read(ctx); err != nil {
				return err
			}
		}
	})
}

// takeByTopic leases up to want records as if the topic were one key. It needs no lane, because
// the first ready records show whether the topic is blocked.
func (c *claim) takeByTopic(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, want, true, func(ctx context.Context, l *line) error {
		// Ready and held records were each read up to a page, so behind the first page of both
		// together some may be missing.
		l.page = l.page[:min(len(l.page), l.pageSize())]
		l.Page(l.page)
		// There may be more records behind expired ones.
		c.again = c.again || l.dropped > 0 || len(l.Expired) > 0 && !l.Full
		return l.settle(ctx)
	})
}

// inTurn makes this store's claims of one topic wait for each other in this process. They would
// also wait in the database, but there each of them would use a connection that others need.
func (c *claim) inTurn(ctx context.Context, topic string, take func() error) error {
	unlock, err := c.s.claiming.Lock(ctx, [2]string{c.req.Group, topic})
	if err != nil {
		return c.s.explain(ctx, "claim", err)
	}
	defer unlock()
	return take()
}

// inOrder runs a claim's transaction on one topic, and adds the leased records to the claim.
func (c *claim) inOrder(ctx context.Context, topic string, want int, byTopic bool, fn func(ctx context.Context, l *line) error) error {
	var done *line
	err := c.inTurn(ctx, topic, func() error {
		return c.s.write(ctx, "claim", func(ctx context.Context, tx *sql.Tx) error {
			done = c.newLine(tx, topic, want, byTopic)
			if err := done.open(ctx); err != nil || !done.served {
				return err
			}
			return fn(ctx, done)
		})
	})
	if err != nil {
		return err
	}
	c.s.hurry(ctx, done.counted)
	c.over = c.over || done.Over
	slices.SortFunc(done.leased, func(a, b placed) int { return cmp.Compare(a.seq, b.seq) })
	for _, p := range done.leased {
		if p.stage == storekit.StageLeased {
			c.records = append(c.records, p.record)
			c.bytes += p.record.Size()
		}
	}
	return nil
}

func (l *line) pageSize() int { return max(l.Want, minPage) }

// look uses up n looks, and reports whether there are any left.
func (l *line) look(n int) bool {
	l.looks -= n
	l.c.again = l.c.again || l.looks <= 0
	return l.looks > 0
}

func (l *line) args(more ...any) []any {
	return append([]any{
		named("Owner", l.c.req.Owner.String()), named("Group", l.c.req.Group), named("Topic", l.topic),
	}, more...)
}

func (l *line) readArgs(more ...any) []any {
	return l.args(append([]any{named("Passed", storekit.IgnoredBlocker(l.c.req.KeyPolicy)), named("Page", l.pageSize())}, more...)...)
}

// open locks the line, makes due records ready, and reads the line.
func (l *line) open(ctx context.Context) error {
	var again bool
	err := l.c.s.do(ctx, l.tx, call{
		template: "[dbo].[Outbox_LineOpen]", args: l.readArgs(named("ByTopic", l.byTopic)),
		reset: l.forget, sets: []reader{numbers(&l.c.pauses, &l.served, &again, &l.before), numbers(&l.dropped), l.row},
	})
	if err != nil {
		return err
	}
	// More records are due, or come back, than one claim makes ready. The next claim continues.
	l.c.again = l.c.again || again || l.before.Valid
	l.Pauses, err = l.c.s.pausesIn(ctx, l.tx, l.c.pauses)
	return err
}

// read reads the lanes to check, and the first ready records.
func (l *line) read(ctx context.Context) error {
	return l.c.s.do(ctx, l.tx, call{
		template: "[dbo].[Outbox_LineRead]", args: l.readArgs(named("ByTopic", l.byTopic), l.beforeArg()),
		reset: l.forget, sets: []reader{numbers(&l.dropped), l.row},
	})
}

func (l *line) beforeArg() any {
	if !l.before.Valid {
		return named("Before", sql.NullString{})
	}
	return named("Before", some(l.before.Time.UTC().Format(textOfTime)))
}

func (l *line) forget() { l.lanes, l.page, l.dropped = nil, nil, 0 }

// row reads a row of Outbox_LineRead: a lane, or a record.
func (l *line) row(scan func(...any) error) error {
	var kind, nth int64
	var r storekit.Candidate
	var other sql.NullString
	var otherEnd, waitingEnd, expires sql.NullTime
	var waiting, held sql.NullInt64
	err := scan(&kind, &r.Seq, &r.Key, &r.Expired, &r.Expiries, &r.Size, &nth, &other, &otherEnd, &waiting, &waitingEnd, &held,
		&r.State.Parked, sqlkit.Text(&r.TenantID), &expires)
	r.Expires = timeOrNil(expires)
	r.First = nth == 1 && !l.byTopic
	r.State.Other = other.String
	r.State.OtherEnd, r.State.WaitingEnd = timeOrNil(otherEnd), timeOrNil(waitingEnd)
	r.State.Waiting, r.State.Held = placeOf(waiting), placeOf(held)
	if kind == 0 {
		r.State.HeldTenant, r.State.HeldExpiry = r.TenantID, r.Expires
		l.lanes = append(l.lanes, r)
	} else {
		l.page = append(l.page, r)
	}
	return err
}

func timeOrNil(t sql.NullTime) *time.Time {
	if !t.Valid {
		return nil
	}
	return &t.Time
}

func placeOf(seq sql.NullInt64) int64 {
	if !seq.Valid {
		return storekit.NoSeq
	}
	return seq.Int64
}

func untilText(b storekit.Blocker) sql.NullString {
	if b.Until == nil {
		return sql.NullString{}
	}
	return some(b.Until.UTC().Format(textOfTime))
}

// lookAtLanes makes held records ready again, of lanes that are no longer blocked for the
// claimer, as many as the claim wants. It notes what blocks the other lanes, and reads the line
// again.
func (l *line) lookAtLanes(ctx context.Context) error {
	for len(l.lanes) > 0 {
		looked, back := len(l.lanes), 0
		notes := make([]noteRow, looked)
		for i, r := range l.lanes {
			b, barrier := l.blocker(r)
			notes[i] = noteRow{Place: int64(i), Key: l.c.s.text(r.Key), BlockedBy: b.By, Until: untilText(b), Barrier: barrier,
				PausedBy: pauseOrNull(b.Pause)}
		}
		err := l.c.s.do(ctx, l.tx, call{
			template: "[dbo].[Outbox_LineLook]", args: l.readArgs(l.beforeArg(), set(l.c.s, "Notes", "Note", notes), named("Want", l.Want)),
			reset: l.forget, sets: []reader{numbers(&back), numbers(&l.dropped), l.row},
		})
		if err != nil {
			return err
		}
		if back >= l.Want {
			// If these are not leased (because they are expired or parked), the lanes may have
			// more.
			l.c.again = true
			return nil
		}
		if !l.look(looked) {
			return nil
		}
	}
	return nil
}

// blocker returns what blocks the lane, and the place up to which its records become ready: none
// if its key, or the tenant of its first record, is paused.
func (l *line) blocker(lane storekit.Candidate) (storekit.Blocker, int64) {
	if number := l.Pauses.Of(l.Group, l.Topic, lane.Key, lane.State.HeldTenant); number != 0 {
		return storekit.Blocker{By: storekit.BlockedByPause, Pause: number, Until: lane.State.HeldExpiry}, 0
	}
	return lane.State.Blocker(l.c.req.KeyPolicy)
}

func pauseOrNull(number int64) sql.NullInt64 { return sql.NullInt64{Int64: number, Valid: number != 0} }

// settle carries out the decisions on the page.
func (l *line) settle(ctx context.Context) error {
	var decisions []decisionRow
	for letter, records := range map[string][]storekit.Candidate{
		"l": l.Leasing, "x": l.Expired, "p": l.Parked, "h": l.Holding, "a": l.Aside,
	} {
		for _, r := range records {
			decisions = append(decisions, decisionRow{r.Seq, letter, pauseOrNull(r.Pause)})
		}
	}
	if len(decisions)+len(l.Reopen) == 0 {
		return nil
	}
	var notes []noteRow
	for key, held := range l.HeldKeys {
		notes = append(notes, noteRow{Place: int64(len(notes)), Key: l.c.s.text(key), BlockedBy: held.By, Until: untilText(held.Blocker),
			Head: held.Head, PausedBy: pauseOrNull(held.Pause)})
	}
	err := l.c.s.do(ctx, l.tx, call{
		template: "[dbo].[Outbox_LineSettle]",
		args: l.args(named("Lease", sqlkit.CeilMicros(l.c.req.Lease)), set(l.c.s, "Records", "Decision", decisions),
			set(l.c.s, "Notes", "Note", notes),
			set(l.c.s, "Reopen", "Name", l.c.s.names(l.Reopen)), named("Parked", storekit.ParkedError)),
		sets: []reader{collect(&l.leased), joinIDs(&l.counted)},
	})
	l.Settled()
	return err
}
