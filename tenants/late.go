package tenants

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A claim waits for a member only for a short time. Then it leaves the question to a later claim of the same
// reader, which hands out the answer. A member whose last claim took longer than a tenth of Config.CallTimeout
// is late: claims do not wait for it at all. An answer that no claim can take any more is given back. Until
// an answer is taken or given back, the reader does not ask the member again, so that one answer of each late
// member is in memory at most, and all of them are no more than four claims may bring.

const (
	// lateOf is the part of Config.CallTimeout after which a member is late, and hurryOf the part for which a
	// claim waits that has records to hand out. leastLate and leastHurry are the least.
	lateOf, leastLate   = 10, 200 * time.Millisecond
	hurryOf, leastHurry = 100, 20 * time.Millisecond
	// mostLate is how many late members a reader asks at the same time.
	mostLate = 32
	// lateShare is the part of a claim's limits that a late member gets.
	lateShare = 8
)

// question is the claim in one member. A claim waits for it, or it is left to a later claim.
type question struct {
	// catch has the context of the question, and its share of the limits.
	catch *catch
	look  *look
	began time.Time
	// place is the one in the wave of the claim that waits, which is told of the answer.
	place int
	told  chan<- *question
	// bound ends that the question ends with the claim.
	bound func() bool
	// ended is closed when there is an answer.
	ended chan struct{}

	// The reader's mutex guards the following fields. left says that no claim waits, kept that the answer
	// waits for a claim.
	left, kept bool
	answer     answer
	expiry     *time.Timer

	// The member's mutex guards the following fields. owner is the one whose leases are asked for; stale says
	// that records of this owner came back since then, and over that this does not matter any more.
	owner       outmill.OwnerToken
	stale, over bool
}

// patience returns how long a claim waits for a member: least if it has records to hand out, and most if not.
func (s *Set) patience() (least, most time.Duration) {
	return max(s.cfg.CallTimeout/hurryOf, leastHurry), max(s.cfg.CallTimeout/lateOf, leastLate)
}

// smallShare is the share of a member that is late.
func smallShare(share outmill.ClaimRequest) outmill.ClaimRequest {
	share.Limit = max(share.Limit/lateShare, 1)
	if share.MaxBytes > 0 {
		share.MaxBytes = max(share.MaxBytes/lateShare, 1)
	}
	return share
}

// took notes how long a claim took.
func (m *member) took(claim, late time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// An error that came at once says nothing.
	m.late = claim > late || m.late && err != nil
}

func (m *member) isLate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late
}

// asks notes that the question is asked, and returns the owner of its leases.
func (m *member) asks(q *question, owner outmill.OwnerToken) outmill.OwnerToken {
	owner = m.ownerFor(owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.owner = owner; !q.over {
		m.questions[q] = struct{}{}
	}
	return owner
}

// forgetQuestion notes that the answer is handed out, or given back.
func (m *member) forgetQuestion(q *question) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q.over = true
	delete(m.questions, q)
}

// givesBack notes that records come back before they are handled. What their owner got in a claim before must
// not be handed out afterwards, because it may be later records of their keys.
func (m *member) givesBack(leases []outmill.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for q := range m.questions {
		q.stale = q.stale || slices.ContainsFunc(leases, func(l outmill.Lease) bool { return l.Owner == q.owner })
	}
}

func (m *member) isStale(q *question) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return q.stale
}

// mayLeave reports whether a claim may leave one more question to later ones. The caller has the lock.
func (r *reader) mayLeave(q *question, claim outmill.ClaimRequest) bool {
	records, bytes := q.catch.req.Limit, q.catch.req.MaxBytes
	for _, other := range r.late {
		records, bytes = records+other.catch.req.Limit, bytes+other.catch.req.MaxBytes
	}
	const most = mostLate / lateShare
	return r.late[q.look] == nil && len(r.late) < mostLate &&
		records <= max(most*claim.Limit, mostLate) && bytes <= max(most*claim.MaxBytes, mostLate)
}

// leave leaves a question to later claims. The caller has the lock.
func (r *reader) leave(q *question) {
	q.left = true
	q.bound()
	r.late[q.look] = q
}

// leaveAll leaves the questions to later claims, and returns those for which the claim has to wait.
func (r *reader) leaveAll(open []*question, claim outmill.ClaimRequest) (stay []*question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range open {
		if q.answer.look == nil && r.mayLeave(q, claim) {
			r.leave(q)
			continue
		}
		stay = append(stay, q)
	}
	return stay
}

// answered tells the claim that waits of the answer, or keeps one with records for the next claim.
func (r *reader) answered(q *question, a answer) {
	if r.keeps(q, a) {
		q.catch.set.notifier.Notify()
	} else {
		a.look.member.forgetQuestion(q)
	}
	close(q.ended)
}

func (r *reader) keeps(q *question, a answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.answer = a
	switch {
	case !q.left:
		q.bound()
		q.told <- q
		return false
	case len(a.records) == 0:
		delete(r.late, a.look)
		return false
	}
	q.kept = true
	q.expiry = time.AfterFunc(a.share.Lease/4, func() { r.giveBackLate(q) })
	return true
}

// giveBackLate gives back an answer that nobody has taken.
func (r *reader) giveBackLate(q *question) {
	s := q.catch.set
	s.mu.RLock()
	defer s.mu.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late[q.look] != q || !q.kept || s.life.Closed() {
		return
	}
	// No claim takes it from now on, and none asks the member before the records are given back.
	q.kept = false
	s.background.Go(func() {
		q.catch.giveBack(q.answer)
		q.look.member.forgetQuestion(q)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.late, q.look)
	})
}

// giveBackAnswers gives back what no claim takes any more because the set closes. It waits a short time for
// the answers of members that are late.
func (s *Set) giveBackAnswers() {
	_, most := s.patience()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var left []*question
	for _, r := range s.everyReader() {
		left = append(left, r.untaken()...)
	}
	s.inParallel(len(left), func(i int) {
		q := left[i]
		select {
		case <-q.ended:
		case <-ctx.Done():
		}
		if q.catch.reader.stops(q) {
			q.catch.giveBack(q.answer)
		}
	})
}

// untaken are the questions that no claim waits for.
func (r *reader) untaken() []*question {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.late))
}

// stops reports whether there is an answer, which no claim takes from now on.
func (r *reader) stops(q *question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := q.kept && r.late[q.look] == q
	if q.kept = false; kept {
		q.expiry.Stop()
	}
	return kept
}

// takeLate hands out what late members have answered, and reports whether the claim is over.
func (c *catch) takeLate() (over bool) {
	for _, q := range c.reader.lateAnswers() {
		l := q.look
		switch {
		case c.req.PassOver != nil && c.req.PassOver(l.member.name()):
			// It waits.
		case !q.valid(c.req):
			c.reader.giveBackLate(q)
		default:
			records := c.reader.takes(q, c)
			for _, rec := range records {
				lease := rec.Lease()
				lease.Store = l.member.name()
				storekit.NoteClaimBegan(c.ctx, lease, q.began)
			}
			if c.merge([]answer{{look: l, share: q.catch.req, records: records}}) {
				return true
			}
		}
	}
	return false
}

// noteUnanswered tells who has claimed that records may still come, although there are none.
func (c *catch) noteUnanswered() {
	c.reader.mu.Lock()
	defer c.reader.mu.Unlock()
	if len(c.reader.late) > 0 {
		storekit.NoteUnanswered(c.ctx)
	}
}

// fitting returns how many of the first records the limits of the claim allow for. A suspect is alone.
func (c *catch) fitting(records []roles.RawRecord) (n int) {
	size := c.bytes
	for _, r := range records {
		first := len(c.taken)+n == 0
		size += r.Size()
		if !first && (c.left() <= n || r.Suspect() || c.req.MaxBytes > 0 && size > c.req.MaxBytes) {
			break
		}
		n++
	}
	return n
}

// lateAnswers are the questions whose answers no claim has taken.
func (r *reader) lateAnswers() []*question {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return nil
	}
	list := slices.DeleteFunc(slices.Collect(maps.Values(r.late)), func(q *question) bool { return !q.kept })
	slices.SortFunc(list, func(a, b *question) int { return a.began.Compare(b.began) })
	return list
}

// takes takes what the claim has room for of an answer, unless another claim has it, or it is given back.
func (r *reader) takes(q *question, c *catch) []roles.RawRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late[q.look] != q || !q.kept {
		return nil
	}
	n := c.fitting(q.answer.records)
	taken, rest := q.answer.records[:n], q.answer.records[n:]
	if q.answer.records = rest; len(rest) == 0 {
		q.expiry.Stop()
		delete(r.late, q.look)
		q.look.member.forgetQuestion(q)
	}
	return taken
}

// valid reports whether a claim may hand out the answer: it has the owner whose keys the records are, no
// record has come back since, and the lease is long enough to begin with.
func (q *question) valid(req outmill.ClaimRequest) bool {
	if req.Owner != q.catch.req.Owner || time.Since(q.began) > req.Lease/2 {
		return false
	}
	return req.Order == outmill.OrderNone || !q.look.member.isStale(q)
}
