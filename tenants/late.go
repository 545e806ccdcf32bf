package tenants

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// A member whose last claim took longer than a tenth of Config.CallTimeout is late. Claims do not wait for
// it: they ask it in the background, and a later claim of the same reader hands out what it has answered.
// An answer that no claim can take any more is given back. Until an answer is taken or given back, the
// reader does not ask the member again, so that one answer of each late member is in memory at most.

const (
	// lateOf is the part of Config.CallTimeout after which a member is late.
	lateOf = 10
	// mostLate is how many late members a reader asks at the same time.
	mostLate = 32
	// lateShare is the part of a claim's limits that a late member gets.
	lateShare = 8
)

// lateClaim is a claim of a late member that is under way, or its answer that no claim has taken.
type lateClaim struct {
	catch  *catch
	began  time.Time
	backs  uint64
	answer answer
	done   bool
	expiry *time.Timer
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

// givesBack notes that records come back before they are handled. What a claim got before must not be
// handed out afterwards, because it may be later records of their keys.
func (m *member) givesBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backs++
}

func (m *member) backsNow() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.backs
}

// askLate asks a late member in the background, and reports whether the member is late.
func (c *catch) askLate(l *look, share outmill.ClaimRequest) bool {
	s, r := c.set, c.reader
	if !l.member.isLate() {
		return false
	}
	share.Limit = max(share.Limit/lateShare, 1)
	if share.MaxBytes > 0 {
		share.MaxBytes = max(share.MaxBytes/lateShare, 1)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	late := &lateClaim{began: time.Now(), backs: l.member.backsNow()}
	late.catch = &catch{set: s, ctx: ctx, req: share, reader: r}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	_, asked := r.late[l]
	if asked || len(r.late) >= mostLate || s.life.Closed() || (share.PassOver != nil && share.PassOver(l.member.name())) {
		cancel()
		l.asking--
		if !asked && r.looks[l.member.name()] == l {
			r.place(l, false)
		}
		return true
	}
	r.late[l] = late
	s.background.Go(func() {
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		r.answered(l, late, late.catch.ask(l, share))
	})
	return true
}

// answered keeps an answer with records for the next claim.
func (r *reader) answered(l *look, late *lateClaim, a answer) {
	r.mu.Lock()
	if len(a.records) == 0 {
		delete(r.late, l)
		r.mu.Unlock()
		return
	}
	late.answer, late.done = a, true
	late.expiry = time.AfterFunc(a.share.Lease/4, func() { r.giveBackLate(l, late) })
	r.mu.Unlock()
	late.catch.set.notifier.Notify()
}

// giveBackLate gives back an answer that nobody has taken.
func (r *reader) giveBackLate(l *look, late *lateClaim) {
	s := late.catch.set
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late[l] != late || !late.done || s.life.Closed() {
		return
	}
	// No claim takes it from now on, and none asks the member before the records are given back.
	late.done = false
	s.background.Go(func() {
		late.catch.giveBack(late.answer)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.late, l)
	})
}

// takeLate hands out what late members have answered, and reports whether the claim is over.
func (c *catch) takeLate() (over bool) {
	for _, late := range c.reader.lateAnswers() {
		a := late.answer
		switch {
		case c.req.PassOver != nil && c.req.PassOver(a.look.member.name()):
			// It waits.
		case !late.valid(c.req):
			c.reader.giveBackLate(a.look, late)
		case len(c.taken) > 0 && (suspect(a.records) || !c.hasRoom(a.records)):
			// The next claim takes it.
		case c.reader.takes(a.look, late):
			for _, rec := range a.records {
				lease := rec.Lease()
				lease.Store = a.look.member.name()
				storekit.NoteClaimBegan(c.ctx, lease, late.began)
			}
			if c.merge([]answer{a}) {
				return true
			}
		}
	}
	return false
}

// hasRoom reports whether the limits of the claim allow for the records.
func (c *catch) hasRoom(records []*outmill.Record) bool {
	size := c.bytes
	for _, r := range records {
		size += r.Size()
	}
	return len(c.taken)+len(records) <= c.req.Limit && (c.req.MaxBytes == 0 || size <= c.req.MaxBytes)
}

// lateAnswers are the answers that no claim has taken.
func (r *reader) lateAnswers() []*lateClaim {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) == 0 {
		return nil
	}
	list := slices.DeleteFunc(slices.Collect(maps.Values(r.late)), func(l *lateClaim) bool { return !l.done })
	slices.SortFunc(list, func(a, b *lateClaim) int { return a.began.Compare(b.began) })
	return list
}

// takes takes an answer, unless another claim has it, or it is given back.
func (r *reader) takes(l *look, late *lateClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late[l] != late || !late.done {
		return false
	}
	late.expiry.Stop()
	delete(r.late, l)
	return true
}

// valid reports whether a claim may hand out the answer: it has the owner whose keys the records are, no
// record has come back since, and the lease is long enough to begin with.
func (l *lateClaim) valid(req outmill.ClaimRequest) bool {
	if req.Owner != l.answer.share.Owner || time.Since(l.began) > req.Lease/2 {
		return false
	}
	return req.Order == outmill.OrderNone || l.answer.look.member.backsNow() == l.backs
}
