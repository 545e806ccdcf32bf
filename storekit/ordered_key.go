package storekit

import (
	"math"
	"time"

	"github.com/outmill/outmill"
)

// A store records each key that a claim found blocked, and marks the records of the key as
// held. So later claims skip the key at a cost that does not grow with the number of its
// records. By of a [Blocker] is one of these constants, or the owner of a lease.
const (
	// BlockedByNothing says that the key may be free: the next claim reads its held records.
	BlockedByNothing = ""
	// BlockedByWaiting says that a record of the key waits for its retry.
	BlockedByWaiting = "waiting"
	// BlockedByPause says that the key, or the tenant of its first held record, is paused.
	// Blocker.Pause is the number of the pause, and Blocker.Until the time at which that record
	// expires, because an expired record blocks nothing.
	BlockedByPause = "paused"
	// BlockedByTurn says that a ready record before the first held one has not been claimed,
	// because it is another tenant's turn.
	BlockedByTurn = "turn"
	// BlockedByNobody is a value that no key has as its blocker.
	BlockedByNobody = "-"
)

// NoSeq is after the Seq of every record. It stands for no record.
const NoSeq = math.MaxInt64

// IgnoredBlocker is the blocker that a claim with the policy ignores.
func IgnoredBlocker(policy outmill.KeyPolicy) string {
	if policy == outmill.KeySkip {
		return BlockedByWaiting
	}
	return BlockedByNobody
}

// Blocker is the reason for which a key is blocked.
type Blocker struct {
	By string
	// Until is the end of the reason; nil if it is unknown.
	Until *time.Time
	// Pause is the number of the pause, if By is BlockedByPause. The reason ends when the store
	// has no pause with this number any more.
	Pause int64
}

// KeyState is the state of a key for a claim.
type KeyState struct {
	// Other is the owner of a lease of another owner than the claim's, and OtherEnd its end.
	Other    string
	OtherEnd *time.Time
	// Waiting is the Seq of the first record that waits (StageWaiting), and WaitingEnd is the
	// end of its wait. Held is the Seq of the first held record. Each Seq is NoSeq if there is
	// no such record.
	Waiting, Held int64
	WaitingEnd    *time.Time
	Parked        bool
	// HeldTenant is the TenantID of the first held record, and HeldExpiry the time at which that
	// record expires. HeldTenant is "" if there is no such record, if it has expired, or if no
	// tenant is paused.
	HeldTenant string
	HeldExpiry *time.Time
}

// Barrier returns the Seq from which on records must not be claimed because a record waits.
func (s KeyState) Barrier(policy outmill.KeyPolicy) int64 {
	if policy == outmill.KeySkip {
		return NoSeq
	}
	return s.Waiting
}

// Parks reports whether a claim must park the records of the key that it meets.
func (s KeyState) Parks(policy outmill.KeyPolicy) bool { return s.Parked && policy == outmill.KeyPark }

// Blocker returns the note of a key after a claim has read its held records: the reason why
// it is blocked, and the Seq of its first record.
func (s KeyState) Blocker(policy outmill.KeyPolicy) (Blocker, int64) {
	if s.Other != "" {
		return Blocker{By: s.Other, Until: s.OtherEnd}, 0
	}
	return Blocker{By: BlockedByWaiting, Until: s.WaitingEnd}, s.Barrier(policy)
}

// blocks reports whether the record must not be claimed, and returns the blocker to note of
// its key.
func (s KeyState) blocks(r Candidate, policy outmill.KeyPolicy) (Blocker, bool) {
	barrier := s.Barrier(policy)
	switch {
	case r.Key == "":
		return Blocker{}, false
	case s.Other != "":
		return Blocker{By: s.Other, Until: s.OtherEnd}, true
	case r.Seq > s.Held && s.Held < barrier:
		return Blocker{By: BlockedByNothing}, true
	case r.Seq > barrier:
		return Blocker{By: BlockedByWaiting, Until: s.WaitingEnd}, true
	}
	return Blocker{}, false
}
