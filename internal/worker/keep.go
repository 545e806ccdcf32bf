package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// keepLoop extends leases at a third of their time, so that two attempts may
// fail before one is lost.
func (w *Worker) keepLoop(ctx context.Context) {
	ticker := time.NewTicker(max(w.cfg.Lease/3, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.releaseQueued(func(it *Item) bool { return time.Since(it.claimedAt) > w.cfg.MaxProcessing })
		if err := w.extend(ctx); err != nil {
			w.log.Error("Leases could not be extended, will try again", err, nil)
		}
		w.dropLost()
	}
}

func (w *Worker) extend(ctx context.Context) error {
	leases := w.leasesToExtend()
	if len(leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Lease)
	defer cancel()
	begin := time.Now()
	standing, err := w.cfg.Queue.Extend(ctx, w.cfg.Lease, leases)
	if err != nil {
		return err
	}
	w.extended(leases, standing, begin)
	return nil
}

func (w *Worker) leasesToExtend() []outmill.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var leases []outmill.Lease
	now := time.Now()
	for _, it := range w.items {
		if it.until.Sub(now) > w.cfg.Lease*2/3 || w.overdue(it, now) {
			continue
		}
		leases = append(leases, it.Record.Lease())
	}
	return leases
}

// overdue: a handling that takes longer than MaxProcessing is taken for stuck.
func (w *Worker) overdue(it *Item, now time.Time) bool {
	return it.state == taken && now.Sub(it.startedAt) > w.cfg.MaxProcessing
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
		if it == nil || it.Record.Claims != lease.Claim {
			continue
		}
		if _, ok := stands[lease]; ok {
			it.Clock.Set(it.Clock.Until().Add(begin.Add(w.cfg.Lease).Sub(it.until)))
			it.until = begin.Add(w.cfg.Lease)
			continue
		}
		// Another worker has it, or a flush has just stored its outcome.
		if it.state != settled {
			w.loseLocked(it, "the record was claimed by another worker, or removed")
		}
	}
}

// dropLost gives up items whose lease has ended by this process's clock: the
// store could not be reached, or the handling takes too long.
func (w *Worker) dropLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, it := range w.items {
		if it.state != settled && now.After(it.until) {
			w.loseLocked(it, "the lease ended")
		}
	}
}

func (w *Worker) loseLocked(it *Item, why string) {
	w.log.Error("Lease lost; the record may be delivered to another worker", nil, watermill.LogFields{
		"work_item_id": it.Record.ID.String(),
		"message_uuid": it.Record.MessageID,
		"topic":        it.Record.Topic,
		"reason":       why,
	})
	if it.state == queued {
		w.ready = deleteItem(w.ready, it)
		w.cfg.Running.leave(it.Record.ID)
	}
	w.giveBackKey(it)
	w.removeLocked(it)
	close(it.lost)
	signal(w.roomSignal)
}

func deleteItem(items []*Item, it *Item) []*Item {
	for i, other := range items {
		if other == it {
			return append(items[:i], items[i+1:]...)
		}
	}
	return items
}
