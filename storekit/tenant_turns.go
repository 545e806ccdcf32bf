package storekit

import (
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/outmill/outmill"
)

// TenantTurns is a store that can serve the tenants of a topic in turn: a claim takes a share of
// each tenant that has records, so that a tenant with many of them does not hold up the others.
// Records without a tenant are those of one more tenant. A setting of the store names the topics.
//
// Without an order, and with outmill.OrderKey, a claim serves one record of each tenant, then a
// second one of each, and so on. The next claim begins with the tenant whose turn it is. The
// order of a key holds whatever the tenants of its records are. outmill.OrderTopic is the order
// of the whole topic, so such a claim serves no turns.
//
// A claim that serves turns returns no more records of a tenant than
// outmill.ClaimRequest.TenantRoom allows.
//
// A store on package engine serves parts of tenants (PartOf) in turn, and not single tenants. There each part has its own
// order, claims with OrderTopic are refused, and not TenantRoom but Full and PartLimit of the request bound a claim.
type TenantTurns interface {
	// ServesTurns reports whether claims of the topic serve its tenants in turn. It is false if
	// the setting does not name the topic.
	ServesTurns(topic string) bool
}

// FairTopics are the topics whose tenants a store serves in turn: the setting of its Config. The
// zero value is none. It is safe for concurrent use.
type FairTopics struct{ match func(topic string) bool }

// NewFairTopics selects topics by patterns, as the Include list of outmill.Topics does. No
// patterns select no topics.
func NewFairTopics(patterns []string) FairTopics {
	if len(patterns) == 0 {
		return FairTopics{}
	}
	return FairTopics{outmill.Topics{Include: patterns}.Matcher()}
}

// ServesTurns reports whether the setting names the topic. See TenantTurns.
func (f FairTopics) ServesTurns(topic string) bool { return f.match != nil && f.match(topic) }

// Turn returns the text by which a store sorts the records of a tenant in a fair topic. It is
// never empty, so that it also names the records without a tenant.
func Turn(tenant string) string { return turnPrefix + tenant }

const turnPrefix = "."

// tenantOf returns the tenant of a turn.
func tenantOf(turn string) string { return strings.TrimPrefix(turn, turnPrefix) }

// TurnRotation remembers, for each group and topic, the place in the order of the turns at which
// the next claim begins. The zero value is ready to use. TurnRotation is safe for concurrent use.
type TurnRotation struct {
	mu   sync.Mutex
	next map[[2]string]string
}

// Begin returns the place at which a claim begins: it serves first the turns that are equal or
// greater, and then those that are less. The first place is random, so that the processes of a
// service do not all begin with the same tenants.
func (r *TurnRotation) Begin(group, topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if place, known := r.next[[2]string{group, topic}]; known {
		return place
	}
	const places = "0123456789abcdefghijklmnopqrstuvwxyz"
	return Turn(places[rand.IntN(len(places)):][:1])
}

// End notes where the next claim begins. An empty place changes nothing.
func (r *TurnRotation) End(group, topic, place string) {
	if place == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil || len(r.next) >= maxRotations {
		r.next = map[[2]string]string{}
	}
	r.next[[2]string{group, topic}] = place
}

// AfterTurn returns a place behind the turn, and before the next one.
func AfterTurn(turn string) string { return turn + "\x01" }

// maxTurns is the most tenants that one page of a claim serves.
const maxTurns = 1000

// TurnsAtOnce returns the number of tenants that one page of a claim for want records serves.
func TurnsAtOnce(want int) int { return max(1, min(want, maxTurns)) }

// ShareOf returns the share of each of n tenants in want records, which is at least one record.
func ShareOf(want, n int) int {
	if n <= 0 {
		return want
	}
	return max(1, (want+n-1)/n)
}

// InTurns sorts the records of several tenants for OrderedScan.Page: the first record of each
// tenant, then the second one of each, and so on. turns is the order of the tenants. Each
// tenant's own records keep their order.
func InTurns(page []Candidate, turns []string) []Candidate {
	of := make(map[string][]Candidate, len(turns))
	for _, r := range page {
		turn := Turn(r.TenantID)
		of[turn] = append(of[turn], r)
	}
	sorted := make([]Candidate, 0, len(page))
	for nth := 0; len(sorted) < len(page); nth++ {
		before := len(sorted)
		for _, turn := range turns {
			if nth < len(of[turn]) {
				sorted = append(sorted, of[turn][nth])
			}
		}
		if len(sorted) == before {
			return sorted
		}
	}
	return sorted
}
