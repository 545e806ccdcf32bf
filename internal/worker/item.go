package worker

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Item is a claimed record. Exactly one of Ack, Abandon, Fail, Release and
// Snooze takes effect, the first; all are quick and may be called by any
// goroutine.
type Item struct {
	Record *outmill.Record
	// Clock is the end of the lease by the database's clock.
	Clock *storekit.LeaseClock

	worker *Worker
	feed   *Feed
	lease  outmill.Lease
	key    string
	size   int
	// expiries are the record's when it was claimed.
	expiries int

	// All below is guarded by the worker's mutex.
	// lost is made for who asks.
	lost      chan struct{}
	state     itemState
	claimedAt time.Time
	// startedAt is zero until the handling begins.
	startedAt time.Time
	// until is when the lease ends by this process's monotonic clock, at the
	// earliest.
	until    time.Time
	lostSent bool
	// handling is that of the record, from Take on: the item's own, or that which
	// it inherited.
	handling *handling
	// heir: the record is being handled under an older lease.
	heir bool
	// decided: the user has settled it. orphan: its lease was lost while it was
	// being handled, and it has no heir.
	decided, orphan bool
	// held: the lease is ready for an ack in a transaction. txOpen: a transaction is open
	// that an extension would make fail. ackedInTx: a transaction has acked it.
	held, txOpen, ackedInTx bool

	// What is above points to the first two, and the worker's keys to the third, while
	// the item is the only one of its key: less to allocate.
	ownClock    storekit.LeaseClock
	ownHandling handling
	ownSequence [1]*Item
}

type itemState int

const (
	// queued: claimed, waits in the worker.
	queued itemState = iota
	// taken: handed to the user, or the heir of what was.
	taken
	// settled: its outcome waits for the next flush.
	settled
	// gone: the store knows the outcome, or the lease was lost.
	gone
)

// Key is what the order of the record hangs on, its topic included; "" is nothing.
func (it *Item) Key() string { return it.key }

// Left is how much longer the lease stands if it is not extended; 0 says that
// it does not, and that the handling must not begin.
func (it *Item) Left() time.Duration {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state != taken {
		return 0
	}
	return max(time.Until(it.until), 0)
}

// Started tells the worker that the handling has begun: MaxProcessing counts
// from here. It reports false if the lease was lost in the meantime, or is over as
// far as the worker knows: who can, does not begin. An extension that is under way
// may save the lease for those that cannot.
func (it *Item) Started() bool {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if it.state != taken {
		return false
	}
	if it.startedAt.IsZero() {
		it.feed.started(now)
	}
	it.startedAt = now
	return !now.After(it.until)
}

// Lost is closed when the lease is no longer ours, or the handling was given up
// for taking too long: another worker may handle the record from now on.
func (it *Item) Lost() <-chan struct{} {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.lost == nil {
		it.lost = make(chan struct{})
		if it.lostSent {
			close(it.lost)
		}
	}
	return it.lost
}

// Ack says that the record was handled.
func (it *Item) Ack() { it.worker.settle(it, outcome{kind: acked}) }

// Abandon says that the handling failed; the record is due again after delay.
func (it *Item) Abandon(delay time.Duration, reason string) {
	it.worker.settle(it, outcome{kind: abandoned, delay: delay, reason: reason})
}

// Fail makes the record dead.
func (it *Item) Fail(reason string) {
	it.worker.settle(it, outcome{kind: failed, reason: reason})
}

// Release gives the record back, not counted.
func (it *Item) Release() { it.worker.settle(it, outcome{kind: released}) }

// Snooze gives the record back until later, not counted.
func (it *Item) Snooze(delay time.Duration) {
	it.worker.settle(it, outcome{kind: snoozed, delay: delay})
}

// GiveUp gives the record back while its handling goes on: this instance does
// not handle it again before one of the methods above says that it has ended.
func (it *Item) GiveUp() { it.worker.giveUp(it) }

// Judge settles the item as the policy decides about err, and returns what
// that was.
func (it *Item) Judge(err error) storekit.Verdict {
	verdict, reason := it.worker.judge(it.Record.Attempts, err)
	switch {
	case verdict.Snooze:
		it.Snooze(verdict.Delay)
	case verdict.Dead:
		it.Fail(reason)
	default:
		it.Abandon(verdict.Delay, reason)
	}
	return verdict
}
