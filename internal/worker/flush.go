package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// settleLoop has outcomes stored until ctx ends.
func (w *Worker) settleLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.settleSignal:
			w.gather(ctx)
		}
		w.dispatch(ctx)
	}
}

// gather waits for more outcomes, until all items are settled, a batch is full, or
// FlushInterval has passed.
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
	return w.closing || len(w.outcomes)+w.ackedN >= min(w.usual(), w.held()-w.flushing)
}

// flush stores outcomes of a source, those of one kind in one call.
func (w *Worker) flush(ctx context.Context, s *source, batch []outcome, late *stuck) {
	slices.SortStableFunc(batch, func(a, b outcome) int { return int(a.kind) - int(b.kind) })
	for len(batch) > 0 {
		n := ofOneKind(batch)
		if left, err := w.tryToStore(ctx, s, batch[:n]); err != nil {
			late.add(left, err)
		}
		batch = batch[n:]
	}
}

// flushBatches stores the acks of batches in one call.
func (w *Worker) flushBatches(ctx context.Context, s *source, batches []*Batch, late *stuck) {
	if len(batches) == 0 {
		return
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := w.cfg.Queue.Ack(bounded, w.cfg.Name, leasesOf(batches))
	w.noteOf(ctx, s, storekit.CallSettle, acked.String(), began, err)
	if err != nil {
		late.add(w.ackedItems(batches), err)
		return
	}
	s.answers.Add(1)
	w.forgetBatches(batches)
	w.heedPauses()
}

// ofOneKind returns the number of outcomes at the beginning that have the same kind.
func ofOneKind(batch []outcome) int {
	if n := slices.IndexFunc(batch, func(o outcome) bool { return o.kind != batch[0].kind }); n >= 0 {
		return n
	}
	return len(batch)
}

// tryToStore stores outcomes of one kind, and removes their items. If some of several stores
// failed, it returns the outcomes that are left to store in these.
func (w *Worker) tryToStore(ctx context.Context, s *source, batch []outcome) (left []outcome, err error) {
	began := time.Now()
	err = w.timed(s, batch, func() error { return w.store(ctx, batch) })
	w.noteOf(ctx, s, storekit.CallSettle, batch[0].kind.String(), began, err)
	done := batch
	if err != nil {
		done, left = split(batch, err)
	}
	if len(done) > 0 {
		s.answers.Add(1)
		w.tellDead(w.forget(done))
		w.heedPauses()
	}
	return left, err
}

// split tells what was stored from what was not.
func split(batch []outcome, err error) (done, left []outcome) {
	var partial *storekit.PartialError
	if !errors.As(err, &partial) {
		return nil, batch
	}
	for _, o := range batch {
		if partial.Of(o.item.lease.Store) != nil {
			left = append(left, o)
		} else {
			done = append(done, o)
		}
	}
	return done, left
}

// isClosed tells whether the store was closed, and not only one of several.
func isClosed(err error) bool {
	var partial *storekit.PartialError
	return errors.Is(err, outmill.ErrClosed) && !errors.As(err, &partial)
}

// store writes outcomes of one kind in one call.
func (w *Worker) store(ctx context.Context, batch []outcome) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	queue := w.cfg.Queue
	switch batch[0].kind {
	case abandoned:
		return queue.Abandon(ctx, convert(batch, w.settlement))
	case failed:
		return queue.Fail(ctx, convert(batch, w.settlement))
	case acked:
		return queue.Ack(ctx, w.cfg.Name, convert(batch, outcome.lease))
	case snoozed:
		return queue.Snooze(ctx, convert(batch, w.settlement))
	case released:
		return queue.Release(ctx, convert(batch, outcome.lease))
	}
	return nil
}

func (w *Worker) settlement(o outcome) outmill.Settlement {
	return outmill.Settlement{
		Lease: o.lease(), Delay: o.delay, Err: o.reason,
		Park: w.cfg.KeyPolicy == outmill.KeyPark && o.item.key != "", Unhandled: o.unhandled,
	}
}

func convert[O, T any](batch []O, f func(O) T) []T {
	list := make([]T, len(batch))
	for i, o := range batch {
		list[i] = f(o)
	}
	return list
}

// forget frees the budget of items whose outcome is stored, or can no longer be stored. It
// returns the outcomes that made records dead, except those of leases that a newer lease of
// this process has replaced.
func (w *Worker) forget(batch []outcome) []outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteAge(batch, time.Now())
	latest := batch[:0:0]
	for _, o := range batch {
		w.removeLocked(o.item)
		if o.givesBack(w.cfg.KeyPolicy) {
			w.source(o.item.lease.Store).giveBacks--
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
	w.lookForFreed(batch)
	return latest
}

// lookForFreed makes the next claim cover the feeds in which the outcomes may have made
// records claimable.
func (w *Worker) lookForFreed(batch []outcome) {
	now := time.Now()
	for _, o := range batch {
		if o.maySetFree() {
			w.lookAgain(o.item.feed, now)
		}
	}
}

// lookAgain makes the next claim cover the feed.
func (w *Worker) lookAgain(f *Feed, now time.Time) {
	f.look.soon(now)
	f.look.goOn()
	signal(w.poke)
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
			InStore(w.log, o.item.Record.Store).Error("OnDead panicked", fmt.Errorf("%v", p),
				watermill.LogFields{"work_item_id": o.item.lease.ID.String()})
		}
	}()
	w.cfg.OnDead(o.item.whole(), o.reason)
}
