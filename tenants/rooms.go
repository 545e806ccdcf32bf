package tenants

import (
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.TenantTurns = (*Set)(nil)

// ServesTurns reports whether all members that the set has now serve the tenants of the topic in
// turn. Each does so for itself, so a claim may return less of a tenant of one member than of
// another. Without members it is true. ClaimRequest.TenantRoom has no effect in a member that
// comes later and does not serve turns. See storekit.TenantTurns.
func (s *Set) ServesTurns(topic string) bool {
	for _, m := range s.snapshot() {
		if m.turns == nil || !m.turns.ServesTurns(topic) {
			return false
		}
	}
	return true
}

// topicTenant is a tenant of a topic in a member, or the mask of a part.
type topicTenant struct {
	topic, tenant string
	part          uint64
}

// rooms is the TenantRoom of a claim for one member. It notes which tenants have no room.
type rooms struct {
	of    func(store, topic, tenant string) int
	mask  func(store, topic string) uint64
	store string
	taken map[topicTenant]int

	mu   sync.Mutex
	full map[topicTenant]struct{}
}

// roomsOf returns the rooms of a member, less what the claim has taken of it; nil is no limit.
func (c *catch) roomsOf(m *member) *rooms {
	if c.req.TenantRoom == nil && c.req.Full == nil {
		return nil
	}
	r := &rooms{of: c.req.TenantRoom, mask: c.req.Full, store: m.name(), taken: map[topicTenant]int{}, full: map[topicTenant]struct{}{}}
	for _, rec := range c.taken {
		if rec.Store == r.store {
			r.taken[topicTenant{rec.Topic, rec.TenantID, 0}]++
			r.taken[topicTenant{rec.Topic, "", 1 << storekit.PartOf(rec.Topic, rec.TenantID)}]++
		}
	}
	return r
}

func (r *rooms) left(_, topic, tenant string) int {
	of := topicTenant{topic, tenant, 0}
	room := r.of(r.store, topic, tenant) - r.taken[of]
	if room <= 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.full[of] = struct{}{}
	}
	return room
}

// parts is the Full of the claim, and the parts of which it has records already: they count against its PartLimit.
func (r *rooms) parts(_, topic string) uint64 {
	mask := r.mask(r.store, topic)
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.taken {
		if of.topic == topic {
			mask |= of.part
		}
	}
	for part := uint64(1); part != 0; part <<= 1 {
		if mask&part != 0 {
			r.full[topicTenant{topic, "", part}] = struct{}{}
		}
	}
	return mask
}

// noRoom notes the tenants for which a claim had no room in the member.
func (r *reader) noRoom(l *look, rooms *rooms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.full, l)
	if rooms != nil && len(rooms.full) > 0 && r.looks[l.member.name()] == l {
		r.full[l] = rooms.full
	}
}

// roomAgain has the claim look at the members in which a claim had no room for a tenant that has
// room now.
func (r *reader) roomAgain(req outmill.ClaimRequest) {
	if req.TenantRoom == nil && req.Full == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, full := range r.full {
		for of := range full {
			if of.part != 0 && req.Full != nil && req.Full(l.member.name(), of.topic)&of.part != 0 ||
				of.part == 0 && req.TenantRoom != nil && req.TenantRoom(l.member.name(), of.topic, of.tenant) <= 0 {
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
