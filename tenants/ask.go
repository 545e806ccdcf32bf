package tenants

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// askAll asks the members of a wave, and returns an answer of each. That of a member that is late is empty:
// see await.
func (c *catch) askAll(wave []*look) []answer {
	shares := c.shares(wave)
	c.calls += len(wave)
	c.reader.hearAgain()
	w := &waiting{catch: c, began: time.Now(), answers: make([]answer, len(wave)), told: make(chan *question, len(wave))}
	for i, l := range wave {
		w.answers[i] = answer{look: l, share: shares[i]}
		if q := c.begin(l, shares[i], i, w.told); q != nil {
			w.open = append(w.open, q)
		}
	}
	w.await()
	return w.answers
}

// begin asks a member. It returns the question if the claim waits for it: not for that to a member that is
// late, nor if the reader still waits for an earlier answer.
func (c *catch) begin(l *look, share outmill.ClaimRequest, place int, told chan<- *question) *question {
	s, r, late := c.set, c.reader, l.member.isLate()
	if late {
		share = smallShare(share)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	q := &question{look: l, began: time.Now(), place: place, told: told, ended: make(chan struct{}), bound: func() bool { return true }}
	q.catch = &catch{set: s, ctx: ctx, req: share, raw: c.raw, reader: r, taken: c.taken}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.late[l] != nil
	passes := late && share.PassOver != nil && share.PassOver(l.member.name())
	if asked || passes || s.life.Closed() || late && !r.mayLeave(q, c.req) {
		cancel()
		l.asking--
		// A question that has no answer yet places the look when it has one.
		if (!asked || l.asking == 0) && r.looks[l.member.name()] == l {
			r.place(l, false)
		}
		return nil
	}
	if late {
		r.leave(q)
	} else {
		q.bound = context.AfterFunc(c.ctx, cancel)
	}
	s.background.Go(func() {
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		r.answered(q, q.ask())
	})
	if late {
		return nil
	}
	return q
}

// waiting is a claim that waits for the answers of a wave.
type waiting struct {
	catch   *catch
	began   time.Time
	answers []answer
	open    []*question
	told    chan *question
}

// await waits for the answers: at most a tenth of Config.CallTimeout, and, if there are records to hand out or
// to look for, at most a hundredth, or twice as long as the first member with records took. It leaves the other questions to
// later claims.
func (w *waiting) await() {
	c := w.catch
	least, most := c.set.patience()
	until := w.began.Add(max(least, most-w.began.Sub(c.began)))
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	hurry := func(wait time.Duration) {
		if at := w.began.Add(max(wait, least)); at.Before(until) {
			until = at
			timer.Reset(time.Until(until))
		}
	}
	if len(c.taken) > 0 {
		hurry(least)
	}
	for len(w.open) > 0 {
		select {
		case q := <-w.told:
			w.answers[q.place] = q.answer
			w.open = slices.DeleteFunc(w.open, func(o *question) bool { return o == q })
			if len(q.answer.records) > 0 {
				hurry(2 * time.Since(w.began))
			}
		case <-c.reader.stirred:
			hurry(least)
		case <-timer.C:
			w.open = c.reader.leaveAll(w.open, c.req)
		}
	}
}

// ask claims in the member.
func (q *question) ask() answer {
	c, l, req := q.catch, q.look, q.catch.req
	s, m := c.set, l.member
	a := answer{look: l, share: req}
	if !s.reuseReady(m) {
		c.reader.asked(l, 0, nil, 0, s.cfg.MaxIdle)
		return a
	}
	defer m.done()
	if req.PassOver != nil && req.PassOver(m.name()) {
		c.reader.passOver(l)
		return a
	}
	room := m.reserve(req.Limit, time.Now())
	if room == 0 {
		c.full(l)
		return a
	}
	defer m.unreserve(room)
	req.Limit = room
	rooms := c.roomsOf(m)
	if req.Full != nil {
		req.Full = rooms.parts
	}
	began := time.Now()
	answered := &handover{}
	a.err = s.call(c.ctx, m, "claim", brief, func(ctx context.Context) error {
		if err := s.settleDebts(ctx, m); err != nil {
			return err
		}
		req := req
		req.Owner = m.asks(q, req.Owner)
		records, err := m.claims(c.raw)(ctx, req)
		if !answered.give(records) {
			c.giveBackUnseen(ctx, m, records)
		}
		return err
	})
	a.records = answered.take()
	m.took(time.Since(began), s.cfg.CallTimeout/lateOf, a.err)
	s.pauses.note(m)
	m.forgetEnded(time.Now())
	m.hold(leasesOf(a.records), time.Now().Add(req.Lease))
	switch {
	case a.err == nil:
		m.well()
		if len(a.records) > 0 {
			m.busy.found(time.Now())
		}
	case c.ctx.Err() == nil && !s.life.Closed():
		m.nextEpoch()
		s.fault(m, a.err)
		s.report("Claim failed in a member, the others go on", m.name(), a.err)
	}
	c.reader.noRoom(l, rooms)
	c.reader.asked(l, len(a.records), a.err, ageOf(a.records, req.Lease), s.cfg.MaxIdle)
	return a
}

// full leaves out a member that has no room for more records until one is settled or a lease ends.
func (c *catch) full(l *look) {
	_, ends := l.member.inFlight(time.Now())
	c.reader.asked(l, 0, nil, 0, c.set.cfg.MaxIdle)
	if !ends.IsZero() {
		c.reader.dueBy(l.member.name(), ends)
	}
}

func leasesOf(records []roles.RawRecord) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

// ageOf is how long the oldest of the records that were never claimed before had been due, by the
// clock of their database: the lease began with the claim.
func ageOf(records []roles.RawRecord, lease time.Duration) (age time.Duration) {
	for _, r := range records {
		if r.Claims == 1 {
			age = max(age, r.LeaseUntil.Add(-lease).Sub(r.DueAt))
		}
	}
	return age
}

// handover passes the records of a claim to its question, unless the question has given up.
type handover struct {
	mu      sync.Mutex
	records []roles.RawRecord
	over    bool
}

func (h *handover) give(records []roles.RawRecord) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false
	}
	h.records = records
	return true
}

func (h *handover) take() []roles.RawRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	return h.records
}

// giveBackUnseen releases what a claim has leased after its time was over, so that the records need not wait
// for the end of their leases. The claim is still a call of the member, which Set.call would refuse now.
func (c *catch) giveBackUnseen(ctx context.Context, m *member, records []roles.RawRecord) {
	if len(records) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.set.cfg.CallTimeout)
	defer cancel()
	if err := m.store.Release(ctx, leasesOf(records)); err != nil {
		c.set.report("Records could not be given back, they come again when their leases end", m.name(), err)
	}
}
