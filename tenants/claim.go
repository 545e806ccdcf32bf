package tenants

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// leastBytes is the smallest share of a claim's bytes that is worth a call.
const leastBytes = 64 << 10

// Claim leases records of several members, or of the one that Config.Strategy chooses. The limits
// hold for the sum. A suspect is alone, also where other members have something at the same time:
// then it is given back, and a later claim asks its member alone. See outmill.Queue.
//
// A member that fails is reported and left out for a while; the claim fails only where no member
// could be asked. It does not wait for a member that was late the last time, but hands out what that has
// answered to an earlier claim of the same owner: see storekit.ClaimBegins.
func (s *Set) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if err := storekit.CheckClaim(req); err != nil {
		return nil, failed("claim", err)
	}
	if err := s.life.Usable(ctx); err != nil {
		return nil, failed("claim", err)
	}
	req.Group = storekit.GroupOf(req.Group)
	c := &catch{set: s, ctx: ctx, req: req, reader: s.readerOf(req), asked: map[*look]bool{}, errs: map[string]error{}}
	c.reader.roomAgain(req)
	if !c.takeLate() {
		c.askMembers()
	}
	return c.taken, c.err()
}

// askMembers adds what members have to what late ones have answered.
func (c *catch) askMembers() {
	late := len(c.taken)
	switch {
	case c.set.cfg.Strategy == nil:
		if late == 0 {
			c.alone()
		}
		if len(c.taken) == late && c.ctx.Err() == nil {
			c.shared()
		}
	case late == 0:
		c.inTurn()
	}
}

// catch is the work of one claim. One goroutine uses it, save ask.
type catch struct {
	set    *Set
	ctx    context.Context
	req    outmill.ClaimRequest
	reader *reader

	asked map[*look]bool
	calls int
	errs  map[string]error
	// refused is what is wrong with the strategy.
	refused error
	taken   []*outmill.Record
	bytes   int
}

// answer is what one member gave.
type answer struct {
	look    *look
	share   outmill.ClaimRequest
	records []*outmill.Record
	err     error
}

// err is nil unless no member could be asked.
func (c *catch) err() error {
	switch {
	case c.ctx.Err() != nil:
		return failed("claim", c.ctx.Err())
	case c.set.life.Closed():
		return failed("claim", outmill.ErrClosed)
	case c.refused != nil:
		return failed("claim", c.refused)
	case len(c.taken) > 0 || len(c.errs) < len(c.asked):
		return nil
	case len(c.errs) > 0:
		return joined(c.errs)
	}
	return c.set.allFailing()
}

// allFailing is the errors of all members where each is left out; nil otherwise.
func (s *Set) allFailing() error {
	now := time.Now()
	members := s.snapshot()
	errs := map[string]error{}
	for _, m := range members {
		err := m.trouble(now)
		if err == nil {
			return nil
		}
		if len(errs) < 10 {
			errs[m.name()] = err
		}
	}
	return joined(errs)
}

// alone asks a member that has a suspect or a large record.
func (c *catch) alone() {
	if l := c.reader.nextAlone(); l != nil && !c.askLate(l, c.req) {
		c.merge([]answer{c.ask(l, c.req)})
	}
}

// inTurn asks the members that the strategy chooses until one has something.
func (c *catch) inTurn() {
	var names []string
	for _, m := range c.set.snapshot() {
		if !m.atRest() {
			names = append(names, m.name())
		}
	}
	for range min(len(names), maxAsked) {
		l, err := c.choose(names)
		if err != nil {
			c.refused = err
			return
		}
		if c.ctx.Err() != nil {
			return
		}
		if l == nil || l.member.trouble(time.Now()) != nil {
			continue
		}
		c.reader.again(l)
		if c.askLate(l, c.req) {
			continue
		}
		a := c.ask(l, c.req)
		c.reader.turn.Lock()
		if c.reader.last == l.member.name() {
			c.reader.found = len(a.records)
		}
		c.reader.turn.Unlock()
		if c.merge([]answer{a}); len(c.taken) > 0 {
			return
		}
	}
}

func (c *catch) choose(names []string) (*look, error) {
	r := c.reader
	r.turn.Lock()
	name := c.set.cfg.Strategy.Next(names, r.last, r.found)
	r.last, r.found = name, 0
	r.turn.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := slices.BinarySearch(names, name); !there {
		return nil, storekit.InvalidConfig("tenants.Config.Strategy chose %q, which is none of the names", name)
	}
	// It is nil where the member has come since.
	return r.looks[name], nil
}

// shared asks several members at a time, until the limits are used up, or those that were asked
// have no more.
func (c *catch) shared() {
	set := c.set
	small := set.isSmall()
	var more []*look
	for c.left() > 0 && c.calls < maxAsked && c.ctx.Err() == nil {
		most := c.mostAtOnce()
		wave := more[:min(len(more), most)]
		for _, l := range wave {
			c.reader.again(l)
		}
		if len(wave) < most {
			wave = append(wave, c.reader.next(time.Now(), most-len(wave), small, len(c.taken) > 0 && !small, c.asked,
				set.cfg.MaxIdle)...)
		}
		if len(wave) == 0 {
			return
		}
		answers := c.askAll(wave)
		if c.merge(answers) {
			return
		}
		more = c.withMore(answers)
	}
	if len(c.taken) == 0 && c.calls >= maxAsked && c.reader.anyDue(time.Now()) {
		// A worker that found nothing would pause.
		set.notifier.Notify()
	}
}

// left is how many records the claim may still take.
func (c *catch) left() int {
	if c.req.MaxBytes > 0 && c.bytes >= c.req.MaxBytes {
		return 0
	}
	return c.req.Limit - len(c.taken)
}

// mostAtOnce is how many members the next calls are for.
func (c *catch) mostAtOnce() int {
	most := min(c.set.cfg.Parallel, c.left(), maxAsked-c.calls)
	if c.req.MaxBytes > 0 {
		most = min(most, max((c.req.MaxBytes-c.bytes)/leastBytes, 1))
	}
	return most
}

// withMore are the members that gave as many records as they were asked for.
func (c *catch) withMore(answers []answer) []*look {
	var more []*look
	for _, a := range answers {
		if a.err == nil && len(a.records) == a.share.Limit {
			more = append(more, a.look)
		}
	}
	return more
}

func (c *catch) askAll(wave []*look) []answer {
	shares := c.shares(wave)
	answers := make([]answer, len(wave))
	c.set.inParallel(len(wave), func(i int) {
		answers[i] = answer{look: wave[i], share: shares[i]}
		if !c.askLate(wave[i], shares[i]) {
			answers[i] = c.ask(wave[i], shares[i])
		}
	})
	c.calls += len(wave)
	return answers
}

// shares divides what the claim may still take: one record for each member, and the rest by the
// weights of those that may have something.
func (c *catch) shares(wave []*look) []outmill.ClaimRequest {
	weights, sum := make([]float64, len(wave)), 0.0
	c.reader.mu.Lock()
	for i, l := range wave {
		if l.pause == 0 {
			weights[i] = l.weight
		}
		sum += weights[i]
	}
	c.reader.mu.Unlock()
	if sum == 0 {
		for i := range weights {
			weights[i] = 1
		}
		sum = float64(len(wave))
	}
	rest := c.left() - len(wave)
	shares, given := make([]outmill.ClaimRequest, len(wave)), 0
	for i := range shares {
		shares[i] = c.req
		extra := int(float64(rest) * weights[i] / sum)
		shares[i].Limit, given = 1+extra, given+extra
	}
	shares[heaviest(weights)].Limit += rest - given
	if c.req.MaxBytes > 0 {
		for i := range shares {
			part := float64(shares[i].Limit) / float64(rest+len(wave))
			shares[i].MaxBytes = max(int(float64(c.req.MaxBytes-c.bytes)*part), 1)
		}
	}
	return shares
}

func heaviest(weights []float64) int {
	best := 0
	for i, w := range weights {
		if w > weights[best] {
			best = i
		}
	}
	return best
}

// ask claims in one member. It may be called concurrently.
func (c *catch) ask(l *look, req outmill.ClaimRequest) answer {
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
	if req.TenantRoom = nil; rooms != nil {
		req.TenantRoom = rooms.left
	}
	began := time.Now()
	got := make(chan []*outmill.Record, 1)
	a.err = s.call(c.ctx, m, "claim", brief, func(ctx context.Context) error {
		if err := s.settleDebts(ctx, m); err != nil {
			return err
		}
		req := req
		req.Owner = m.ownerFor(req.Owner)
		records, err := m.store.Claim(ctx, req)
		got <- records
		return err
	})
	select {
	case a.records = <-got:
	default:
	}
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

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

// ageOf is how long the oldest of the records that were never claimed before had been due, by the
// clock of their database: the lease began with the claim.
func ageOf(records []*outmill.Record, lease time.Duration) (age time.Duration) {
	for _, r := range records {
		if r.Claims == 1 {
			age = max(age, r.LeaseUntil.Add(-lease).Sub(r.DueAt))
		}
	}
	return age
}

// merge takes what members gave, as far as the limits of the claim allow, and reports whether the
// claim is over: it has a suspect, or has met something that it must not have.
func (c *catch) merge(answers []answer) (over bool) {
	for _, a := range answers {
		c.asked[a.look] = true
		if a.err != nil {
			c.errs[a.look.member.name()] = a.err
		}
		if !suspect(a.records) && !c.take(a) {
			over = true
		}
	}
	for _, a := range answers {
		switch {
		case !suspect(a.records):
		case len(c.taken) == 0:
			c.take(a)
			over = true
		default:
			c.giveBack(a)
			over = true
		}
	}
	return over
}

func suspect(records []*outmill.Record) bool { return len(records) > 0 && records[0].Suspect() }

// take takes an answer, or gives it back because it is too large.
func (c *catch) take(a answer) bool {
	size := 0
	for _, r := range a.records {
		size += r.Size()
	}
	if c.req.MaxBytes > 0 && len(c.taken) > 0 && c.bytes+size > c.req.MaxBytes {
		c.giveBack(a)
		return false
	}
	a.look.member.own(a.records...)
	c.taken = append(c.taken, a.records...)
	c.bytes += size
	return true
}

// giveBack releases an answer, and has a later claim ask the member alone.
func (c *catch) giveBack(a answer) {
	m := a.look.member
	c.reader.askAlone(m.name())
	if !c.set.reuse(m) {
		return
	}
	defer m.done()
	leases := leasesOf(a.records)
	if err := c.set.call(context.WithoutCancel(c.ctx), m, "release", brief, func(ctx context.Context) error {
		return m.store.Release(ctx, leases)
	}); err != nil {
		// This owner still holds their keys, and would get later records of them.
		m.nextEpoch()
		c.set.report("Records could not be given back, they come again when their leases end", m.name(), err)
	}
	m.drop(leases)
}
