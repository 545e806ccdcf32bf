package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Claim leases records. See outmill.Queue.
func (s *Store) Claim(ctx context.Context, req outmill.ClaimRequest) (records []*outmill.Record, err error) {
	if err := storekit.CheckClaim(req); err != nil {
		return nil, failed("claim", err)
	}
	req.Group = storekit.GroupOf(req.Group)
	err = s.do(ctx, "claim", func(d *Database, now time.Time) error {
		c := claim{ClaimRequest: req, now: now, lines: d.lines(req), pauses: d.pauses, fair: s.fair, turns: &s.turns}
		err := storekit.ServeTopics(d.inTurn(c.lines), req.Limit, c.room, func() int { return len(c.taken) }, c.take)
		for _, r := range c.taken {
			records = append(records, d.record(r, now))
		}
		return err
	})
	return records, err
}

// lines returns the group's rows by topic, in the order of their commits.
func (d *Database) lines(req outmill.ClaimRequest) map[string][]*row {
	match := req.Topics.Matcher()
	lines := map[string][]*row{}
	d.each(func(r *row) {
		if r.Group == req.Group && match(r.Topic) {
			lines[r.Topic] = append(lines[r.Topic], r)
		}
	})
	return lines
}

// inTurn returns the topics, and begins with another one each time, so that a large backlog
// of one topic does not starve the others.
func (d *Database) inTurn(lines map[string][]*row) []string {
	topics := make([]string, 0, len(lines))
	for topic := range lines {
		topics = append(topics, topic)
	}
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	from := d.turn % len(topics)
	d.turn++
	return append(topics[from:len(topics):len(topics)], topics[:from]...)
}

// claim is the state of one call of Claim.
type claim struct {
	outmill.ClaimRequest
	now   time.Time
	lines map[string][]*row
	taken []*row
	bytes int

	pauses *storekit.PauseList
	fair   storekit.FairTopics
	turns  *storekit.TurnRotation
	// over says that the claim may take no more rows.
	over bool
}

func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.Limit - len(c.taken)
}

func (c *claim) take(topic string, want int) error {
	if c.Order == outmill.OrderNone {
		c.takeOldest(topic, want)
	} else {
		c.takeInOrder(topic, want)
	}
	return nil
}

// ready reports whether the row is due and could be claimed without regard to order.
func (c *claim) ready(r *row) bool {
	due := r.Status == outmill.StatusPending && !r.next.After(c.now)
	return (due || r.leaseEnded(c.now)) && !r.expired(c.now)
}

func (c *claim) takeOldest(topic string, want int) {
	var ready []*row
	for _, r := range c.lines[topic] {
		if c.ready(r) && !c.pauses.Covers(&r.Record) {
			ready = append(ready, r)
		}
	}
	slices.SortStableFunc(ready, func(a, b *row) int { return a.next.Compare(b.next) })
	if c.servesTurns(topic) {
		c.takeInTurns(topic, ready, nil, want)
		return
	}
	for _, r := range ready[:min(want, len(ready))] {
		if !c.fits(r) {
			return
		}
		c.lease(r)
	}
}

// lane has the rows of one key (or of the topic, for OrderTopic) during an ordered claim.
type lane struct {
	rows []*row
	// held says that another owner has one of the rows; stopped, that an earlier row waits for
	// its retry or is paused.
	held, stopped bool
	// parked is the first parked row, or nil.
	parked *row
}

// laneOf returns the lane of the row, or nil if the row has no place in the order.
func laneOf(lanes map[string]*lane, r *row, order outmill.Order) *lane {
	key := r.Key
	switch {
	case order == outmill.OrderTopic:
		key = ""
	case order == outmill.OrderNone || key == "":
		return nil
	}
	l := lanes[key]
	if l == nil {
		l = &lane{}
		lanes[key] = l
	}
	return l
}

func (c *claim) lanes(line []*row) map[string]*lane {
	lanes := map[string]*lane{}
	for _, r := range line {
		l := laneOf(lanes, r, c.Order)
		if l == nil {
			continue
		}
		l.rows = append(l.rows, r)
		l.held = l.held || r.leased(c.now) && r.Owner != c.Owner
		if l.parked == nil && r.parked {
			l.parked = r
		}
	}
	return lanes
}

// takeInOrder takes the rows of a topic in their order. After it has skipped a row, it takes
// no later row of the same lane.
func (c *claim) takeInOrder(topic string, want int) {
	line := c.lines[topic]
	lanes := c.lanes(line)
	var ready []*row
	for _, r := range line {
		l := laneOf(lanes, r, c.Order)
		switch {
		case r.waitsForRetry(c.now):
			if l != nil && c.KeyPolicy != outmill.KeySkip {
				l.stopped = true
			}
		case !c.ready(r):
		case c.pauses.Covers(&r.Record):
			if l != nil {
				l.stopped = true
			}
		case l != nil && c.parks(l, r):
			r.kill(storekit.ParkedError)
			r.parked = true
		case l != nil && (l.held || l.stopped):
			r.behind = true
		case c.servesTurns(topic):
			ready = append(ready, r)
		case want == 0 || !c.fits(r):
			return
		default:
			want--
			c.begin(l)
			c.lease(r)
		}
	}
	if len(ready) > 0 {
		c.takeInTurns(topic, ready, lanes, want)
	}
}

func (c *claim) parks(l *lane, r *row) bool {
	return c.Order == outmill.OrderKey && c.KeyPolicy == outmill.KeyPark && l.parked != nil && l.parked.seq < r.seq
}

// begin reaps the expired leases of a lane, so that the lane begins again with its oldest
// row.
func (c *claim) begin(l *lane) {
	if l == nil {
		return
	}
	for _, r := range l.rows {
		if r.leaseEnded(c.now) {
			r.reap()
		}
	}
}

// fits reports whether the claim may also take the row. An empty claim takes a row of any
// size, and takes a suspect alone.
func (c *claim) fits(r *row) bool {
	expiries := r.Expiries
	if r.leaseEnded(c.now) {
		expiries++
	}
	suspect, first := expiries >= outmill.SuspectExpiries, len(c.taken) == 0
	tooMuch := c.MaxBytes > 0 && c.bytes+r.Size() > c.MaxBytes
	switch {
	case c.over:
		return false
	case !first && (suspect || tooMuch):
		c.over = true
		return false
	}
	c.over = suspect
	return true
}

func (c *claim) lease(r *row) {
	if r.leaseEnded(c.now) {
		r.reap()
	}
	r.Status, r.behind = outmill.StatusLeased, false
	r.Owner, r.LeaseUntil = c.Owner, c.now.Add(c.Lease)
	r.Claims++
	c.taken = append(c.taken, r)
	c.bytes += r.Size()
}
