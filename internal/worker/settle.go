package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/cenkalti/backoff/v4"

	"github.com/outmill/outmill"
)

type outcomeKind int

// The order of the kinds is the order in which a flush stores them: a failed
// record must wait in the store before the later ones of its key are given
// back.
const (
	abandoned outcomeKind = iota
	failed
	acked
	snoozed
	released
)

type outcome struct {
	kind   outcomeKind
	item   *Item
	delay  time.Duration
	reason string
	// foreign: the record is registered as running by another item.
	foreign bool
}

// givesBack reports whether the record may come again before later records of
// its key.
func (o outcome) givesBack(policy outmill.KeyPolicy) bool {
	switch o.kind {
	case abandoned, snoozed:
		return policy != outmill.Skip
	case failed:
		return policy == outmill.Park
	case released:
		return true
	case acked:
	}
	return false
}

// settle queues the outcome; only the first for an item counts.
func (w *Worker) settle(it *Item, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settleLocked(it, o)
	signal(w.settleSignal)
}

func (w *Worker) settleLocked(it *Item, o outcome) {
	switch it.state {
	case settled:
		return
	case gone:
		// The lease was lost; that the handling has ended is all that matters.
		w.cfg.Running.leave(it.Record.ID)
		return
	case queued:
		w.ready = slices.DeleteFunc(w.ready, func(other *Item) bool { return other == it })
	case taken:
	}
	it.state = settled
	o.item = it
	w.outcomes = append(w.outcomes, o)
	if o.givesBack(w.cfg.KeyPolicy) {
		w.giveBacks++
		w.giveBackKey(it)
		return
	}
	w.nextOfKey(it)
}

// giveBackKey returns the later records of the key that nobody has taken yet.
func (w *Worker) giveBackKey(it *Item) {
	if it.key == "" {
		return
	}
	w.tainted[it.key] = struct{}{}
	later := w.removeFromKey(it)
	for _, other := range later {
		if other.state == queued {
			w.settleLocked(other, outcome{kind: released})
		}
	}
}

// nextOfKey makes the next record of the key ready.
func (w *Worker) nextOfKey(it *Item) {
	if it.key == "" {
		return
	}
	wasFirst := len(w.keys[it.key]) > 0 && w.keys[it.key][0] == it
	later := w.removeFromKey(it)
	if wasFirst && len(later) > 0 && later[0].state == queued && !w.cfg.Pipelined {
		w.ready = append(w.ready, later[0])
		signal(w.readySignal)
	}
}

// removeFromKey takes the item out of its key's sequence and returns those
// behind it.
func (w *Worker) removeFromKey(it *Item) []*Item {
	sequence := w.keys[it.key]
	i := slices.Index(sequence, it)
	if i < 0 {
		return nil
	}
	later := slices.Clone(sequence[i+1:])
	if sequence = slices.Delete(sequence, i, i+1); len(sequence) == 0 {
		delete(w.keys, it.key)
	} else {
		w.keys[it.key] = sequence
	}
	return later
}

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
	return len(w.outcomes) >= w.cfg.BatchSize || len(w.outcomes) == len(w.items)
}

// flush stores all outcomes, and tries again until it succeeds or the worker
// ends: as long as the store is away, nothing is claimed either.
func (w *Worker) flush(ctx context.Context) {
	w.mu.Lock()
	batch := w.outcomes
	w.outcomes = nil
	w.flushing += len(batch)
	w.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	slices.SortStableFunc(batch, func(a, b outcome) int { return int(a.kind) - int(b.kind) })
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(min(5*time.Second, w.cfg.MaxErrorBackoff)),
		backoff.WithMaxElapsedTime(0),
	)
	for len(batch) > 0 {
		n := slices.IndexFunc(batch, func(o outcome) bool { return o.kind != batch[0].kind })
		if n < 0 {
			n = len(batch)
		}
		if err := w.store(ctx, batch[:n]); err != nil {
			if ctx.Err() != nil || errors.Is(err, outmill.ErrClosed) {
				w.log.Error("Outcomes could not be stored; the records come again when their leases end", err, watermill.LogFields{"count": len(batch)})
				w.forget(batch)
				return
			}
			pause := retry.NextBackOff()
			w.log.Error("Outcomes could not be stored, will try again", err, watermill.LogFields{"count": len(batch), "after": pause.String()})
			w.wait(ctx, time.After(pause), nil, nil)
			continue
		}
		w.forget(batch[:n])
		w.tellDead(batch[:n])
		batch = batch[n:]
	}
}

// store writes outcomes of one kind in one call.
func (w *Worker) store(ctx context.Context, batch []outcome) error {
	ctx, cancel := detached(ctx)
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
		return queue.Ack(ctx, convert(batch, outcome.lease))
	case snoozed:
		return queue.Snooze(ctx, convert(batch, func(o outcome) outmill.Snoozing {
			return outmill.Snoozing{Lease: o.lease(), Delay: o.delay}
		}))
	case released:
		return queue.Release(ctx, convert(batch, outcome.lease))
	}
	return nil
}

func (o outcome) lease() outmill.Lease { return o.item.Record.Lease() }

func convert[T any](batch []outcome, f func(outcome) T) []T {
	list := make([]T, len(batch))
	for i, o := range batch {
		list[i] = f(o)
	}
	return list
}

// forget frees the room of items whose outcome is stored, or can no longer be.
func (w *Worker) forget(batch []outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range batch {
		w.removeLocked(o.item)
		if o.givesBack(w.cfg.KeyPolicy) {
			w.giveBacks--
		}
		if !o.foreign {
			w.cfg.Running.leave(o.item.Record.ID)
		}
	}
	w.flushing -= len(batch)
	w.settledN += len(batch)
	signal(w.roomSignal)
	signal(w.readySignal)
	signal(w.flushedSignal)
	if slices.ContainsFunc(batch, w.maySetFree) {
		signal(w.poke)
	}
}

// maySetFree reports whether the outcome may have made a record claimable.
func (w *Worker) maySetFree(o outcome) bool {
	return o.kind != acked && o.kind != failed || o.item.key != ""
}

func (w *Worker) removeLocked(it *Item) {
	it.state = gone
	if w.items[it.Record.ID] != it {
		return
	}
	delete(w.items, it.Record.ID)
	w.bytes -= it.Record.Size()
	if w.solo == it {
		w.solo = nil
	}
}

func (w *Worker) tellDead(batch []outcome) {
	if w.cfg.OnDead == nil {
		return
	}
	for _, o := range batch {
		if o.kind == failed {
			w.cfg.OnDead(o.item.Record, o.reason)
		}
	}
}

func (w *Worker) waitFlushed(ctx context.Context) error {
	for {
		w.mu.Lock()
		left := len(w.outcomes) + w.flushing
		w.mu.Unlock()
		if left == 0 {
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
