package memstore

import (
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// takeInTurns takes up to want of the rows, which are ready and in their order, so that the
// tenants take turns. A row waits until the rows before it in its lane have been taken, whatever
// their tenants are, and until its tenant has room.
func (c *claim) takeInTurns(topic string, ready []*row, lanes map[string]*lane, want int) {
	waiting := map[string][]*row{}
	queues := map[*lane][]*row{}
	for _, r := range ready {
		turn := storekit.Turn(r.TenantID)
		waiting[turn] = append(waiting[turn], r)
		if l := laneOf(lanes, r, c.Order); l != nil {
			queues[l] = append(queues[l], r)
		}
	}
	place := c.turns.Begin(c.Group, topic)
	rooms := c.roomsOf(topic)
	next := func(turn string) *row {
		for i, r := range waiting[turn] {
			if rooms.Of(r.TenantID) <= 0 {
				return nil
			}
			l := laneOf(lanes, r, c.Order)
			if l != nil && queues[l][0] != r {
				continue
			}
			waiting[turn] = slices.Delete(waiting[turn], i, i+1)
			return r
		}
		return nil
	}
	end := ""
	for served := true; served; {
		served = false
		for _, turn := range turnsFrom(place, waiting) {
			r := next(turn)
			if r == nil {
				continue
			}
			if want == 0 || !c.fits(r) {
				c.turns.End(c.Group, topic, turn)
				return
			}
			want--
			served = true
			end = storekit.AfterTurn(turn)
			if l := laneOf(lanes, r, c.Order); l != nil {
				queues[l] = queues[l][1:]
				c.begin(l)
			}
			c.lease(r)
			rooms.Take(r.TenantID)
		}
	}
	c.turns.End(c.Group, topic, end)
}

// roomsOf returns how many more rows of each tenant of the topic the claim may take.
func (c *claim) roomsOf(topic string) *storekit.TenantRooms {
	taken := make([]*outmill.Record, len(c.taken))
	for i, r := range c.taken {
		taken[i] = &r.Record
	}
	return storekit.RoomsOf(c.ClaimRequest, topic, taken)
}

// turnsFrom returns the turns of the rows, beginning with the first one that is not before place.
func turnsFrom(place string, waiting map[string][]*row) []string {
	turns := make([]string, 0, len(waiting))
	for turn := range waiting {
		turns = append(turns, turn)
	}
	slices.Sort(turns)
	at, _ := slices.BinarySearch(turns, place)
	return slices.Concat(turns[at:], turns[:at])
}

// servesTurns reports whether the claim serves the tenants of the topic in turn.
func (c *claim) servesTurns(topic string) bool {
	return c.Order != outmill.OrderTopic && c.fair.ServesTurns(topic)
}

// ServesTurns reports whether Options.FairTopics names the topic. See storekit.TenantTurns.
func (s *Store) ServesTurns(topic string) bool { return s.fair.ServesTurns(topic) }
