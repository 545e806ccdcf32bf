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

// Claims in order of one topic are serialised by the lock of its line, so that
// each begins after the one before has committed; what may change whether a key
// is held shares that lock. Everything else goes on at the same time. See the
// procedures in schema.

const (
	// minLooks bounds what one transaction of a claim passes over (expired or
	// blocked records), each of them once.
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
	// looks is how many more records this transaction may look at.
	looks   int
	lanes   []storekit.Candidate
	page    []storekit.Candidate
	dropped int
	// before bounds what the claim sees: see Outbox_LineOpen.
	before sql.NullTime
	// leased has what was leased so far, and counted the joins that were.
	leased  []placed
	counted []outmill.JoinID
}

func (c *claim) newLine(tx *sql.Tx, topic string, want int, byTopic bool) *line {
	return &line{
		c: c, tx: tx, topic: topic, byTopic: byTopic, looks: max(minLooks, 10*want),
		OrderedScan: storekit.OrderedScan{Policy: c.req.KeyPolicy, Want: want, MaxBytes: c.req.MaxBytes, Bytes: c.bytes,
			First: len(c.records) == 0},
	}
}

// takeByKey leases up to want records, those of each key in their order.
//
// Each page is read from the head of the line, after what was decided about
// the one before has been carried out, because another transaction may have put records in
// line before those that were seen.
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
			// A page that a newcomer has cut says nothing of what is behind it.
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

// takeByTopic leases up to want records as if the topic were one key. It needs
// no lane: where the topic is blocked, it sees that at the head of the line.
func (c *claim) takeByTopic(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, want, true, func(ctx context.Context, l *line) error {
		// The line and what is held were read each up to a page: behind the first
		// page of both some may be missing.
		l.page = l.page[:min(len(l.page), l.pageSize())]
		l.Page(l.page)
		// Behind records that have expired there may be others.
		c.again = c.again || l.dropped > 0 || len(l.Expired) > 0 && !l.Full
		return l.settle(ctx)
	})
}

// inTurn has the claims of one topic that this store makes wait for each other here:
// in the database they would, too, each with a connection that others need.
func (c *claim) inTurn(ctx context.Context, topic string, take func() error) error {
	unlock, err := c.s.claiming.Lock(ctx, [2]string{c.req.Group, topic})
	if err != nil {
		return c.s.explain(ctx, "claim", err)
	}
	defer unlock()
	return take()
}

// inOrder runs a claim's transaction on one topic and takes over what it
// leased.
func (c *claim) inOrder(ctx context.Context, topic string, want int, byTopic bool, fn func(ctx context.Context, l *line) error) error {
	var done *line
	err := c.inTurn(ctx, topic, func() error {
		return c.s.write(ctx, "claim", func(ctx context.Context, tx *sql.Tx) error {
			done = c.newLine(tx, topic, want, byTopic)
			if err := done.open(ctx); err != nil {
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

// look spends looks, and tells whether there are any left.
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

// open locks the line, admits what is due, and reads it.
func (l *line) open(ctx context.Context) error {
	err := l.c.s.do(ctx, l.tx, call{
		template: "[dbo].[Outbox_LineOpen]", args: l.readArgs(named("ByTopic", l.byTopic)),
		reset: l.forget, sets: []reader{numbers(&l.before), numbers(&l.dropped), l.row},
	})
	// More is due than a claim admits: the next one goes on.
	l.c.again = l.c.again || l.before.Valid
	return err
}

// read reads the lanes to look at, and the head of the line.
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
	var otherEnd, waitingEnd sql.NullTime
	var waiting, held sql.NullInt64
	err := scan(&kind, &r.Seq, &r.Key, &r.Expired, &r.Expiries, &r.Size, &nth, &other, &otherEnd, &waiting, &waitingEnd, &held,
		&r.State.Parked)
	r.First = nth == 1 && !l.byTopic
	r.State.Other = other.String
	r.State.OtherEnd, r.State.WaitingEnd = timeOrNil(otherEnd), timeOrNil(waitingEnd)
	r.State.Waiting, r.State.Held = placeOf(waiting), placeOf(held)
	if kind == 0 {
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

// lookAtLanes puts held records back in line, of lanes that are no longer
// blocked for the claimer, as many as the claim wants, notes what blocks the
// others, and reads the line again.
func (l *line) lookAtLanes(ctx context.Context) error {
	for len(l.lanes) > 0 {
		looked, back := len(l.lanes), 0
		notes := make([]noteRow, looked)
		for i, r := range l.lanes {
			b, barrier := r.State.Blocker(l.c.req.KeyPolicy)
			notes[i] = noteRow{Place: int64(i), Key: l.c.s.text(r.Key), BlockedBy: b.By, Until: untilText(b), Barrier: barrier}
		}
		err := l.c.s.do(ctx, l.tx, call{
			template: "[dbo].[Outbox_LineLook]", args: l.readArgs(l.beforeArg(), set(l.c.s, "Notes", "Note", notes), named("Want", l.Want)),
			reset: l.forget, sets: []reader{numbers(&back), numbers(&l.dropped), l.row},
		})
		if err != nil {
			return err
		}
		if back >= l.Want {
			// If these go nowhere (expired, parked), the lanes may have more.
			l.c.again = true
			return nil
		}
		if !l.look(looked) {
			return nil
		}
	}
	return nil
}

// settle carries out what was decided about the page.
func (l *line) settle(ctx context.Context) error {
	var decisions []decisionRow
	for letter, records := range map[string][]storekit.Candidate{"l": l.Leasing, "x": l.Expired, "p": l.Parked, "h": l.Holding} {
		for _, r := range records {
			decisions = append(decisions, decisionRow{r.Seq, letter})
		}
	}
	if len(decisions)+len(l.Reopen) == 0 {
		return nil
	}
	var notes []noteRow
	for key, held := range l.HeldKeys {
		notes = append(notes, noteRow{Place: int64(len(notes)), Key: l.c.s.text(key), BlockedBy: held.By, Until: untilText(held.Blocker),
			Head: held.Head})
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
