package worker

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Item is a claimed record. Only the first call of Ack, Abandon, Fail, Release and Snooze
// takes effect. None of them blocks, and any goroutine may call them.
type Item struct {
	// Record has no metadata if entries has it: see Raw.
	Record  *outmill.Record
	entries []roles.MetadataEntry
	// Clock is the end of the lease by the database's clock.
	Clock *storekit.LeaseClock

	worker *Worker
	feed   *Feed
	lease  outmill.Lease
	key    string
	size   int
	// expiries are the record's Expiries at the claim.
	expiries int

	// The worker's mutex guards all fields below. Lost makes lost on demand.
	lost      chan struct{}
	state     itemState
	claimedAt time.Time
	// acked and nacked are the channels of Answers, or nil.
	acked, nacked <-chan struct{}
	// startedAt is zero until the handling begins.
	startedAt time.Time
	// until is the earliest end of the lease by this process's monotonic clock.
	until    time.Time
	lostSent bool
	// aside says that the item counts in the feed's aside, and not in held.
	aside bool
	// handling is set from Take on: the item's own handling of the record, or the inherited
	// one.
	handling *handling
	// successor says that the record is being handled under an older lease.
	successor bool
	// decided says that the user has settled the item; orphan, that its lease was lost during
	// the handling and it has no successor.
	decided, orphan bool
	// committing says that the handler's transaction may be committing; inDoubt, that nobody knows
	// whether the last one was committed.
	committing, inDoubt bool
	// inQueue says that the handler waits for its transaction. begunAt is the time when that
	// ended; MaxProcessing counts from there.
	inQueue bool
	begunAt time.Time

	// Clock and handling point to the first two. The worker's keys use the third while the
	// item is the only one of its key. This saves allocations.
	ownClock    storekit.LeaseClock
	ownHandling handling
	ownSequence [1]*Item
}

type itemState int

const (
	// queued: the item was claimed and waits in the worker.
	queued itemState = iota
	// taken: the user has the item, or the item is a successor.
	taken
	// settled: the outcome waits for the next flush.
	settled
	// gone: the store has the outcome, or the lease was lost.
	gone
)

// Key returns the key of the record's order, which includes the topic; "" is no order.
func (it *Item) Key() string { return it.key }

// Left returns the time until the lease ends if it is not extended. 0 means that the lease
// has ended, so the handling must not begin.
func (it *Item) Left() time.Duration {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state != taken {
		return 0
	}
	return max(time.Until(it.until), 0)
}

// Answers names the channels of which the user closes one when the handling has ended, just
// before one of the methods below settles the item. The worker does not end between the two.
func (it *Item) Answers(acked, nacked <-chan struct{}) {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.acked, it.nacked = acked, nacked
}

// answered reports whether the handling has ended.
func (it *Item) answered() bool {
	select {
	case <-it.acked:
		return true
	case <-it.nacked:
		return true
	default:
		return false
	}
}

// Started tells the worker that the handling has begun; MaxProcessing counts from here. It
// returns false if the lease was lost, or has ended as far as the worker knows. The caller
// then should not begin the handling. If it has begun already, an extension in progress may
// still save the lease.
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

// Lost returns a channel that is closed when the lease is lost, or when the worker gives up
// a handling that takes too long. Another worker may handle the record from then on.
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

// Ack makes the record processed.
func (it *Item) Ack() { it.worker.settle(it, outcome{kind: acked}) }

// Abandon makes the record due again after delay; the attempt counts.
func (it *Item) Abandon(delay time.Duration, reason string) {
	it.worker.settle(it, outcome{kind: abandoned, delay: delay, reason: reason})
}

// Fail makes the record dead.
func (it *Item) Fail(reason string) {
	it.worker.settle(it, outcome{kind: failed, reason: reason})
}

// Release gives the record back; the attempt does not count.
func (it *Item) Release() { it.worker.settle(it, outcome{kind: released}) }

// Snooze makes the record due again after delay; the attempt does not count.
func (it *Item) Snooze(delay time.Duration) {
	it.worker.settle(it, outcome{kind: snoozed, delay: delay})
}

// GiveUp releases the record while its handling continues. This instance does not handle
// the record again before one of the methods above ends the handling.
func (it *Item) GiveUp() { it.worker.giveUp(it) }
