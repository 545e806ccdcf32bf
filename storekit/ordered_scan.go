package storekit

import (
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// Candidate has the fields of a record that a claim needs for its decision.
type Candidate struct {
	// ID identifies the record for the store, which may use Seq instead.
	ID       string
	Seq      int64
	Key      string
	TenantID string
	Expired  bool
	// Expires is the time at which the record expires; nil is never, or that no tenant is paused.
	Expires  *time.Time
	Expiries int
	Size     int
	// Due is the time at which the record became due, or was appended if that was later. It
	// may be zero if OrderedScan.Until is zero.
	Due time.Time
	// First says that the record is the first of its key on its page, so that State is set.
	First bool
	State KeyState
	// Behind is the Seq of the ready record before this one in its key, 0 if there is none. It is
	// only for OrderedScan.Turns.
	Behind int64
	// Pause is set by the scan for the records of Aside: the number of the pause.
	Pause int64
}

// HeldKey is a note of a blocked key, to insert or to update. Head is the Seq of its first
// record.
type HeldKey struct {
	Blocker
	Head int64
}

// OrderedScan decides, for an ordered claim, which records of a topic may be returned,
// which are held because an earlier record of their key blocks them, and which notes to
// write about these keys. The store sets the first group of fields, reads the ready records
// of the topic page by page, in their order, and executes the decisions. The scan sets the
// second group. Use a scan from one goroutine at a time.
type OrderedScan struct {
	Policy outmill.KeyPolicy
	// Want is the largest number of records to claim from the topic.
	Want int
	// MaxBytes limits the bytes of the claim, of which Bytes are used; 0 is no limit. The
	// first record of the claim is taken even if it is larger. First says that the claim has
	// no record from other topics yet.
	MaxBytes, Bytes int
	First           bool
	// Until is the moment as of which the claim works: see BatchSize.Admit.
	Until Moment
	// Pauses are the pauses of the store, and Group and Topic those of the claim. WholeTopic
	// says that the topic is claimed as one key (outmill.OrderTopic). The store itself checks
	// before whether the whole topic is paused.
	Pauses       *roles.PauseList
	Group, Topic string
	WholeTopic   bool
	// Unordered says that the claim has no order, so a paused record goes aside also if it has a
	// key, and holds no other.
	Unordered bool
	// Turns says that the pages have the records of several tenants in turn (see InTurns), so
	// those of a key are not always in their order: a record is held if the one before it (its
	// Behind) has not passed. Unturned is the Seq of the first ready record of the topic that has
	// no turn yet, 0 if there is none: records with a key behind it must wait.
	Turns    bool
	Unturned int64
	// Rooms limits the records of each tenant, if Turns is set; nil is no limit. The scan leaves
	// a record without room as it is.
	Rooms *TenantRooms

	// Taken counts the records to lease.
	Taken int
	// Full says that the claim needs no more records of the topic; Over, that it needs none of
	// other topics either.
	Full, Over bool
	// Leasing, Expired, Parked, Holding and Aside are the decisions to execute. Settled clears
	// them. Aside has paused records without a key or an order, to move to StageAside.
	Leasing, Expired, Parked, Holding, Aside []Candidate
	// HeldKeys are the keys of Holding. Reopen are keys with held records that the decided
	// record no longer blocks.
	HeldKeys map[string]HeldKey
	Reopen   []string
	// Place is where the turns of the next claim begin; "" if the page had no record.
	Place string
	// Again says that records of keys that the claim has held, now or before, may be claimable,
	// because one before them went away without being claimed.
	Again bool

	// gone has, by its Seq, each record with a key that passed, and the Seq of the ready record before
	// it, which an expired one need not wait for; 0 if there is none.
	gone map[int64]int64
	// pausedKeys are the keys of which the scan met a paused record, and the pauses.
	pausedKeys map[string]int64
}

// Settled clears the decisions after the store has executed them.
func (w *OrderedScan) Settled() {
	w.Leasing, w.Expired, w.Parked, w.Holding, w.Aside = nil, nil, nil, nil, nil
	w.HeldKeys, w.Reopen = nil, nil
}

// Page decides about the records of a page, in their order, until the claim is full.
func (w *OrderedScan) Page(page []Candidate) {
	states := map[string]KeyState{}
	w.Leasing = slices.Grow(w.Leasing, max(0, min(len(page), w.Want-w.Taken)))
	for _, r := range page {
		if r.First {
			states[r.Key] = r.State
		}
	}
	for _, r := range page {
		if w.Rooms.Of(r.TenantID) <= 0 {
			continue
		}
		if w.waits(r) {
			if w.Turns {
				continue
			}
			w.Full = true
			return
		}
		w.turnTo(r, true)
		state, known := states[r.Key]
		if !known {
			state = KeyState{Waiting: NoSeq, Held: NoSeq}
		}
		block, blocked := state.blocks(r, w.Policy)
		behind := w.behind(r)
		if behind && !blocked {
			block, blocked = Blocker{By: BlockedByTurn}, true
		}
		r.Pause = w.pauseOf(r)
		holding, taken := len(w.Holding), w.Taken
		switch {
		case r.Expired:
			w.Expired = append(w.Expired, r)
		case behind:
			w.hold(r, block)
		case r.Pause != 0 && w.WholeTopic:
			w.Full = true
			return
		case r.Pause != 0 && (r.Key == "" || w.Unordered):
			w.Aside = append(w.Aside, r)
		case r.Pause != 0:
			w.hold(r, Blocker{By: BlockedByPause, Pause: r.Pause, Until: r.Expires})
		case state.Parks(w.Policy):
			w.Parked = append(w.Parked, r)
		case blocked:
			w.hold(r, block)
		case !w.take(r):
			w.Full = true
			w.turnTo(r, false)
			return
		}
		left := w.Turns && len(w.Holding) == holding
		if left {
			w.Again = w.Again || w.Taken == taken && r.Key != "" && !w.Unordered
			w.pass(r, behind)
		}
		if state.Held != NoSeq && (!blocked || left) && r.Pause == 0 {
			w.Reopen = append(w.Reopen, r.Key)
		}
	}
}

// waits reports whether this claim must not return the record, because others that it does not
// see yet may have to come first.
func (w *OrderedScan) waits(r Candidate) bool {
	later := w.Until.Before(r.Due, r.Seq)
	if !w.Turns {
		return later
	}
	return !w.Unordered && r.Key != "" && (later || w.Unturned != 0 && r.Seq > w.Unturned)
}

// behind reports whether a ready record before this one in its key has not passed.
func (w *OrderedScan) behind(r Candidate) bool {
	if !w.Turns || w.Unordered || r.Key == "" {
		return false
	}
	for before := r.Behind; before != 0; {
		next, gone := w.gone[before]
		if !gone {
			return true
		}
		before = next
	}
	return false
}

// pass notes that the record is no longer among the ready ones. Records of its key that the scan
// has held may have waited for it.
func (w *OrderedScan) pass(r Candidate, behind bool) {
	if r.Key == "" || w.Unordered {
		return
	}
	if held, known := w.HeldKeys[r.Key]; known && held.Head > r.Seq {
		held.By = BlockedByNothing
		w.HeldKeys[r.Key] = held
	}
	if w.gone == nil {
		w.gone = map[int64]int64{}
	}
	w.gone[r.Seq] = 0
	if behind {
		w.gone[r.Seq] = r.Behind
	}
}

// turnTo notes the place at which the next claim begins: behind the tenant of the record, or with
// it if the record did not fit.
func (w *OrderedScan) turnTo(r Candidate, served bool) {
	switch turn := Turn(r.TenantID); {
	case !w.Turns:
	case served:
		w.Place = AfterTurn(turn)
	default:
		w.Place = turn
	}
}

// pauseOf returns the number of the pause of the record, or of an earlier record of its key
// that the scan has met; 0 if there is none. A record that has expired pauses nothing.
func (w *OrderedScan) pauseOf(r Candidate) int64 {
	if r.Expired || !w.Pauses.HasParts() {
		return 0
	}
	if number := w.pausedKeys[r.Key]; number != 0 && r.Key != "" && !w.Turns {
		return number
	}
	number := w.Pauses.Of(w.Group, w.Topic, r.Key, r.TenantID)
	if number != 0 && !w.Unordered {
		if w.pausedKeys == nil {
			w.pausedKeys = map[string]int64{}
		}
		w.pausedKeys[r.Key] = number
	}
	return number
}

func (w *OrderedScan) hold(r Candidate, b Blocker) {
	w.Holding = append(w.Holding, r)
	if w.HeldKeys == nil {
		w.HeldKeys = map[string]HeldKey{}
	}
	if first, known := w.HeldKeys[r.Key]; !known || r.Seq < first.Head {
		w.HeldKeys[r.Key] = HeldKey{b, r.Seq}
	}
}

// take takes the record if it fits. If it does not fit, no later record of its topic may be
// taken either.
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
	w.Rooms.Take(r.TenantID)
	w.Leasing = append(w.Leasing, r)
	w.Bytes += r.Size
	return true
}
