package tenants

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill/storekit"
)

// With a budget of connections (Config.MaxConnections), at most half of them listen: those of the busiest members. All
// other members are polled, as with Config.WithoutWake. Every Config.MaxIdle the set looks at how busy they are. A
// member takes the place of another one only if it is more than twice as busy, and only a few do so at a time, so that
// members that are about equally busy do not take turns.

const (
	// busySlot is the time in which a member counts as busy once, however many records it gives.
	busySlot = 500 * time.Millisecond
	// busyHalves is the time after which what a member was counts half.
	busyHalves = 5 * time.Minute
	// changesOf is the part of the members that listen that can change in one look.
	changesOf = 8
)

// busyness is how often claims have found something in a member.
type busyness struct {
	mu    sync.Mutex
	score float64
	at    time.Time
}

// found notes that a claim found something.
func (b *busyness) found(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.at) >= busySlot {
		b.score, b.at = b.score*decay(now.Sub(b.at))+1, now
	}
}

// now is the number of slots in which the member was busy, the old ones counted less.
func (b *busyness) now(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.score * decay(now.Sub(b.at))
}

func decay(after time.Duration) float64 { return math.Exp2(-after.Seconds() / busyHalves.Seconds()) }

// listening are the members that listen on a connection of the budget.
type listening struct {
	// most is how many may; 0 is none.
	most int

	mu sync.Mutex
	on map[*member]context.CancelFunc
}

// isOn reports whether the member listens on a connection of the budget.
func (l *listening) isOn(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, on := l.on[m]
	return on
}

// start reports whether there is a place for the member, and takes it.
func (l *listening) start(m *member) (ctx context.Context, started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, on := l.on[m]; on || len(l.on) >= l.most {
		return nil, false
	}
	if l.on == nil {
		l.on = map[*member]context.CancelFunc{}
	}
	ctx, l.on[m] = context.WithCancel(m.ctx)
	return ctx, true
}

// end has the member listen no more.
func (l *listening) end(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stop := l.on[m]; stop != nil {
		stop()
		delete(l.on, m)
	}
}

// listensWithin tells whether the member would listen on a connection of the set's budget.
func (s *Set) listensWithin(m *member) bool {
	return s.budget != nil && m.listener != nil && m.listener.ListensWithin() == s.budget
}

// listen merges the wake-ups of a member, unless that takes a connection and none is left for it. The caller holds the
// lock.
func (s *Set) listen(m *member) {
	if m.waker == nil {
		return
	}
	ctx := m.ctx
	if s.listensWithin(m) {
		var started bool
		if ctx, started = s.listening.start(m); !started {
			return
		}
	}
	m.waker.Wake(ctx, func(topic string) { s.woken(m, topic) })
}

// listenLoop has the busiest members listen until the set is closed.
func (s *Set) listenLoop() {
	for storekit.Pause(s.ctx, s.cfg.MaxIdle) == nil {
		s.chooseListeners(time.Now())
	}
}

// rated is a member and how busy it is.
type rated struct {
	member *member
	busy   float64
}

// chooseListeners gives free places to the busiest members, and then takes a few from the quietest for members that
// are much busier.
func (s *Set) chooseListeners(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waking || s.life.Closed() {
		return
	}
	on, off := s.rateListeners(now)
	for len(off) > 0 && len(on) < s.listening.most {
		s.listen(off[0].member)
		on, off = append(on, off[0]), off[1:]
	}
	slices.SortStableFunc(on, quietFirst)
	for i := range min(len(on), len(off), max(s.listening.most/changesOf, 1)) {
		if off[i].busy <= 2*on[i].busy+1 {
			return
		}
		s.listening.end(on[i].member)
		s.listen(off[i].member)
	}
}

// rateListeners returns the members that listen within the budget, and those that could, the busiest first.
func (s *Set) rateListeners(now time.Time) (on, off []rated) {
	members, _ := s.list()
	for _, m := range members {
		switch {
		case !s.listensWithin(m):
		case s.listening.isOn(m):
			on = append(on, rated{m, m.busy.now(now)})
		default:
			off = append(off, rated{m, m.busy.now(now)})
		}
	}
	slices.SortStableFunc(off, func(a, b rated) int { return -quietFirst(a, b) })
	return on, off
}

func quietFirst(a, b rated) int { return cmp.Compare(a.busy, b.busy) }
