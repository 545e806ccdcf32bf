package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

func (w *Worker) settleLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.settleSignal:
		}
		w.gather(ctx)
		w.flush(ctx)
	}
}

// gather waits for more outcomes: until all that is in flight is settled, a
// batch is full, or the time is over.
func (w *Worker) gather(ctx context.Context) {
	if w.worthFlushing() {
		return
	}
	timeout := time.NewTimer(w.cfg.FlushInterval)
	defer timeout.Stop()
	for !w.worthFlushing() {
		select {
		case <-w.settleSignal:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) worthFlushing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing || len(w.outcomes) >= min(w.cfg.BatchSize, len(w.items))
}

// flush stores all outcomes, and tries again until it succeeds or the worker
// ends: as long as the store is away, nothing is claimed either.
func (w *Worker) flush(ctx context.Context) {
	w.mu.Lock()
	batch := w.outcomes
	w.outcomes = make([]outcome, 0, len(batch))
	w.flushing += len(batch)
	w.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	slices.SortStableFunc(batch, func(a, b outcome) int { return int(a.kind) - int(b.kind) })
	retry := newPauses(20*time.Millisecond, min(5*time.Second, w.cfg.MaxErrorBackoff))
	for len(batch) > 0 {
		n := slices.IndexFunc(batch, func(o outcome) bool { return o.kind != batch[0].kind })
		if n < 0 {
			n = len(batch)
		}
		if err := w.store(ctx, batch[:n]); err != nil {
			if ctx.Err() != nil || errors.Is(err, outmill.ErrClosed) {
				w.faults.Fault("Outcomes could not be stored; the records come again when their leases end", err, watermill.LogFields{"count": len(batch)})
				w.forget(batch)
				return
			}
			pause := retry.next()
			w.faults.Fault("Outcomes could not be stored, will try again", err, watermill.LogFields{"count": len(batch), "after": pause.String()})
			w.wait(ctx, time.After(pause), nil, nil, nil)
			continue
		}
		w.tellDead(w.forget(batch[:n]))
		batch = batch[n:]
	}
}

// store writes outcomes of one kind in one call.
func (w *Worker) store(ctx context.Context, batch []outcome) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	queue := w.cfg.Queue
	switch batch[0].kind {
	case abandoned:
		return queue.Abandon(ctx, convert(batch, func(o outcome) outmill.Abandonment {
			return outmill.Abandonment{Lease: o.lease(), Delay: o.delay, Err: o.reason}
		}))
	case failed:
		park := w.cfg.KeyPolicy == outmill.Park
		return queue.Fail(ctx, convert(batch, func(o outcome) outmill.Failure {
			return outmill.Failure{Lease: o.lease(), Err: o.reason, Park: park && o.item.key != ""}
		}))
	case acked:
		return queue.Ack(ctx, w.cfg.Name, convert(batch, outcome.lease))
	case snoozed:
		return queue.Snooze(ctx, convert(batch, func(o outcome) outmill.Snoozing {
			return outmill.Snoozing{Lease: o.lease(), Delay: o.delay}
		}))
	case released:
		return queue.Release(ctx, convert(batch, outcome.lease))
	}
	return nil
}

func convert[T any](batch []outcome, f func(outcome) T) []T {
	list := make([]T, len(batch))
	for i, o := range batch {
		list[i] = f(o)
	}
	return list
}

// forget frees the room of items whose outcome is stored, or can no longer be,
// and returns the outcomes that count: those of leases that were the latest.
func (w *Worker) forget(batch []outcome) []outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := batch[:0:0]
	for _, o := range batch {
		w.removeLocked(o.item)
		if o.givesBack(w.cfg.KeyPolicy) {
			w.giveBacks--
		}
		if h := o.item.handling; h != nil && !w.cfg.Running.leave(h, o.item) {
			continue
		}
		if o.kind == failed {
			latest = append(latest, o)
		}
		if o.kind != released {
			w.settledN++
		}
	}
	w.flushing -= len(batch)
	signal(w.roomSignal)
	signal(w.flushedSignal)
	w.lookForFreed(batch)
	return latest
}

// lookForFreed has the next claim cover the feeds of which the outcomes may have
// made records claimable.
func (w *Worker) lookForFreed(batch []outcome) {
	now := time.Now()
	freed := false
	for _, o := range batch {
		if o.maySetFree() {
			freed = true
			o.item.feed.look.soon(now)
			o.item.feed.look.notBefore = time.Time{}
		}
	}
	if freed {
		signal(w.poke)
	}
}

func (w *Worker) tellDead(batch []outcome) {
	if w.cfg.OnDead == nil {
		return
	}
	for _, o := range batch {
		w.tellOneDead(o)
	}
}

func (w *Worker) tellOneDead(o outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("OnDead panicked", fmt.Errorf("%v", p), watermill.LogFields{"work_item_id": o.item.lease.ID.String()})
		}
	}()
	w.cfg.OnDead(o.item.Record, o.reason)
}

func (w *Worker) waitFlushed(ctx context.Context) error {
	for {
		w.mu.Lock()
		left := len(w.outcomes) + w.flushing
		w.mu.Unlock()
		if left == 0 {
			// Somebody else may be waiting too.
			signal(w.flushedSignal)
			return nil
		}
		signal(w.settleSignal)
		select {
		case <-ctx.Done():
			return fmt.Errorf("outmill: %d outcomes not stored, their records come again when the leases end: %w", left, ctx.Err())
		case <-w.flushedSignal:
		}
	}
}
