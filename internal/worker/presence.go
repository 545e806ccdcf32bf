package worker

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// stopsWithin limits the time of the last call of a worker, which tells the store that it has stopped.
const stopsWithin = 2 * time.Second

// Presence is a worker that reads. Each of one name reports the handlers of all, and only the last one that
// leaves reports that it has stopped: see namesakes.
type Presence struct {
	queue   outmill.Queue
	name    reportName
	running *Registry
	after   time.Duration
	reads   func() []outmill.Reading
	// warnedOf is what WarnReads has looked at; warned says that it has warned.
	warnedOf string
	warned   bool
}

// present has the workers of this process that read.
var present namesakes[*Presence]

// Enter notes a worker that reads under this name. It reports the handlers of its registry that have run for
// longer than after, and what reads returns. The caller calls Leave when nothing is read any more.
func Enter(
	queue outmill.Queue, group, name string, running *Registry, after time.Duration, reads func() []outmill.Reading,
) *Presence {
	p := &Presence{queue: queue, name: reportNameOf(queue, group, name), running: running, after: after, reads: reads}
	present.add(p.name, p)
	return p
}

// Leave notes that the worker has stopped. If no other one of its name is left, it tells the store, for up to
// 2 seconds, and returns its error. Only the first call counts.
func (p *Presence) Leave(ctx context.Context) error {
	if !present.remove(p.name, p) || p.name.name == "" {
		return nil
	}
	_, err := Bounded(ctx, stopsWithin, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.queue.RegisterGroup(ctx, outmill.Registration{Group: p.name.group, Worker: p.name.name, Stopped: true})
	})
	return err
}

// Forget is Leave without telling the store.
func (p *Presence) Forget() { present.remove(p.name, p) }

// Handling returns the handlers that have run for long, of all workers of the name, the longest first, as a
// registration can report them.
func (p *Presence) Handling() []outmill.Handling {
	var list []outmill.Handling
	for _, other := range present.of(p.name) {
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
