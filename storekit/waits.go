package storekit

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Waits are the pauses between attempts. The pause doubles each time, up to the longest,
// and is drawn uniformly from half to one and a half of its value, so that callers that
// failed together do not try again together. Use Waits from one goroutine at a time.
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

// Wait pauses, or returns the error of ctx when ctx ends.
func (w *Waits) Wait(ctx context.Context) error { return Pause(ctx, w.Next()) }

// Reset begins with the first pause again.
func (w *Waits) Reset() { w.backoff.Reset() }

// Pause waits for d. If ctx ends first, it returns the error of ctx.
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
