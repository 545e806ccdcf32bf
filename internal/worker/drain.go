package worker

import (
	"context"
	"time"

	"github.com/outmill/outmill"
)

// Drain returns when all due records have been settled: a claim that began after the call,
// while no item was in flight, has found no record. It returns the error of a claim that
// fails during the drain, and ErrClosed if the worker stops. If no feed is open any more,
// no record is due.
func (w *Worker) Drain(ctx context.Context) error {
	w.mu.Lock()
	// The first of the two rounds may be of a claim that began before the call.
	target := w.rounds + 2
	w.mu.Unlock()
	for {
		w.mu.Lock()
		current, empty, err := w.rounds >= target, w.lastEmpty, w.lastErr
		idle, next := w.held() == 0, w.roundDone
		unread := len(w.feeds) == 0 && len(w.claiming) == 0
		w.mu.Unlock()
		if current && (empty || err != nil) {
			return err
		}
		if idle && unread {
			return nil
		}
		if idle {
			w.Poke()
		}
		select {
		case <-next:
		case <-w.stopped:
			return outmill.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(firstPoll):
		}
	}
}
