package storekit

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/outmill/outmill"
)

// Verdict is what a RetryPolicy decides about a record whose handling did not
// succeed: exactly one of Dead, Snooze, or due again after Delay with the
// attempt counted.
type Verdict struct {
	Dead   bool
	Snooze bool
	Delay  time.Duration
}

// Decide judges a handling that ended with err. attempts is how many were
// abandoned before it (Record.Attempts).
func Decide(p outmill.RetryPolicy, attempts int, err error) Verdict {
	if delay, ok := outmill.SnoozeDelay(err); ok {
		return Verdict{Snooze: true, Delay: delay}
	}
	failures := attempts + 1
	if outmill.IsPermanent(err) || p.Exhausted(failures) {
		return Verdict{Dead: true}
	}
	if delay, ok := outmill.RetryAfterDelay(err); ok {
		return Verdict{Delay: delay}
	}
	delay := p.Delay(failures)
	if delay == backoff.Stop {
		return Verdict{Dead: true}
	}
	return Verdict{Delay: delay}
}
