package storekit

import (
	"math"

	"github.com/outmill/outmill"
)

// TenantRooms says how many more records of each tenant of a topic a claim may take: see
// outmill.ClaimRequest.TenantRoom. nil is no limit. Use it from one goroutine at a time.
type TenantRooms struct {
	of    func(tenant string) int
	taken map[string]int
	// full counts the tenants without room that With has left out.
	full int
}

// RoomsOf returns the rooms of a topic for a claim that has taken these records, of any topics;
// nil if the request has no limit.
func RoomsOf(req outmill.ClaimRequest, topic string, taken []*outmill.Record) *TenantRooms {
	if req.TenantRoom == nil {
		return nil
	}
	r := &TenantRooms{of: func(tenant string) int { return req.TenantRoom("", topic, tenant) }, taken: map[string]int{}}
	for _, rec := range taken {
		if rec.Topic == topic {
			r.Take(rec.TenantID)
		}
	}
	return r
}

// Of returns how many more records of the tenant the claim may take.
func (r *TenantRooms) Of(tenant string) int {
	if r == nil {
		return math.MaxInt
	}
	return max(r.of(tenant)-r.taken[tenant], 0)
}

// Take notes that the claim takes one more record of the tenant.
func (r *TenantRooms) Take(tenant string) {
	if r != nil {
		r.taken[tenant]++
	}
}

// With returns the turns whose tenants have room, and the largest of their rooms. It may change
// the list.
func (r *TenantRooms) With(turns []string) (open []string, largest int) {
	if r == nil {
		return turns, math.MaxInt
	}
	open = turns[:0]
	for _, turn := range turns {
		if room := r.Of(tenantOf(turn)); room > 0 {
			open, largest = append(open, turn), max(largest, room)
		}
	}
	r.full += len(turns) - len(open)
	return open, largest
}

// minAsk is the least number of tenants that a claim with a limit asks for, because some of them
// may have no room.
const minAsk = 32

// TurnsAtOnce returns the number of tenants that the next search of the claim finds, if it wants
// so many records. It grows with the tenants without room that the claim has met, so the searches
// of a claim are few.
func (r *TenantRooms) TurnsAtOnce(want int) int {
	if r == nil {
		return TurnsAtOnce(want)
	}
	return TurnsAtOnce(max(want, minAsk, r.full))
}
