package storekit

import (
	"math"
	"time"

	"github.com/outmill/outmill"
)

// A store keeps a note of each key that a claim found blocked, and sets the records of
// the key apart (they are held), so that later claims pass over the key at a cost that
// does not grow with the number of its records. By of a [Blocker] is one of these, or
// the owner of a lease.
const (
	// BlockedByNothing says that the key may be free: the next claim looks at its held
	// records.
	BlockedByNothing = ""
	// BlockedByWaiting says that a record of the key waits for its retry.
	BlockedByWaiting = "waiting"
	// BlockedByNobody is the blocker of no key.
	BlockedByNobody = "-"
)

// NoSeq is the place (Seq) of no record: it is after all others.
const NoSeq = math.MaxInt64

// IgnoredBlocker is the blocker that a claim with the policy ignores.
func IgnoredBlocker(policy outmill.KeyPolicy) string {
	if policy == outmill.KeySkip {
		return BlockedByWaiting
	}
	return BlockedByNobody
}

// Blocker is the reason why a key is blocked.
type Blocker struct {
	By string
	// Until is when the reason ends, nil where that is not known.
	Until *time.Time
}

// KeyState is what a claim knows of a key.
type KeyState struct {
	// Other is the owner of a lease that is not the claimer's, and its end.
	Other    string
	OtherEnd *time.Time
	// Waiting is the first record that waits, and how long it stands in the way;
	// Held the first that is held. Each is NoSeq where there is none.
	Waiting, Held int64
	WaitingEnd    *time.Time
	Parked        bool
}

// Barrier is the place from which on records may not be taken because of a
// record that waits.
func (s KeyState) Barrier(policy outmill.KeyPolicy) int64 {
	if policy == outmill.KeySkip {
		return NoSeq
	}
	return s.Waiting
}

// Parks tells whether the records of the key are to be parked when a claim meets them.
func (s KeyState) Parks(policy outmill.KeyPolicy) bool { return s.Parked && policy == outmill.KeyPark }

// Blocker returns what to note of a key whose held records were looked at: the reason why
// it is blocked, and the first place at which its records are.
func (s KeyState) Blocker(policy outmill.KeyPolicy) (Blocker, int64) {
	if s.Other != "" {
		return Blocker{s.Other, s.OtherEnd}, 0
	}
	return Blocker{BlockedByWaiting, s.WaitingEnd}, s.Barrier(policy)
}

// blocks tells whether the record may not be taken, and what to note of its key.
func (s KeyState) blocks(r Candidate, policy outmill.KeyPolicy) (Blocker, bool) {
	barrier := s.Barrier(policy)
	switch {
	case r.Key == "":
		return Blocker{}, false
	case s.Other != "":
		return Blocker{s.Other, s.OtherEnd}, true
	case r.Seq > s.Held && s.Held < barrier:
		return Blocker{By: BlockedByNothing}, true
	case r.Seq > barrier:
		return Blocker{BlockedByWaiting, s.WaitingEnd}, true
	}
	return Blocker{}, false
}
