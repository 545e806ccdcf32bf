package storekit

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/outmill/outmill"
)

// Verdict is the decision of a RetryPolicy about a record whose handling did not succeed.
// The record is either dead, or snoozed, or due again after Delay with the attempt counted.
type Verdict struct {
	Dead   bool
	Snooze bool
	Delay  time.Duration
}

// Decide returns the verdict on a handling that ended with err. attempts is the number of
// handlings that were abandoned before it (Record.Attempts). An error with ErrStoreAway in its
// chain counts no attempt.
func Decide(p outmill.RetryPolicy, attempts int, err error) Verdict {
	if delay, ok := outmill.SnoozeDelay(err); ok {
		return Verdict{Snooze: true, Delay: delay}
	}
	failures := attempts + 1
	if !outmill.IsPermanent(err) && errors.Is(err, ErrStoreAway) {
		return Verdict{Snooze: true, Delay: pauseOfAway()}
	}
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
