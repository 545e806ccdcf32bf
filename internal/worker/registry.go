package worker

import (
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// Registry knows the handlings that are under way in this instance, also after
// their leases were lost. A record that has been claimed again is not
// handled a second time: the new item is the heir of the handling, and gets its
// outcome.
type Registry struct {
	mu        sync.Mutex
	handlings map[outmill.WorkItemID]*handling
}

// handling is guarded by the registry's mutex, save startedAt, which is set
// once, before anybody else can see it.
type handling struct {
	startedAt time.Time
	// newest is the item of the latest lease.
	newest *Item
	// outcome is how the handling ended, once it has.
	outcome outcome
	ended   bool
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{handlings: map[outmill.WorkItemID]*handling{}}
}

func (r *Registry) begin(it *Item, now time.Time) *handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.ownHandling = handling{startedAt: now, newest: it}
	r.handlings[it.lease.ID] = &it.ownHandling
	return &it.ownHandling
}

// inherit makes the item the heir of the handling of its record; nil if there
// is none. It returns how that ended, if it has and the store does not know it:
// a record whose last lease did not run out comes again because of an outcome
// that was stored a moment ago. before is the item of the lease before.
func (r *Registry) inherit(it *Item) (h *handling, before *Item, how outcome, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h = r.handlings[it.lease.ID]
	if h == nil || h.ended && it.expiries <= h.newest.expiries {
		return nil, nil, outcome{}, false
	}
	before, h.newest = h.newest, it
	return h, before, h.outcome, h.ended
}

// end notes how the handling ended, and returns the heir of the item, if it
// has one.
func (r *Registry) end(h *handling, it *Item, o outcome) *Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.outcome, h.ended = o, true
	if h.newest == it {
		return nil
	}
	return h.newest
}

// leave forgets a handling that has ended, once nothing is left to do under its
// latest lease. It reports whether the item's lease was that one.
func (r *Registry) leave(h *handling, it *Item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.newest != it {
		return false
	}
	if h.ended && r.handlings[it.lease.ID] == h {
		delete(r.handlings, it.lease.ID)
	}
	return true
}
