package engine

import "sync/atomic"

// topicTurns decides in which order claims serve topics that are due. The zero value is ready to use.
// It is safe for concurrent use.
//
// Of four picks two are for the topics that have been due longest, one is for those that became due last, and one goes
// round. So those that came first have a bounded share: thousands of topics that became due together delay a later one
// by a claim or two. The topic that has been due longest is in each claim, or in every second one of a single record,
// and one with a large backlog, which always has been due longest, delays none of the others for long.
type topicTurns struct{ picks atomic.Uint64 }

// order returns the topics, which are sorted by how long they have been due, in the order in which to serve them. It
// promises nothing about topics behind the first served: a claim serves those that have room.
func (t *topicTurns) order(topics []string, served int) []string {
	if len(topics) < 2 {
		return topics
	}
	served = min(max(served, 1), len(topics))
	// A claim that serves less than four goes on where the last one has ended.
	first := t.picks.Add(uint64(served)) - uint64(served)
	ordered, taken := make([]string, 0, len(topics)), make([]bool, len(topics))
	oldest, newest, round := 0, len(topics)-1, int(first/4)%len(topics) //nolint:gosec // it is smaller than a length
	for pick := first; len(ordered) < len(topics); pick++ {
		next, step := &oldest, 1
		switch pick % 4 {
		case 1:
			next, step = &newest, -1
		case 3:
			next = &round
		}
		for taken[*next] {
			*next = (*next + step + len(topics)) % len(topics)
		}
		taken[*next] = true
		ordered = append(ordered, topics[*next])
	}
	return ordered
}
