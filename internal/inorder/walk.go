// Package inorder decides, for claims in order, about the head of a line: which
// records may be handed out, which are held because an earlier one of their key
// is in the way, and what to note about those keys. Stores that read a line page
// by page share it; what they read, and how they carry out what is decided, is
// theirs.
package inorder

import (
	"math"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

const (
	// BlockedByNothing says: look at the lane.
	BlockedByNothing = ""
	// BlockedByWaiting says that a record of the key waits for its retry. Other values are
	// the owners of leases.
	BlockedByWaiting = "waiting"
	// BlockedByNobody is in no lane.
	BlockedByNobody = "-"
)

// Nowhere is a place in the order that nothing has.
const Nowhere = math.MaxInt64

// PassedOver is the mark of lanes that the policy does not stop at.
func PassedOver(policy outmill.KeyPolicy) string {
	if policy == outmill.KeySkip {
		return BlockedByWaiting
	}
	return BlockedByNobody
}

// Block is what blocks a lane, and when it will have ended; nil: nothing is
// known of that.
type Block struct {
	By    string
	Until *time.Time
}

// State is what a claim knows of a key.
type State struct {
	// Other is the owner of a lease that is not the claimer's, and its end.
	Other    string
	OtherEnd *time.Time
	// Waiting is the first record that waits, and how long it stands in the way;
	// Held the first that is held. Each is Nowhere where there is none.
	Waiting, Held int64
	WaitingEnd    *time.Time
	Parked        bool
}

// Barrier is the place from which on records may not be taken because of a
// record that waits.
func (s State) Barrier(policy outmill.KeyPolicy) int64 {
	if policy == outmill.KeySkip {
		return Nowhere
	}
	return s.Waiting
}

// Parks tells whether the records of the key are to be parked when a claim meets them.
func (s State) Parks(policy outmill.KeyPolicy) bool { return s.Parked && policy == outmill.KeyPark }

// Lane is what to note of a key whose held records were looked at: what blocks
// it, and from which place on.
func (s State) Lane(policy outmill.KeyPolicy) (Block, int64) {
	if s.Other != "" {
		return Block{s.Other, s.OtherEnd}, 0
	}
	return Block{BlockedByWaiting, s.WaitingEnd}, s.Barrier(policy)
}

// blocks tells whether the record may not be taken, and what to note in its
// key's lane.
func (s State) blocks(r Record, policy outmill.KeyPolicy) (Block, bool) {
	barrier := s.Barrier(policy)
	switch {
	case r.Key == "":
		return Block{}, false
	case s.Other != "":
		return Block{s.Other, s.OtherEnd}, true
	case r.Seq > s.Held && s.Held < barrier:
		return Block{By: BlockedByNothing}, true
	case r.Seq > barrier:
		return Block{BlockedByWaiting, s.WaitingEnd}, true
	}
	return Block{}, false
}

// Record is what a claim must know of a record to decide about it.
type Record struct {
	// ID names the record to the store, which may go by Seq instead.
	ID       string
	Seq      int64
	Key      string
	Expired  bool
	Expiries int
	Size     int
	// Due is when the record became due, or was appended if that was later. It may
	// be zero where Walk.Until is.
	Due time.Time
	// First of its key on its page: State is set.
	First bool
	State State
}

// HeldLane is a lane to make, or to note: what blocks it, and its first record.
type HeldLane struct {
	Block
	Head int64
}

// Walk goes over the pages of one line. The fields of the first group are for
// the store to set before; those of the second are what was decided about the
// pages, and are for it to carry out.
type Walk struct {
	Policy outmill.KeyPolicy
	// Want is the most records to take of the line.
	Want int
	// MaxBytes bounds the claim's bytes, of which it has Bytes; 0 is no bound. The
	// claim's first record is taken whatever its size: First is whether there is
	// none yet from other lines.
	MaxBytes, Bytes int
	First           bool
	// Until is the moment as of which the claim works: see Steps.Admit.
	Until Moment

	// Taken counts what is to be leased.
	Taken int
	// Full: the claim wants no more of the line. Over: nor of any other.
	Full, Over bool
	// Leasing, Expired, Parked and Holding are what Settled forgets.
	Leasing, Expired, Parked, Holding []Record
	// Lanes are those of what is held; Reopen are the keys of records that leave
	// their lane's way.
	Lanes  map[string]HeldLane
	Reopen []string
}

// Settled forgets what was decided: it has been carried out.
func (w *Walk) Settled() {
	w.Leasing, w.Expired, w.Parked, w.Holding, w.Lanes, w.Reopen = nil, nil, nil, nil, nil, nil
}

// Page decides about each record of a page, in its order, until the claim is
// full.
func (w *Walk) Page(page []Record) {
	states := map[string]State{}
	w.Leasing = slices.Grow(w.Leasing, max(0, min(len(page), w.Want-w.Taken)))
	for _, r := range page {
		if w.Until.Before(r.Due, r.Seq) {
			w.Full = true
			return
		}
		if r.First {
			states[r.Key] = r.State
		}
		state, known := states[r.Key]
		if !known {
			state = State{Waiting: Nowhere, Held: Nowhere}
		}
		block, blocked := state.blocks(r, w.Policy)
		switch {
		case r.Expired:
			w.Expired = append(w.Expired, r)
		case state.Parks(w.Policy):
			w.Parked = append(w.Parked, r)
		case blocked:
			w.hold(r, block)
		case !w.take(r):
			w.Full = true
			return
		}
		if state.Held != Nowhere && !blocked {
			w.Reopen = append(w.Reopen, r.Key)
		}
	}
}

func (w *Walk) hold(r Record, b Block) {
	w.Holding = append(w.Holding, r)
	if w.Lanes == nil {
		w.Lanes = map[string]HeldLane{}
	}
	if _, known := w.Lanes[r.Key]; !known {
		w.Lanes[r.Key] = HeldLane{b, r.Seq}
	}
}

// take takes the record unless it does not fit in, and then no later one of
// its topic may be taken either.
func (w *Walk) take(r Record) bool {
	first := w.First && w.Taken == 0
	tooBig := w.MaxBytes > 0 && w.Bytes+r.Size > w.MaxBytes
	if w.Over || w.Taken == w.Want || tooBig && !first {
		return false
	}
	if r.Expiries >= outmill.SuspectExpiries {
		w.Over = true
		if !first {
			return false
		}
	}
	w.Taken++
	w.Leasing = append(w.Leasing, r)
	w.Bytes += r.Size
	return true
}
