package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// txMargin is how much longer than the longest transaction a lease lasts that is not
// extended while its transaction is open.
const txMargin = 15 * time.Second

// inTx is what the worker knows of acks in the transactions of handlers.
type inTx struct {
	// acker is nil where the store has none.
	acker storekit.TxAcker
	// limit is the store's limit of a transaction; 0 is none.
	limit time.Duration
	// wanted: a handler has acked in its transaction, so others will. Guarded by the
	// worker's mutex.
	wanted bool
	// holding is one call that holds what many handlers want.
	holding sync.Mutex
}

func newInTx(queue outmill.Queue) *inTx {
	acker, ok := outmill.As[storekit.TxAcker](queue)
	transactor, transacts := outmill.As[storekit.Transactor](queue)
	if !ok || !transacts {
		return &inTx{}
	}
	return &inTx{acker: acker, limit: transactor.TxLimit()}
}

// lease is how long a lease lasts that is held for a transaction, which ends with ctx or at
// the store's limit.
func (x *inTx) lease(ctx context.Context, usual time.Duration) time.Duration {
	if x.limit == 0 {
		return usual
	}
	longest := x.limit
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline))
	}
	return max(usual, longest+txMargin)
}

// Acker is the store's, nil where it has none. See storekit.TxHandling.
func (it *Item) Acker() storekit.TxAcker { return it.worker.inTx.acker }

// Hold makes the lease ready for an ack in a transaction. See storekit.TxHandling.
func (it *Item) Hold(ctx context.Context) error {
	ready, err := it.beginTx()
	if ready || err != nil {
		return err
	}
	w := it.worker
	if w.inTx.limit == 0 {
		w.inTx.holding.Lock()
		defer w.inTx.holding.Unlock()
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
	held, err := w.inTx.acker.HoldForTx(ctx, lease, leases)
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
			w.goOnAnew()
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

// toHold are the items that are held together with one that a handler has: all that are not
// held yet, where the store has no limit. It is none where another call has held the item.
func (w *Worker) toHold(it *Item) []*Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inTx.limit > 0 {
		return []*Item{it}
	}
	if it.held {
		return nil
	}
	items := []*Item{it}
	for _, other := range w.items {
		if other != it && !other.held && !other.heir && (other.state == queued || other.state == taken) {
			items = append(items, other)
		}
	}
	return items
}

// beginTx notes that a transaction begins, and reports whether the lease is ready for it.
func (it *Item) beginTx() (ready bool, err error) {
	w := it.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if it.state != taken || it.heir {
		return false, storekit.ErrLeaseLost
	}
	w.inTx.wanted = true
	it.txOpen = w.inTx.limit > 0
	return it.held && w.inTx.limit == 0, nil
}

// endsAt moves the end of the lease, which was asked for at begin.
func (it *Item) endsAt(begin time.Time, lease time.Duration) {
	it.Clock.Set(it.Clock.Until().Add(begin.Add(lease).Sub(it.until)))
	it.until = begin.Add(lease)
}

// AckInTx acks the record in the transaction of ctx. See storekit.TxHandling.
func (it *Item) AckInTx(ctx context.Context) error {
	w := it.worker
	w.mu.Lock()
	lost := it.state != taken
	w.mu.Unlock()
	if lost {
		return storekit.ErrLeaseLost
	}
	return w.inTx.acker.AckInTx(ctx, w.cfg.Name, []outmill.Lease{it.lease})
}

// Ended says that the transaction has ended. See storekit.TxHandling.
func (it *Item) Ended(acked bool) {
	it.worker.mu.Lock()
	defer it.worker.mu.Unlock()
	it.txOpen = false
	it.ackedInTx = acked
}

// holdAhead holds what a claim has brought, in one call for all, where handlers ack in
// their transactions. A store with a limit holds each when its handler begins, because the
// lease must outlast the transaction. What cannot be held here is held then, too.
func (w *Worker) holdAhead(ctx context.Context, records []*outmill.Record) map[outmill.Lease]bool {
	w.mu.Lock()
	wanted := w.inTx.wanted && w.inTx.limit == 0
	w.mu.Unlock()
	if !wanted || len(records) == 0 {
		return nil
	}
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	// They have been claimed just now, so their ends may stay.
	held, err := w.inTx.acker.HoldForTx(ctx, 0, leases)
	if err != nil {
		return nil
	}
	return setOf(held)
}

func setOf(leases []outmill.Lease) map[outmill.Lease]bool {
	set := make(map[outmill.Lease]bool, len(leases))
	for _, l := range leases {
		set[l] = true
	}
	return set
}

// ack stores acks: of what was acked in transactions only what is left to do.
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
	if len(committed) > 0 {
		if err := w.inTx.acker.AckedInTx(ctx, committed); err != nil {
			return err
		}
	}
	if len(leases) == 0 {
		return nil
	}
	return w.cfg.Queue.Ack(ctx, w.cfg.Name, leases)
}
