package tenants

import (
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.TenantTurns = (*Set)(nil)

// ServesTurns reports whether the topic is fair in all members that the set has now. Without members it is true.
// ClaimRequest.Full has no effect in a member that comes later and has the topic otherwise. See storekit.TenantTurns.
func (s *Set) ServesTurns(topic string) bool {
	for _, m := range s.snapshot() {
		if m.turns == nil || !m.turns.ServesTurns(topic) {
			return false
		}
	}
	return true
}

// topicPart is a part of a topic in a member, as a mask.
type topicPart struct {
	topic string
	part  uint64
}

// rooms is the Full of a claim for one member. It notes which parts were full.
type rooms struct {
	of    func(store, topic string) uint64
	store string
	taken map[topicPart]struct{}

	mu   sync.Mutex
	full map[topicPart]struct{}
}

// roomsOf returns the rooms of a member, less what the claim has taken of it; nil is no limit.
func (c *catch) roomsOf(m *member) *rooms {
	if c.req.Full == nil {
		return nil
	}
	r := &rooms{of: c.req.Full, store: m.name(), taken: map[topicPart]struct{}{}, full: map[topicPart]struct{}{}}
	for _, rec := range c.taken {
		if rec.Store == r.store {
			r.taken[topicPart{rec.Topic, 1 << storekit.PartOf(rec.Topic, rec.TenantID)}] = struct{}{}
		}
	}
	return r
}

// parts is the Full of the claim, and the parts of which it has records already: they count against its PartLimit.
func (r *rooms) parts(_, topic string) uint64 {
	mask := r.of(r.store, topic)
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.taken {
		if of.topic == topic {
			mask |= of.part
		}
	}
	for part := uint64(1); part != 0; part <<= 1 {
		if mask&part != 0 {
			r.full[topicPart{topic, part}] = struct{}{}
		}
	}
	return mask
}

// noRoom notes the parts that were full for a claim in the member.
func (r *reader) noRoom(l *look, rooms *rooms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.full, l)
	if rooms != nil && len(rooms.full) > 0 && r.looks[l.member.name()] == l {
		r.full[l] = rooms.full
	}
}

// roomAgain has the claim look at the members in which a part was full that is not any more.
func (r *reader) roomAgain(req outmill.ClaimRequest) {
	if req.Full == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, full := range r.full {
		for of := range full {
			if req.Full(l.member.name(), of.topic)&of.part != 0 {
				continue
			}
			delete(r.full, l)
			if l.asking == 0 && l.inIdle {
				r.place(l, false)
			}
			break
		}
	}
}
