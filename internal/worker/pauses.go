package worker

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pauses are the waits between attempts while the store fails.
type pauses struct {
	backoff *backoff.ExponentialBackOff
	longest time.Duration
}

func newPauses(first, longest time.Duration) *pauses {
	return &pauses{
		backoff: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(min(first, longest)),
			backoff.WithMaxInterval(longest),
			backoff.WithMaxElapsedTime(0),
		),
		longest: longest,
	}
}

// next is random around the backoff's wait, but not longer than the longest.
func (p *pauses) next() time.Duration { return min(p.backoff.NextBackOff(), p.longest) }

func (p *pauses) reset() { p.backoff.Reset() }
