package worker

import (
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// firstDoubt is the pause of a message whose transaction may have been committed. It doubles with
// each further time in a row, up to longestCollision.
const firstDoubt = time.Second

var _ storekit.MessageLease = (*Item)(nil)

// Inbox returns the inbox of the worker's queue. See storekit.MessageLease.
func (it *Item) Inbox() roles.Inbox { return it.worker.inbox }

// Lease returns the lease of the record. See storekit.MessageLease.
func (it *Item) Lease() outmill.Lease { return it.lease }

// Waits tells the worker that the handler waits for its transaction. See storekit.MessageLease.
func (it *Item) Waits() {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.inQueue, it.inDoubt = true, false
}

// Begins tells the worker that the handler does not wait for its transaction any more;
// MaxProcessing counts from here. See storekit.MessageLease.
func (it *Item) Begins() {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.begin()
}

func (it *Item) begin() {
	if it.inQueue {
		it.inQueue, it.begunAt = false, time.Now()
	}
	it.committing = false
}

// Commits tells the worker that the handler's transaction is about to commit. A process that was
// stopped for longer than the lease must not commit what another one may have changed since. An
// extension that is under way may still save the lease. See storekit.MessageLease.
func (it *Item) Commits() error {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := time.Now().After(it.until) && !w.source(it.lease.Store).extending
	if it.state != taken || it.successor || ended {
		return outmill.ErrLeaseLost
	}
	it.committing = true
	return nil
}

// Ended tells the worker that the handler's transaction has ended. See storekit.MessageLease.
func (it *Item) Ended(err error) {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.begin()
	it.inDoubt = errors.Is(err, storekit.ErrCommitInDoubt)
}

// judgeUndecided settles an item whose handling neither succeeded nor failed, without an attempt, and
// reports whether it is one: the commit of its transaction is in doubt, or its lease was lost before
// that.
func (it *Item) judgeUndecided(err error) (verdict storekit.Verdict, is bool) {
	w := it.worker
	doubt, lost := it.undecided(err)
	switch {
	case doubt:
		verdict = storekit.Verdict{Snooze: true, Delay: it.doubted(err)}
		it.Snooze(verdict.Delay)
	case lost:
		// The store ignores it, unless the worker has the record under a newer lease.
		_, reason := w.judge(it.Record.Attempts, err)
		verdict = it.judgeRepeat(&storekit.Collision{Err: outmill.ErrLeaseLost}, storekit.Verdict{Snooze: true}, reason)
	}
	return verdict, doubt || lost
}

func (it *Item) undecided(err error) (doubt, lost bool) {
	it.worker.mu.Lock()
	doubt = it.inDoubt
	it.worker.mu.Unlock()
	// The methods of a typed nil may panic.
	defer func() { _ = recover() }()
	doubt = doubt || errors.Is(err, storekit.ErrCommitInDoubt)
	return doubt, errors.Is(err, outmill.ErrLeaseLost)
}

// doubted logs the doubt, and returns the time after which the message comes again.
func (it *Item) doubted(err error) time.Duration {
	w := it.worker
	_, reason := w.judge(it.Record.Attempts, err)
	times := w.repeats.cameBack(it.Record, true, reason, never)
	delay := longestCollision
	if times < 5 {
		delay = firstDoubt << max(times-1, 0)
	}
	fields := fieldsOf(it)
	fields["again_in"], fields["times"] = delay.String(), times
	InStore(w.log, it.Record.Store).Error("Nobody knows whether the transaction of a handler was committed; its message comes again, and "+
		"no attempt counts. If it was, the inbox finds its note then", errors.New(reason), fields)
	return delay
}

// endsAt sets the end of a lease that was requested at begin.
func (it *Item) endsAt(begin time.Time, lease time.Duration) {
	it.Clock.Set(it.Clock.Until().Add(begin.Add(lease).Sub(it.until)))
	it.until = begin.Add(lease)
}
