package mongo

import (
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
)

// A trail is what this process remembers of a topic of a group from claim to claim, so that a
// claim in a series need not search everywhere again.
//
// While claims without an order are full of ready records alone, each claim starts behind the
// last record that the previous claim took. Otherwise the server would read again past all
// records that were deleted since its last checkpoint. Such a claim does not see records that
// were given back, were delayed, or were committed late. So a claim searches everywhere, from the
// first ready record, at intervals, after this process gave a record back, and whenever it finds
// fewer records than it wants.
//
// MongoDB has no SKIP LOCKED: if two processes choose the same records, each leases only some of
// them, and has read the others for nothing. After a process missed some, its next claim skips a
// random part of a window, which grows with the number of misses. It continues from there, so the
// processes stay apart until one reaches the position of another.
type trail struct {
	mu sync.Mutex
	// from is the seq of the last chosen record. flowing means that the last claim was full.
	from    bson.Timestamp
	flowing bool
	// stirs is the count of trails.stirs at lookedAt, when the last claim searched everywhere.
	// The next such search is due after lookAfter.
	stirs     int64
	lookedAt  time.Time
	lookAfter time.Duration
	// seenTo is the server's time of the last search of a claim in order, or slightly earlier.
	seenTo time.Time
	// routedAt is the last time at which no record of the topic waited for a group.
	routedAt time.Time
	// width is the width of the window, in claims. missed means that the last claim leased fewer
	// records than it chose. whole counts consecutive claims that leased all of them. share, from
	// 0 to 1, is this process's place among the processes that search everywhere.
	width  int
	missed bool
	whole  int
	share  float64
	// lanes means that there were lanes.
	lanes bool
	// turn is the length of a turn, if it is longer than the initial length.
	turn time.Duration
	// doubts is how many doubtful turns of the line have ended, as far as this process knows.
	doubts int64
	// tenants is an estimate of how many tenants have ready records in a fair topic, or zero.
	tenants float64
}

const (
	// A search everywhere takes at most a twentieth of the time, but happens at least once a
	// second.
	lookOften  = 100 * time.Millisecond
	lookSeldom = time.Second
	lookShare  = 20
	clockSlack = 100 * time.Millisecond
	// The largest width of the window, in claims and in records.
	maxWidth       = 64
	maxWidthInSeqs = 10_000
)

// trails holds the trails of a store, and counts how often records were given back.
type trails struct {
	mu    sync.Mutex
	known map[line]*trail
	stirs int64
}

// maxTrails bounds the memory for topics from which nobody claims any more.
const maxTrails = 10_000

func (t *trails) of(l line) *trail {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.known[l]
	if found == nil {
		if t.known == nil || len(t.known) >= maxTrails {
			t.known = map[line]*trail{}
		}
		found = &trail{width: 1, share: rand.Float64()}
		t.known[l] = found
	}
	return found
}

// stir makes the next claims search everywhere.
func (t *trails) stir() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stirs++
}

// forget makes the next claims also search for topics, and for lanes.
func (t *trails) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = nil
}

func (t *trails) stirred() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stirs
}

// next returns where a claim starts, and how many records it skips. If ok is false, the claim
// must search everywhere.
func (t *trail) next(now time.Time, stirs int64, want int) (from bson.Timestamp, skip int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.flowing || t.stirs != stirs || now.Sub(t.lookedAt) > t.patience() {
		return from, 0, false
	}
	if window := min(t.width*want, maxWidthInSeqs); t.missed && window > 0 {
		skip = rand.N(window)
	}
	return t.from, skip, true
}

// chose notes the last record that a claim chose. The next claim starts behind it.
func (t *trail) chose(last bson.Timestamp, flowing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from, t.flowing = last, flowing
}

// looked notes a search everywhere that began at that time.
func (t *trail) looked(began time.Time, stirs int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookedAt, t.stirs = began, stirs
	t.lookAfter, t.share = min(max(lookShare*took, lookOften), lookSeldom), rand.Float64()
}

// patience is how long to read ready records only. All processes start a search everywhere at the
// same record, so the more processes there are, the less often each of them searches.
func (t *trail) patience() time.Duration {
	if t.width == 1 {
		return t.lookAfter
	}
	return lookSeldom + time.Duration(t.share*float64(t.width)*float64(lookSeldom))
}

// got notes how many of the chosen records the claim could lease.
func (t *trail) got(chosen, leased int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed = leased < chosen
	switch {
	case leased < chosen/2:
		t.width, t.whole = min(8*t.width, maxWidth), 0
	case t.missed:
		t.width, t.whole = min(2*t.width, maxWidth), 0
	default:
		if t.whole++; t.whole >= t.width {
			t.width, t.whole = max(1, t.width-1), 0
		}
	}
}

func (t *trail) routed(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.routedAt = at
}

// flows means that the next claim need not ask whether there are records: the last claim was
// full, and a short time ago no record waited for a group. Claims in order check the second
// condition themselves.
func (t *trail) flows(now time.Time, order outmill.Order) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flowing && (order != outmill.OrderNone || now.Sub(t.routedAt) < lookSeldom)
}

// flow notes whether there are more ready records behind those that a claim in order has read.
func (t *trail) flow(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flowing = on
}

// searchesDue tells a claim in order to search also for due records that are not ready yet.
func (t *trail) searchesDue(now time.Time, stirs int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.flowing || t.stirs != stirs || now.Sub(t.lookedAt) > t.lookAfter
}

// sawTo notes the server's time of a search everywhere. It may be ahead by a round trip.
func (t *trail) sawTo(server time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seenTo = server.Add(-clockSlack)
}

// isNew reports whether a record was appended after the last search everywhere. A record that
// became due since then may have to come before it.
func (t *trail) isNew(r candidate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.CreatedAt.After(t.seenTo)
}

func (t *trail) mayHaveLanes(are bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes = are
}

func (t *trail) hasLanes() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes
}

// turnFor is the length for which a claim takes the turn.
func (t *trail) turnFor(first time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.turn, first)
}

// tookTurn notes how long a claim had the turn.
func (t *trail) tookTurn(took, first time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch lasts := max(t.turn, first); {
	case took > lasts/2:
		t.turn = min(2*lasts, lastTurn)
	case took < lasts/8:
		t.turn = max(lasts/2, first)
	}
}

func (t *trail) doubtsSeen() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubts
}

func (t *trail) sawDoubts(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts = max(t.doubts, n)
}

// tenantsSeen is an estimate of how many tenants have ready records. It is zero if nothing is known.
func (t *trail) tenantsSeen() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tenants
}

func (t *trail) saw(tenants float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tenants = tenants
}
