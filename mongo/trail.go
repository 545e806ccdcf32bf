package mongo

import (
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
)

// A trail is what this process remembers of a line from claim to claim, so that a
// claim in the midst of many need not look everywhere again.
//
// While claims without an order fill up from the line alone, each begins behind the
// place that the one before it took last: the server would otherwise walk once more
// over all that was deleted since its last checkpoint. What such a claim does not see
// are records that came back, that were delayed, or that were committed late. So a
// claim looks everywhere, from the head of the line, once every so often, when this
// process gave something back, and whenever it finds less than it wants.
//
// MongoDB has no SKIP LOCKED: of two processes that choose the same records each
// leases some, and has read the others in vain. A process that missed some skips, at
// the next claim, a random part of a window, which is wider the more it has missed;
// from there it goes on, and the processes stay apart until one catches up with
// another.
type trail struct {
	mu sync.Mutex
	// from is the last place that was chosen, and flowing whether the last claim
	// filled up.
	from    bson.Timestamp
	flowing bool
	// stirs counts what was given back when the last claim looked everywhere, at
	// lookedAt; the next such look is due after lookAfter.
	stirs     int64
	lookedAt  time.Time
	lookAfter time.Duration
	// seenTo is the server's time of the last look of a claim in order, or somewhat
	// earlier.
	seenTo time.Time
	// routedAt is when nothing of the topic waited for a group.
	routedAt time.Time
	// width is that of the window, in claims, missed whether the last claim got less than
	// it chose, and whole how many claims in a row got all of it. share, from 0 to 1, is
	// this process's place among those that look everywhere.
	width  int
	missed bool
	whole  int
	share  float64
	// lanes: there were some.
	lanes bool
	// turn is how long a turn lasts, where that is longer than at first.
	turn time.Duration
}

const (
	// A look everywhere takes at most a twentieth of the time, unless that makes it
	// rarer than once in a second.
	lookOften  = 100 * time.Millisecond
	lookSeldom = time.Second
	lookShare  = 20
	clockSlack = 100 * time.Millisecond
	// The window is at most so wide, in claims and in records.
	maxWidth       = 64
	maxWidthInSeqs = 10_000
)

// trails are those of a store's lines, and know how often something was given back.
type trails struct {
	mu    sync.Mutex
	known map[line]*trail
	stirs int64
}

// maxTrails bounds the memory for lines that are never claimed from again.
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

// stir has the next claims look everywhere.
func (t *trails) stir() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stirs++
}

func (t *trails) stirred() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stirs
}

// next is where a claim begins, and how many records it skips; not ok is that it has
// to look everywhere.
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

// chose notes what a claim chose: the next one begins behind it.
func (t *trail) chose(last bson.Timestamp, flowing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from, t.flowing = last, flowing
}

// looked notes a look everywhere that began at that time.
func (t *trail) looked(began time.Time, stirs int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookedAt, t.stirs = began, stirs
	t.lookAfter, t.share = min(max(lookShare*took, lookOften), lookSeldom), rand.Float64()
}

// patience is how long to look at the line alone. All processes begin a look everywhere
// at the same place: the more of them there are, the more seldom each does.
func (t *trail) patience() time.Duration {
	if t.width == 1 {
		return t.lookAfter
	}
	return lookSeldom + time.Duration(t.share*float64(t.width)*float64(lookSeldom))
}

// got notes how much of what was chosen others had left.
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

// flows tells that the last claim filled up, and that it is not long ago that nothing
// waited for a group, which claims in order ask themselves: the next claim need not ask
// whether there is something.
func (t *trail) flows(now time.Time, order outmill.Order) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flowing && (order != outmill.OrderNone || now.Sub(t.routedAt) < lookSeldom)
}

// flow notes whether the line goes on behind what a claim in order has read.
func (t *trail) flow(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flowing = on
}

// asideToo tells a claim in order to look also for what is due and not in line.
func (t *trail) asideToo(now time.Time, stirs int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.flowing || t.stirs != stirs || now.Sub(t.lookedAt) > t.lookAfter
}

// sawTo notes the server's time of a look everywhere, which may be ahead by a round trip.
func (t *trail) sawTo(server time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seenTo = server.Add(-clockSlack)
}

// isNew tells that a record was appended after the last look everywhere: what came due
// in between may have to come before it.
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

// turnFor is how long to take the turn.
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
