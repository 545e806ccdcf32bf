package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// txMargin is the time by which a lease outlasts the longest transaction, because the lease
// is not extended while the transaction is open.
const txMargin = 15 * time.Second

// inTx is the worker's state for acks in the transactions of handlers.
type inTx struct {
	// acker is nil if the store is no TxAcker.
	acker storekit.TxAcker
	// transactor tells the store's time limit of a transaction. A store that is made of several
	// changes it when a store of another kind joins.
	transactor storekit.Transactor
	// wanted says that a handler has acked in its transaction, so that others probably will.
	// The worker's mutex guards it.
	wanted bool
}

func newInTx(queue outmill.Queue) *inTx {
	acker, ok := outmill.As[storekit.TxAcker](queue)
	transactor, transacts := outmill.As[storekit.Transactor](queue)
	if !ok || !transacts {
		return &inTx{}
	}
	return &inTx{acker: acker, transactor: transactor}
}

// limit returns the store's time limit of a transaction; 0 is none.
func (x *inTx) limit() time.Duration {
	if x.transactor == nil {
		return 0
	}
	return x.transactor.TxLimit()
}

// lease returns the duration of a lease for a transaction, which ends with ctx or at the
// store's limit.
func (x *inTx) lease(ctx context.Context, usual time.Duration) time.Duration {
	longest := x.limit()
	if longest == 0 {
		return usual
	}
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline))
	}
	return max(usual, longest+txMargin)
}

// Acker returns the store's TxAcker, or nil. See storekit.TxHandling.
func (it *Item) Acker() storekit.TxAcker { return it.worker.inTx.acker }

// Hold prepares the lease for an ack in a transaction. See storekit.TxHandling.
func (it *Item) Hold(ctx context.Context) error {
	ready, err := it.beginTx()
	if ready || err != nil {
		return err
	}
	w := it.worker
	if w.inTx.limit() == 0 {
		holding := &w.sourceOf(it.lease.Store).holding
		holding.Lock()
		defer holding.Unlock()
	}
	items := w.toHold(it)
	if len(items) == 0 {
		return nil
	}
	leases := make([]outmill.Lease, len(items))
	for i, other := range items {
		leases[i] = other.lease
	}
	lease, begin := w.inTx.lease(ctx, w.cfg.Lease), time.Now()
	var held []outmill.Lease
	hold := func() (err error) {
		held, err = w.inTx.acker.HoldForTx(ctx, lease, leases)
		return err
	}
	src := w.sourceOf(it.lease.Store)
	err = w.timed(src, nil, hold)
	for errors.Is(err, storekit.ErrOwnWriter) && ctx.Err() == nil {
		it.Waits()
		begin = time.Now()
		err = w.timed(src, nil, hold)
	}
	if isOfOthers(err, it.lease) {
		err = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		it.txOpen = false
		return err
	case !slices.Contains(held, it.lease):
		it.txOpen = false
		if it.state == taken {
			w.loseLocked(it, "the record was claimed by another worker, or removed")
			w.changeOwner()
		}
		return storekit.ErrLeaseLost
	}
	valid := setOf(held)
	for _, other := range items {
		if valid[other.lease] {
			other.held = true
			other.endsAt(begin, lease)
		}
	}
	return nil
}

// isOfOthers reports whether the error is one of other stores than the lease's.
func isOfOthers(err error, lease outmill.Lease) bool {
	var partial *storekit.PartialError
	return errors.As(err, &partial) && partial.Of(lease.Store) == nil
}

// toHold returns the items to hold together with one that a handler has: if the store has no
// limit, all that are not held yet. It returns none if another call has held the item.
func (w *Worker) toHold(it *Item) []*Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inTx.limit() > 0 {
		return []*Item{it}
	}
	if it.held {
		return nil
	}
	items := []*Item{it}
	for _, other := range w.items {
		wants := !other.held && !other.successor && (other.state == queued || other.state == taken)
		if wants && other != it && other.lease.Store == it.lease.Store {
			items = append(items, other)
		}
	}
	return items
}

// beginTx records that a transaction begins, and reports whether the lease is ready for it.
func (it *Item) beginTx() (ready bool, err error) {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state != taken || it.successor {
		return false, storekit.ErrLeaseLost
	}
	w.inTx.wanted = true
	limited := w.inTx.limit() > 0
	it.txOpen = limited
	return it.held && !limited, nil
}

// endsAt sets the end of a lease that was requested at begin.
func (it *Item) endsAt(begin time.Time, lease time.Duration) {
	it.Clock.Set(it.Clock.Until().Add(begin.Add(lease).Sub(it.until)))
	it.until = begin.Add(lease)
}

// AckInTx acks the record in the transaction of ctx. See storekit.TxHandling.
func (it *Item) AckInTx(ctx context.Context) error {
	w := it.worker
	w.mu.Lock()
	lost := it.state != taken
	it.ackingInTx = !lost
	w.mu.Unlock()
	if lost {
		return storekit.ErrLeaseLost
	}
	return w.inTx.acker.AckInTx(ctx, w.cfg.Name, []outmill.Lease{it.lease})
}

// acksInTx reports whether a transaction has acked the record, or is about to: then it decides whether the
// lease still counts.
func (it *Item) acksInTx() bool { return it.ackingInTx || it.ackedInTx }

// Ended records that the transaction has ended. See storekit.TxHandling.
func (it *Item) Ended(acked bool) {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.txOpen, it.ackingInTx = false, false
	it.ackedInTx = acked
}

// holdAhead holds all records of a claim in one call, if handlers ack in their
// transactions. With a time limit of transactions, each record is held when its handler
// begins, because the lease must outlast the transaction. Records that could not be held
// here are held then, too.
func (w *Worker) holdAhead(claiming, claim context.Context, records []*outmill.Record) map[outmill.Lease]bool {
	w.mu.Lock()
	wanted := w.inTx.wanted && w.inTx.limit() == 0
	w.mu.Unlock()
	if !wanted || len(records) == 0 {
		return nil
	}
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	// They have been claimed just now, so their ends may stay.
	return setOf(w.holdInTime(claiming, claim, leases))
}

func setOf(leases []outmill.Lease) map[outmill.Lease]bool {
	set := make(map[outmill.Lease]bool, len(leases))
	for _, l := range leases {
		set[l] = true
	}
	return set
}

// ack stores acks. For records that were acked in transactions only AckedInTx is left to
// call.
func (w *Worker) ack(ctx context.Context, batch []outcome) error {
	w.mu.Lock()
	var leases []outmill.Lease
	var committed []*outmill.Record
	for _, o := range batch {
		if o.item.ackedInTx {
			committed = append(committed, o.item.Record)
		} else {
			leases = append(leases, o.lease())
		}
	}
	w.mu.Unlock()
	failed := storekit.PartialError{Failed: map[string]error{}}
	if len(committed) > 0 {
		if err := failed.Add(w.inTx.acker.AckedInTx(ctx, committed)); err != nil {
			return err
		}
	}
	if len(leases) > 0 {
		if err := failed.Add(w.cfg.Queue.Ack(ctx, w.cfg.Name, leases)); err != nil {
			return err
		}
	}
	return failed.OrNil()
}
