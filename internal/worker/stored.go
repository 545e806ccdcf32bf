package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// errEnded says that the worker has ended before it stored all outcomes.
var errEnded = errors.New("the worker has ended")

// WaitStored waits until the outcomes that users had given by the time of the call are
// stored, and so are the releases of records that nobody takes, those that claims in progress
// bring included. It does not wait for outcomes that the worker has dropped, nor for later
// ones, so that a busy worker does not keep it waiting. It returns an error if ctx or the
// worker ends first.
func (w *Worker) WaitStored(ctx context.Context) error {
	if err := w.waitClaimed(ctx); err != nil {
		return err
	}
	var open []*Item
	var batches []*Batch
	w.mu.Lock()
	for _, b := range w.batches {
		if b.state == settled {
			batches = append(batches, b)
		}
	}
	for _, it := range w.items {
		if it.state == settled || it.state == taken && it.answered() {
			open = append(open, it)
		}
	}
	w.mu.Unlock()
	return w.waitStored(ctx, func() (left int) {
		for _, b := range batches {
			if b.state == gone {
				open = append(open, b.items...)
			}
		}
		batches = slices.DeleteFunc(batches, func(b *Batch) bool { return b.state == gone })
		open = slices.DeleteFunc(open, func(it *Item) bool { return it.state == gone })
		return len(open) + len(batches)
	})
}

// waitClaimed waits until the claims that are in progress have ended.
func (w *Worker) waitClaimed(ctx context.Context) error {
	for first, until := true, 0; ; first = false {
		w.mu.Lock()
		if first {
			until = w.claims
		}
		ended, next := true, w.roundDone
		for number := range w.claiming {
			ended = ended && number > until
		}
		w.mu.Unlock()
		if ended {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// allStored counts all outcomes that are not stored yet.
func (w *Worker) allStored() (left int) {
	left = len(w.outcomes) + w.ackedN + w.flushing
	for _, it := range w.items {
		if it.state == taken && it.answered() {
			left++
		}
	}
	return left
}

// waitStored waits until count, which it calls with the lock, returns 0.
func (w *Worker) waitStored(ctx context.Context, count func() (left int)) error {
	for {
		w.mu.Lock()
		left := count()
		removed := w.nextRemoval()
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		signal(w.settleSignal)
		var err error
		select {
		case <-removed:
			continue
		case <-w.restEnded:
			err = errEnded
		case <-ctx.Done():
			err = ctx.Err()
		}
		return fmt.Errorf("outmill: %d outcomes not stored; their records are due again when the leases end: %w", left, err)
	}
}

// noteRemoval ends the waits for nextRemoval.
func (w *Worker) noteRemoval() {
	if w.removed != nil {
		close(w.removed)
		w.removed = nil
	}
}

// nextRemoval returns a channel that is closed when an item is removed. The caller has the
// lock.
func (w *Worker) nextRemoval() <-chan struct{} {
	if w.removed == nil {
		w.removed = make(chan struct{})
	}
	return w.removed
}
