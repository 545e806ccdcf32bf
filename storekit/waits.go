package storekit

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Waits are the pauses between attempts. Each is twice the one before, until the
// longest, and is drawn evenly from half of that to one and a half times it, so that
// those who failed together do not come back together. Waits are for one goroutine at
// a time.
type Waits struct {
	backoff *backoff.ExponentialBackOff
	longest time.Duration
}

// NewWaits returns pauses that begin with first and are never over longest.
func NewWaits(first, longest time.Duration) *Waits {
	return &Waits{longest: longest, backoff: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(first, longest)),
		backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0),
	)}
}

// Next returns the next pause.
func (w *Waits) Next() time.Duration { return min(w.backoff.NextBackOff(), w.longest) }

// Wait pauses, or returns the error of ctx when that ends.
func (w *Waits) Wait(ctx context.Context) error { return Pause(ctx, w.Next()) }

// Reset begins with the first pause again.
func (w *Waits) Reset() { w.backoff.Reset() }

// Pause waits for d, or until ctx ends, and then returns its error.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
