package storekit

import (
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// Candidate is what a claim must know of a record to decide about it.
type Candidate struct {
	// ID names the record to the store, which may go by Seq instead.
	ID       string
	Seq      int64
	Key      string
	Expired  bool
	Expiries int
	Size     int
	// Due is when the record became due, or was appended if that was later. It may
	// be zero where OrderedScan.Until is.
	Due time.Time
	// First of its key on its page: State is set.
	First bool
	State KeyState
}

// HeldKey is a note of a blocked key to make, or to change. Head is the place of its
// first record.
type HeldKey struct {
	Blocker
	Head int64
}

// OrderedScan decides, for an ordered claim, which records of a topic may be handed out,
// which are held because an earlier one of their key blocks them, and what to note about
// these keys. The store reads the ready records of the topic page by page, in their
// order, and carries out what is decided. It sets the fields of the first group before;
// the scan sets those of the second. One goroutine at a time uses a scan.
type OrderedScan struct {
	Policy outmill.KeyPolicy
	// Want is the most records to take of the topic.
	Want int
	// MaxBytes bounds the claim's bytes, of which it has Bytes; 0 is no bound. The
	// claim's first record is taken whatever its size: First is whether there is
	// none yet from other topics.
	MaxBytes, Bytes int
	First           bool
	// Until is the moment as of which the claim works: see BatchSize.Admit.
	Until Moment

	// Taken counts what is to be leased.
	Taken int
	// Full: the claim wants no more of the topic. Over: nor of any other.
	Full, Over bool
	// Leasing, Expired, Parked and Holding are what Settled forgets.
	Leasing, Expired, Parked, Holding []Candidate
	// HeldKeys are the keys of Holding; Reopen are the keys that have held records and are
	// no longer blocked by the record that was decided about.
	HeldKeys map[string]HeldKey
	Reopen   []string
}

// Settled forgets what was decided: it has been carried out.
func (w *OrderedScan) Settled() {
	w.Leasing, w.Expired, w.Parked, w.Holding, w.HeldKeys, w.Reopen = nil, nil, nil, nil, nil, nil
}

// Page decides about each record of a page, in its order, until the claim is
// full.
func (w *OrderedScan) Page(page []Candidate) {
	states := map[string]KeyState{}
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
			state = KeyState{Waiting: NoSeq, Held: NoSeq}
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
		if state.Held != NoSeq && !blocked {
			w.Reopen = append(w.Reopen, r.Key)
		}
	}
}

func (w *OrderedScan) hold(r Candidate, b Blocker) {
	w.Holding = append(w.Holding, r)
	if w.HeldKeys == nil {
		w.HeldKeys = map[string]HeldKey{}
	}
	if _, known := w.HeldKeys[r.Key]; !known {
		w.HeldKeys[r.Key] = HeldKey{b, r.Seq}
	}
}

// take takes the record unless it does not fit in, and then no later one of
// its topic may be taken either.
func (w *OrderedScan) take(r Candidate) bool {
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
