package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// watch is the time between two checks of the leases. Leases are extended when two thirds
// of their time or less are left, so two attempts may fail before a lease is lost.
func (w *Worker) watch() time.Duration { return max(w.cfg.Lease/6, time.Millisecond) }

func (w *Worker) keepLoop(ctx context.Context) {
	ticker := time.NewTicker(w.watch())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.breakUpOld()
		w.giveUpLate()
		w.extendAll(ctx)
		w.dropLost()
	}
}

// extendFrom is how much of a lease is left when it is extended.
func (w *Worker) extendFrom() time.Duration { return w.cfg.Lease * 2 / 3 }

// extend extends leases of one source.
func (w *Worker) extend(ctx context.Context, leases []outmill.Lease) error {
	s := w.sourceOf(leases[0].Store)
	// With a third of the lease, there is time for another attempt after a call that hangs.
	bounded, cancel := context.WithTimeout(ctx, w.cfg.Lease/3)
	defer cancel()
	begin := time.Now()
	standing, err := w.extendBehindOwn(bounded, leases)
	w.noteOf(ctx, s, storekit.CallExtend, "", begin, err)
	var partial *storekit.PartialError
	switch {
	case errors.As(err, &partial):
		leases = slices.DeleteFunc(leases, func(l outmill.Lease) bool { return partial.Of(l.Store) != nil })
	case errors.Is(err, outmill.ErrClosed):
		w.loseAll()
		return nil
	case err != nil:
		return err
	}
	if len(leases) > 0 {
		s.answers.Add(1)
		w.extended(leases, standing, begin)
		w.heedPauses()
	}
	return err
}

func (w *Worker) leasesToExtend() []outmill.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var leases []outmill.Lease
	now := time.Now()
	for _, it := range w.items {
		if it.until.Sub(now) <= w.extendFrom() {
			leases = append(leases, it.lease)
		}
	}
	return leases
}

func (w *Worker) extended(asked, standing []outmill.Lease, begin time.Time) {
	stands := make(map[outmill.Lease]struct{}, len(standing))
	for _, lease := range standing {
		stands[lease] = struct{}{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lease := range asked {
		it := w.items[lease.ID]
		if it == nil || it.lease != lease {
			continue
		}
		if _, ok := stands[lease]; ok {
			it.endsAt(begin, w.cfg.Lease)
			continue
		}
		// Another worker has claimed the record, or a flush has just stored its outcome. While a
		// transaction commits, its handler's context must not end.
		if it.state != settled && !it.committing {
			w.loseLocked(it, "the record was claimed by another worker, or removed")
			w.changeOwner()
		}
	}
}

// dropLost gives up items whose lease has ended by this process's clock, because the store
// could not be reached. It releases items that were not taken yet before their leases end,
// so that no expiry counts.
func (w *Worker) dropLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, it := range w.items {
		if w.source(it.lease.Store).extending {
			// The call that is under way may still save the lease.
			continue
		}
		switch left := it.until.Sub(now); {
		case it.state == queued && left < w.watch():
			w.settleLocked(it, outcome{kind: released})
		case it.state == taken && left <= 0 && !it.committing:
			w.loseLocked(it, "the lease ended")
			w.changeOwner()
		}
	}
}

// loseAll gives up all items, because a closed store can neither extend nor settle leases.
func (w *Worker) loseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakUp()
	for _, it := range w.items {
		if it.state != settled {
			w.loseLocked(it, "the store was closed")
		}
	}
}

// changeOwner makes the next claim use a new owner, after a lease was lost. In the store
// the lease may still be valid for a while, because the worker counts it from before the
// request, and because the answer to an extension may be lost. As long as it is valid, the
// store would return the key's later records to its owner.
func (w *Worker) changeOwner() {
	if w.ordered() {
		w.owner = outmill.NewOwnerToken()
	}
}

func (w *Worker) loseLocked(it *Item, why string) {
	if it.state == taken {
		fields := fieldsOf(it)
		fields["reason"] = why
		InStore(w.log, it.Record.Store).Error("Lease lost; the record may be delivered to another worker", nil, fields)
	}
	if it.state != settled {
		w.giveBackKey(it)
	}
	w.removeLocked(it)
	if it.handling != nil {
		w.cfg.Running.leave(it.handling, it)
	}
	it.sayLost()
}

func fieldsOf(it *Item) watermill.LogFields {
	return watermill.LogFields{
		"work_item_id": it.lease.ID.String(),
		"message_uuid": it.Record.MessageID,
		"topic":        it.Record.Topic,
	}
}
