package worker

import (
	"fmt"
	"time"
)

// settle records the user's outcome of the item; only the first outcome counts. If the item
// has a successor, the item's own lease is no longer valid, so the successor gets the
// outcome too.
func (w *Worker) settle(it *Item, o outcome) {
	if successor := w.decide(it, o); successor != nil {
		successor.worker.settle(successor, o)
	}
}

func (w *Worker) decide(it *Item, o outcome) (successor *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.decided {
		return nil
	}
	it.decided = true
	it.feed.ended(it, time.Now())
	if it.handling != nil {
		successor = w.cfg.Running.end(it.handling, it, o)
	}
	w.settleLocked(it, o)
	if it.state == gone && it.handling != nil {
		w.cfg.Running.leave(it.handling, it)
	}
	return successor
}

func (w *Worker) giveUp(it *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleLocked(it, outcome{kind: released})
}

// settleLocked ignores an item that is settled, or whose lease was lost.
func (w *Worker) settleLocked(it *Item, o outcome) {
	if it.state == settled || it.state == gone {
		return
	}
	w.conclude(it, o)
	if o.givesBack(w.cfg.KeyPolicy) {
		w.giveBackKey(it)
		return
	}
	w.nextOfKey(it)
}

// conclude passes the outcome to the next flush.
func (w *Worker) conclude(it *Item, o outcome) {
	it.state = settled
	o.item = it
	switch o.kind {
	case released:
		w.repeats.gaveBack(it.Record)
	case acked, failed:
		w.repeats.ended(it.Record.ID)
	case abandoned, snoozed:
	}
	w.outcomes = append(w.outcomes, o)
	if o.givesBack(w.cfg.KeyPolicy) {
		w.source(it.lease.Store).giveBacks++
	}
	signal(w.settleSignal)
}

// releaseWhere releases the matching items that were not taken yet.
func (w *Worker) releaseWhere(match func(*Item) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakUp()
	for _, it := range w.items {
		if it.state == queued && match(it) {
			w.settleLocked(it, outcome{kind: released})
		}
	}
}

// giveUpLate gives up items that were held for too long. A handling that does not end
// fails; an item that still waits for its handling is released, so that other processes can
// handle it.
func (w *Worker) giveUpLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, it := range w.items {
		offered := it.waits() && it.state == taken
		switch {
		case it.committing:
			// Its message may be handled by now, so it must not fail.
			continue
		case it.waits() && now.Sub(it.claimedAt) > w.maxWaiting():
			it.feed.unread = it.feed.unread || offered
			w.settleLocked(it, outcome{kind: released})
		case w.overdue(it, now) && it.inQueue:
			w.releaseLate(it)
		case w.overdue(it, now):
			w.failLate(it)
		default:
			continue
		}
		it.sayLost()
	}
}

// maxWaiting is the longest time between a claim and the start of the handling. One lease
// is long enough, because the worker claims only as many records as its handlers start
// soon.
func (w *Worker) maxWaiting() time.Duration {
	if w.cfg.ByTopic {
		return min(w.cfg.Lease, w.cfg.MaxProcessing)
	}
	return w.cfg.MaxProcessing
}

// overdue reports whether a handling takes longer than MaxProcessing. It then counts as
// stuck.
func (w *Worker) overdue(it *Item, now time.Time) bool {
	begin := it.startedAt
	if it.begunAt.After(begin) {
		begin = it.begunAt
	}
	return it.state == taken && !begin.IsZero() && now.Sub(begin) > w.cfg.MaxProcessing
}

func (w *Worker) failLate(it *Item) {
	late := fmt.Errorf("outmill: the handling did not end within %s (MaxProcessing)", w.cfg.MaxProcessing)
	InStore(w.log, it.Record.Store).Error("Handling takes too long; the record is delivered again", late, fieldsOf(it))
	o := outcome{kind: abandoned, reason: late.Error()}
	verdict, _ := w.judge(it.Record.Attempts, late)
	if o.delay = verdict.Delay; verdict.Dead {
		o.kind = failed
	}
	w.settleLocked(it, o)
}

// releaseSuccessors releases the successors. The user has not taken them, because their records are
// still handled under older leases.
func (w *Worker) releaseSuccessors() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		if it.successor {
			w.settleLocked(it, outcome{kind: released})
		}
	}
}

func (it *Item) sayLost() {
	if !it.lostSent {
		it.lostSent = true
		if it.lost != nil {
			close(it.lost)
		}
	}
}

// removeLocked frees the budget of an item that is settled in the store, or whose lease was
// lost.
func (w *Worker) removeLocked(it *Item) {
	it.state = gone
	w.noteRemoval()
	if w.items[it.lease.ID] != it {
		return
	}
	delete(w.items, it.lease.ID)
	f := it.feed
	if it.aside {
		f.aside.remove(it)
	} else {
		f.held.remove(it)
	}
	f.abandoned(it)
	f.tenantFreed(it)
	if f.solo == it {
		f.solo = nil
	}
	// A suspect waits until it is the only item of its feed.
	signal(f.readySignal)
	signal(w.roomSignal)
}
