package worker

import (
	"fmt"
	"time"
)

// settle is for the user of the item; only the first outcome counts. It goes on
// to the heir, if there is one: then the item's own lease no longer stands.
func (w *Worker) settle(it *Item, o outcome) {
	if heir := w.decide(it, o); heir != nil {
		heir.worker.settle(heir, o)
	}
}

func (w *Worker) decide(it *Item, o outcome) (heir *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.decided {
		return nil
	}
	it.decided = true
	it.feed.ended(it, time.Now())
	if it.handling != nil {
		heir = w.cfg.Running.end(it.handling, it, o)
	}
	w.settleLocked(it, o)
	if it.state == gone && it.handling != nil {
		w.cfg.Running.leave(it.handling, it)
	}
	return heir
}

func (w *Worker) giveUp(it *Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleLocked(it, outcome{kind: released})
}

// settleLocked does nothing for an item that is settled, or whose lease was
// lost.
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

// conclude hands the outcome to the next flush.
func (w *Worker) conclude(it *Item, o outcome) {
	it.state = settled
	o.item = it
	w.outcomes = append(w.outcomes, o)
	if o.givesBack(w.cfg.KeyPolicy) {
		w.giveBacks++
	}
	signal(w.settleSignal)
}

// releaseWhere gives back what nobody has taken, where match says so.
func (w *Worker) releaseWhere(match func(*Item) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		if it.state == queued && match(it) {
			w.settleLocked(it, outcome{kind: released})
		}
	}
}

// giveUpLate gives up what has been held for too long. A handling that does not
// end has failed; what still waits for its handling is given back, so that
// others get a chance.
func (w *Worker) giveUpLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, it := range w.items {
		offered := it.state == taken && it.startedAt.IsZero()
		switch {
		case (it.state == queued || offered) && now.Sub(it.claimedAt) > w.maxWaiting():
			it.feed.unread = it.feed.unread || offered
			w.settleLocked(it, outcome{kind: released})
		case w.overdue(it, now):
			w.failLate(it)
		default:
			continue
		}
		it.sayLost()
	}
}

// maxWaiting is how long a record may be held before its handling begins. A lease
// is time enough to start what was claimed at the handlers' pace.
func (w *Worker) maxWaiting() time.Duration {
	if w.cfg.ByTopic {
		return min(w.cfg.Lease, w.cfg.MaxProcessing)
	}
	return w.cfg.MaxProcessing
}

// overdue: a handling that takes longer than MaxProcessing is taken for stuck.
func (w *Worker) overdue(it *Item, now time.Time) bool {
	return it.state == taken && !it.startedAt.IsZero() && now.Sub(it.startedAt) > w.cfg.MaxProcessing
}

func (w *Worker) failLate(it *Item) {
	late := fmt.Errorf("outmill: the handling did not end within %s (MaxProcessing)", w.cfg.MaxProcessing)
	w.log.Error("Handling takes too long; the record is delivered again", late, fieldsOf(it))
	o := outcome{kind: abandoned, reason: late.Error()}
	verdict, _ := w.judge(it.Record.Attempts, late)
	if o.delay = verdict.Delay; verdict.Dead {
		o.kind = failed
	}
	w.settleLocked(it, o)
}

// releaseHeirs gives back what is handled under another lease, and therefore
// held by nobody.
func (w *Worker) releaseHeirs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.items {
		if it.heir {
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

// removeLocked frees the room of an item that is settled for good, or lost.
func (w *Worker) removeLocked(it *Item) {
	it.state = gone
	if w.items[it.lease.ID] != it {
		return
	}
	delete(w.items, it.lease.ID)
	f := it.feed
	f.held.items--
	f.held.bytes -= it.size
	f.abandoned(it)
	if f.solo == it {
		f.solo = nil
	}
	// A suspect waits until it is the only one.
	signal(f.readySignal)
	signal(w.roomSignal)
	if len(w.items) == 0 {
		signal(w.emptySignal)
	}
}
