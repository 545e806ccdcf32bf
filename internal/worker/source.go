package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
)

const (
	// lateAfter is the time after which a call makes its source late.
	lateAfter = time.Second
	// asideShare limits what a feed sets aside: so many times what it may hold.
	asideShare = 4
)

// source is a store that records come from: the worker's only one, whose name is "", or a member of a
// set (Record.Store). The calls of one source wait for no other source, so that a member that hangs, or
// that answers late, delays nobody else.
type source struct {
	name string
	// answers counts the successful calls that settled or extended leases.
	answers atomic.Int64
	// more has a signal if there are outcomes for a settler that waits.
	more chan struct{}

	// The worker's mutex guards the following fields. outcomes wait for the settler, which runs if settling.
	outcomes []outcome
	batches  []*Batch
	settling bool
	// extending says that a call extends leases.
	extending bool
	// giveBacks counts the outcomes that must reach the store before its next ordered claim.
	giveBacks int
	// late counts the calls that take long, and stuck the outcomes that could not be stored.
	late, stuck int
}

// source returns the source of that name. The caller holds the lock.
func (w *Worker) source(name string) *source {
	s := w.sources[name]
	if s == nil {
		s = &source{name: name, more: make(chan struct{}, 1)}
		w.sources[name] = s
	}
	return s
}

// sourceOf is source without the lock.
func (w *Worker) sourceOf(name string) *source {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.source(name)
}

// waits reports whether claims leave out the source: until it knows what was given back, in the order of
// keys, and while it is late, so that its records do not take the room of others.
func (s *source) waits(ordered bool) bool {
	return ordered && s.giveBacks > 0 || s.name != "" && s.late+s.stuck > 0
}

// passOver returns the members of a set that a claim leaves out as of now; nil is none.
func (w *Worker) passOver() func(store string) bool {
	var names map[string]bool
	for name, s := range w.sources {
		if name != "" && s.waits(w.ordered()) {
			if names == nil {
				names = map[string]bool{}
			}
			names[name] = true
		}
	}
	if names == nil {
		return nil
	}
	return func(store string) bool { return names[store] }
}

// noteOf notes the result of a call of a source. A set of stores notes those of its members itself.
func (w *Worker) noteOf(caller context.Context, s *source, call, part string, began time.Time, err error) {
	if s.name == "" {
		w.failing.Note(caller, call, part, began, err)
	}
}

// timed makes a call of a source. If that takes long, the source is late, and the outcomes that the call
// stores are set aside.
func (w *Worker) timed(s *source, batch []outcome, call func() error) error {
	if s.name == "" {
		return call()
	}
	t := &timedCall{source: s, batch: batch}
	timer := time.AfterFunc(lateAfter, func() { w.isLate(t) })
	err := call()
	timer.Stop()
	w.hasEnded(t)
	return err
}

// timedCall is a call of a member of a set. The worker's mutex guards late and ended.
type timedCall struct {
	source      *source
	batch       []outcome
	late, ended bool
}

// isLate notes that the call takes long. The timer may have fired when the call ended, and nothing would
// undo what is noted after that.
func (w *Worker) isLate(t *timedCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.ended {
		return
	}
	t.late = true
	t.source.late++
	w.setAside(t.batch)
}

func (w *Worker) hasEnded(t *timedCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.ended = true
	if t.late {
		t.source.late--
		w.lookAtOnce()
	}
}

// setAside has outcomes of a sick source take no room from the records of others.
func (w *Worker) setAside(batch []outcome) {
	for _, o := range batch {
		it, f := o.item, o.item.feed
		most := load{asideShare * max(w.cfg.MaxItems, f.hands), asideShare * w.cfg.MaxBytes}
		if it.aside || w.items[it.lease.ID] != it || f.aside.items >= most.items || f.aside.bytes+it.size > most.bytes {
			continue
		}
		it.aside = true
		f.held.remove(it)
		f.aside.add(it)
	}
	signal(w.roomSignal)
}

func (l *load) add(it *Item)    { l.items, l.bytes = l.items+1, l.bytes+it.size }
func (l *load) remove(it *Item) { l.items, l.bytes = l.items-1, l.bytes-it.size }

// dispatch gives each source its outcomes, and has a goroutine store them.
func (w *Worker) dispatch(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.outcomes
	w.outcomes = make([]outcome, 0, len(batch))
	w.flushing += len(batch) + w.ackedN
	if len(w.acked) > 0 {
		// A store that is one of several has no batches.
		s := w.source("")
		s.batches = append(s.batches, w.acked...)
		w.acked, w.ackedN = nil, 0
		w.haveSettled(ctx, s)
	}
	for _, o := range batch {
		s := w.source(o.item.lease.Store)
		s.outcomes = append(s.outcomes, o)
		w.haveSettled(ctx, s)
	}
}

// haveSettled has a goroutine store what waits for the settler of the source.
func (w *Worker) haveSettled(ctx context.Context, s *source) {
	if s.settling {
		signal(s.more)
		return
	}
	s.settling = true
	w.rest.Go(func() { w.settleSource(ctx, s) })
}

// settleSource stores the outcomes of a source until there are none, or ctx ends.
func (w *Worker) settleSource(ctx context.Context, s *source) {
	late := w.newStuck(s)
	defer late.leave()
	for {
		batch, batches, more := w.takeOutcomes(s, late)
		if !more {
			return
		}
		w.flushBatches(ctx, s, batches, late)
		if len(batch) > 0 {
			w.flush(ctx, s, batch, late)
		}
		late.tryAgain(ctx)
		if ctx.Err() != nil {
			w.mu.Lock()
			s.settling = false
			w.mu.Unlock()
			return
		}
		if len(late.list) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.more:
		case <-late.due():
		}
	}
}

// takeOutcomes returns the outcomes that wait. It reports false if the settler has nothing left to do.
func (w *Worker) takeOutcomes(s *source, late *stuck) (batch []outcome, batches []*Batch, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch, s.outcomes = s.outcomes, nil
	batches, s.batches = s.batches, nil
	s.settling = len(batch)+len(batches)+len(late.list) > 0
	return batch, batches, s.settling
}

// noteStuck notes how many outcomes of the source could not be stored.
func (w *Worker) noteStuck(s *source, list []stuckOutcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.stuck > 0 && len(list) == 0 && s.name != "" {
		w.lookAtOnce()
	}
	if s.stuck = len(list); s.name != "" {
		w.setAside(convert(list, func(o stuckOutcome) outcome { return o.outcome }))
	}
}

// bySource groups leases by the store that they are of.
func bySource(leases []outmill.Lease) map[string][]outmill.Lease {
	of := map[string][]outmill.Lease{}
	for _, l := range leases {
		of[l.Store] = append(of[l.Store], l)
	}
	return of
}

// extendAll extends leases: those of a worker's only store in this goroutine, and those of the members of
// a set at the same time, each in one call at a time.
func (w *Worker) extendAll(ctx context.Context) {
	for name, leases := range bySource(w.leasesToExtend()) {
		if name == "" {
			w.extendSource(ctx, name, leases)
			continue
		}
		w.mu.Lock()
		s := w.source(name)
		busy := s.extending
		s.extending = true
		w.mu.Unlock()
		if busy {
			continue
		}
		w.rest.Go(func() {
			_ = w.timed(s, nil, func() error {
				w.extendSource(ctx, name, leases)
				return nil
			})
			w.mu.Lock()
			s.extending = false
			w.mu.Unlock()
			w.dropLost()
		})
	}
}

func (w *Worker) extendSource(ctx context.Context, store string, leases []outmill.Lease) {
	if err := w.extend(ctx, leases); err != nil {
		w.faults.InStore(store).Fault("Leases could not be extended, will try again", err, nil)
	}
}
