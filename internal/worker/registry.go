package worker

import (
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// Registry has the running handlings of this instance, also after their leases were lost.
// If such a record is claimed again, it is not handled a second time: the new item is the
// successor of the handling, and gets its outcome.
type Registry struct {
	mu        sync.Mutex
	handlings map[outmill.WorkItemID]*handling
}

// handling is guarded by the registry's mutex, except startedAt, which is set before other
// goroutines can see the handling.
type handling struct {
	startedAt time.Time
	// newest is the item of the latest lease.
	newest *Item
	// outcome is the outcome of the handling if ended is true.
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

// inherit makes the item the successor of the handling of its record, or returns nil if
// there is no such handling. It also returns the outcome if the handling has ended. An
// ended handling counts only if a lease of the record has expired since; otherwise the
// record was claimed again after the store had got the outcome. before is the item of the
// previous lease.
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

// end records the outcome of the handling, and returns the successor of the item, if any.
func (r *Registry) end(h *handling, it *Item, o outcome) *Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.outcome, h.ended = o, true
	if h.newest == it {
		return nil
	}
	return h.newest
}

// leave reports whether the item's lease is the latest of the handling. If so, and the
// handling has ended, it removes the handling.
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
