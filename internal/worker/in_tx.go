package worker

import (
	"context"
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
	// transactor tells the store's limit of a transaction. A store that is made of several
	// changes it when one of another kind joins.
	transactor storekit.Transactor
	// wanted: a handler has acked in its transaction, so others will. Guarded by the
	// worker's mutex.
	wanted bool
}

func newInTx(queue outmill.Queue) inTx {
	acker, ok := outmill.As[storekit.TxAcker](queue)
	transactor, transacts := outmill.As[storekit.Transactor](queue)
	if !ok || !transacts {
		return inTx{}
	}
	return inTx{acker: acker, transactor: transactor}
}

// limit is the store's limit of a transaction; 0 is none.
func (x *inTx) limit() time.Duration {
	if x.transactor == nil {
		return 0
	}
	return x.transactor.TxLimit()
}

// lease is how long a lease lasts that is held for a transaction, which ends with ctx or at
// the store's limit.
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

// Acker is the store's, nil where it has none. See storekit.TxHandling.
func (it *Item) Acker() storekit.TxAcker { return it.worker.inTx.acker }

// Hold makes the lease ready for an ack in a transaction. See storekit.TxHandling.
func (it *Item) Hold(ctx context.Context) error {
	ready, err := it.beginTx()
	if ready || err != nil {
		return err
	}
	w := it.worker
	lease, begin := w.inTx.lease(ctx, w.cfg.Lease), time.Now()
	held, err := w.inTx.acker.HoldForTx(ctx, lease, []outmill.Lease{it.lease})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		it.txOpen = false
		return err
	case len(held) == 0:
		it.txOpen = false
		if it.state == taken {
			w.loseLocked(it, "the record was claimed by another worker, or removed")
			w.goOnAnew()
		}
		return storekit.ErrLeaseLost
	}
	it.held = true
	it.endsAt(begin, lease)
	return nil
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
	limited := w.inTx.limit() > 0
	it.txOpen = limited
	return it.held && !limited, nil
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
	wanted := w.inTx.wanted && w.inTx.limit() == 0
	w.mu.Unlock()
	if !wanted || len(records) == 0 {
		return nil
	}
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	held, err := w.inTx.acker.HoldForTx(ctx, w.cfg.Lease, leases)
	if err != nil {
		return nil
	}
	all := make(map[outmill.Lease]bool, len(held))
	for _, l := range held {
		all[l] = true
	}
	return all
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
