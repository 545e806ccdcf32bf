package worker

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// stopsWithin limits the time of the last call of a worker, which tells the store that it has stopped.
const stopsWithin = 2 * time.Second

// Presence is a worker that reads. Several of a process may have one name, such as the subscribers of a
// group, because the default is that of the process; each registration replaces the report of the others.
// So each reports the handlers of all, and only the last one that leaves reports that it has stopped.
type Presence struct {
	queue   outmill.Queue
	name    presentName
	running *Registry
	after   time.Duration
}

// presentName is what a store keeps one report for. A database that the program has opened twice has two
// stores: then a worker of one that stops hides that of the other, until that registers again.
type presentName struct {
	store       any
	group, name string
}

// innermost is the store behind its wrappers, or nil if it cannot be compared.
func innermost(queue outmill.Queue) any {
	var store any = queue
	// The bound ends the loop for a wrapper that wraps itself.
	for range 100 {
		wrapper, ok := store.(interface{ Unwrap() outmill.Store })
		if !ok {
			break
		}
		store = wrapper.Unwrap()
	}
	if !reflect.ValueOf(store).Comparable() {
		return nil
	}
	return store
}

// present has the workers of this process that read.
var present = struct {
	sync.Mutex
	all map[presentName][]*Presence
}{all: map[presentName][]*Presence{}}

// Enter notes a worker that reads under this name. It reports the handlers of its registry that have run for
// longer than after. The caller calls Leave when nothing is read any more.
func Enter(queue outmill.Queue, group, name string, running *Registry, after time.Duration) *Presence {
	p := &Presence{queue: queue, name: presentName{innermost(queue), group, name}, running: running, after: after}
	present.Lock()
	defer present.Unlock()
	present.all[p.name] = append(present.all[p.name], p)
	return p
}

// Leave notes that the worker has stopped. If no other one of its name is left, it tells the store, for up to
// 2 seconds, and returns its error. Only the first call counts.
func (p *Presence) Leave(ctx context.Context) error {
	if !p.leave() || p.name.name == "" {
		return nil
	}
	_, err := Bounded(ctx, stopsWithin, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.queue.RegisterGroup(ctx, outmill.Registration{Group: p.name.group, Worker: p.name.name, Stopped: true})
	})
	return err
}

// Forget is Leave without telling the store.
func (p *Presence) Forget() { p.leave() }

// leave reports whether the worker was the last one of its name.
func (p *Presence) leave() (last bool) {
	present.Lock()
	defer present.Unlock()
	i := slices.Index(present.all[p.name], p)
	if i < 0 {
		return false
	}
	left := slices.Delete(slices.Clone(present.all[p.name]), i, i+1)
	if present.all[p.name] = left; len(left) == 0 {
		delete(present.all, p.name)
		return true
	}
	return false
}

// Handling returns the handlers that have run for long, of all workers of the name, the longest first, as a
// registration can report them.
func (p *Presence) Handling() []outmill.Handling {
	present.Lock()
	all := present.all[p.name]
	present.Unlock()
	var list []outmill.Handling
	for _, other := range all {
		list = append(list, other.running.longer(other.after)...)
	}
	slices.SortFunc(list, func(a, b outmill.Handling) int { return a.Since.Compare(b.Since) })
	list = slices.Compact(list)
	return list[:min(len(list), storekit.MaxHandling)]
}

// longer returns the handlings that have run for longer than that.
func (r *Registry) longer(than time.Duration) []outmill.Handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []outmill.Handling
	for id, h := range r.handlings {
		if !h.ended && time.Since(h.startedAt) > than {
			rec := h.newest.Record
			// In milliseconds, as JSON, without the monotonic clock.
			list = append(list, outmill.Handling{Record: id, Topic: rec.Topic, Store: rec.Store,
				Since: h.startedAt.UTC().Round(0).Truncate(time.Millisecond)})
		}
	}
	return list
}
