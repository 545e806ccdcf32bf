package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// extendBehindOwn extends leases. As long as a handler of this process has the only write lock of
// their store (SQLite's), nobody can take them, so they last until the lock is free. The call
// waits for it again at once, so that little time is left for other processes.
func (w *Worker) extendBehindOwn(ctx context.Context, leases []outmill.Lease) ([]outmill.Lease, error) {
	for {
		standing, err := w.cfg.Queue.Extend(ctx, w.cfg.Lease, leases)
		if !errors.Is(err, storekit.ErrOwnWriter) {
			return standing, err
		}
		var partial *storekit.PartialError
		several := errors.As(err, &partial)
		w.lastFor(w.cfg.Lease/2, slices.DeleteFunc(slices.Clone(leases), func(l outmill.Lease) bool {
			return several && !errors.Is(partial.Of(l.Store), storekit.ErrOwnWriter)
		}))
		if several || ctx.Err() != nil {
			return standing, err
		}
	}
}

// lastFor puts off the ends of leases, as far as the worker knows them.
func (w *Worker) lastFor(d time.Duration, leases []outmill.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(d)
	for _, lease := range leases {
		if it := w.items[lease.ID]; it != nil && it.lease == lease && it.until.Before(until) {
			it.until = until
		}
	}
}

// releaseLate gives back a record whose handler has waited too long for its transaction. The
// handler has done nothing yet, so the attempt does not count.
func (w *Worker) releaseLate(it *Item) {
	InStore(w.log, it.Record.Store).Error("A handler has waited for its transaction for MaxProcessing; the record is given back: "+
		"other handlers have the write lock or the connections of the pool", nil, fieldsOf(it))
	w.settleLocked(it, outcome{kind: released})
}
