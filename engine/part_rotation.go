package engine

import (
	"math/rand/v2"
	"sync"
)

// partRotation remembers, for each group and topic, the place in the order of the turns at which
// the next claim begins. The zero value is ready to use. partRotation is safe for concurrent use.
type partRotation struct {
	mu   sync.Mutex
	next map[[2]string]string
}

// begin returns the place at which a claim begins: it serves first the turns that are equal or
// greater, and then those that are less. The first place is random, so that the processes of a
// service do not all begin with the same tenants.
func (r *partRotation) begin(group, topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if place, known := r.next[[2]string{group, topic}]; known {
		return place
	}
	const places = "0123456789abcdefghijklmnopqrstuvwxyz"
	return "." + places[rand.IntN(len(places)):][:1]
}

// end notes where the next claim begins. An empty place changes nothing.
func (r *partRotation) end(group, topic, place string) {
	if place == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil || len(r.next) >= mostSelections {
		r.next = map[[2]string]string{}
	}
	r.next[[2]string{group, topic}] = place
}

// afterTurn returns a place behind the turn, and before the next one.
func afterTurn(turn string) string { return turn + "\x01" }
