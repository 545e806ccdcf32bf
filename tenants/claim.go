package tenants

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// leastBytes is the smallest share of a claim's bytes that is worth a call.
const leastBytes = 64 << 10

// Claim leases records of several members, or of the one that Config.Strategy chooses. The limits
// hold for the sum. A suspect is alone, also where other members have something at the same time:
// then it is given back, and a later claim asks its member alone. See outmill.Queue.
//
// A member that fails is reported and left out for a while; the claim fails only where no member
// could be asked. It does not wait for a member that is late, but hands out what that has answered to an
// earlier claim of the same owner: see storekit.ClaimNotes.
func (s *Set) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := s.claim(ctx, req, false)
	if found == nil {
		return nil, err
	}
	records := make([]*outmill.Record, len(found))
	for i, r := range found {
		records[i] = r.Whole()
	}
	return records, err
}

// RawClaims returns the raw claims of this set. See roles.Raw. Those of members that have none are claims whose records have
// their metadata.
func (s *Set) RawClaims(queue outmill.Queue) roles.RawClaims {
	if queue != outmill.Queue(s) {
		return nil
	}
	return func(ctx context.Context, req outmill.ClaimRequest) ([]roles.RawRecord, error) {
		return s.claim(ctx, req, true)
	}
}

// claim is Claim, raw or not. An answer that comes late may be in the other form.
func (s *Set) claim(ctx context.Context, req outmill.ClaimRequest, raw bool) ([]roles.RawRecord, error) {
	if err := storekit.CheckClaim(req); err != nil {
		return nil, failed("claim", err)
	}
	if err := s.life.Usable(ctx); err != nil {
		return nil, failed("claim", err)
	}
	req.Group = storekit.GroupOf(req.Group)
	c := &catch{
		set: s, ctx: ctx, req: req, raw: raw, reader: s.readerOf(req),
		asked: map[*look]bool{}, errs: map[string]error{}, began: time.Now(),
	}
	c.reader.roomAgain(req)
	if !c.takeLate() {
		c.askMembers()
	}
	c.noteUnanswered()
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

// catch is the work of one claim. One goroutine uses it.
type catch struct {
	set *Set
	ctx context.Context
	req outmill.ClaimRequest
	// raw: it asks members for records whose metadata is a list.
	raw    bool
	reader *reader
	began  time.Time

	asked map[*look]bool
	calls int
	errs  map[string]error
	// refused is what is wrong with the strategy.
	refused error
	taken   []roles.RawRecord
	bytes   int
}

// answer is what one member gave.
type answer struct {
	look    *look
	share   outmill.ClaimRequest
	records []roles.RawRecord
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
		return joined(c.set.withFailing(c.errs))
	}
	return c.set.allFailing()
}

// withFailing adds the errors of the members that are left out, so that the error does not depend on whose pause has
// just ended.
func (s *Set) withFailing(errs map[string]error) map[string]error {
	for _, m := range s.snapshot() {
		if err := m.failing(); err != nil && errs[m.name()] == nil && len(errs) < mostNamed {
			errs[m.name()] = err
		}
	}
	return errs
}

// mostNamed is how many members an error names, of those that were not asked.
const mostNamed = 10

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
		if len(errs) < mostNamed {
			errs[m.name()] = err
		}
	}
	return joined(errs)
}

// alone asks a member that has a suspect or a large record.
func (c *catch) alone() {
	if l := c.reader.nextAlone(); l != nil {
		c.merge(c.askAll([]*look{l}))
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
		answers := c.askAll([]*look{l})
		c.reader.turn.Lock()
		if c.reader.last == l.member.name() {
			c.reader.found = len(answers[0].records)
		}
		c.reader.turn.Unlock()
		if c.merge(answers); len(c.taken) > 0 {
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
			c.giveBackForNow(a)
			over = true
		}
	}
	return over
}

func suspect(records []roles.RawRecord) bool { return len(records) > 0 && records[0].Suspect() }

// take takes an answer, or gives it back because it is too large.
func (c *catch) take(a answer) bool {
	size := 0
	for _, r := range a.records {
		size += r.Size()
	}
	if c.req.MaxBytes > 0 && len(c.taken) > 0 && c.bytes+size > c.req.MaxBytes {
		c.giveBackForNow(a)
		return false
	}
	for _, r := range a.records {
		a.look.member.own(r.Record)
	}
	c.taken = append(c.taken, a.records...)
	c.bytes += size
	return true
}

// giveBackForNow releases an answer, and has a later claim ask the member alone.
func (c *catch) giveBackForNow(a answer) {
	c.reader.askAlone(a.look.member.name())
	c.giveBack(a)
}

// giveBack releases an answer.
func (c *catch) giveBack(a answer) {
	m := a.look.member
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
