package worker

import (
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// judge applies the retry policy to an error. The handler's error or the user's backoff may
// panic (a typed nil does). Then the default backoff applies, and the process survives.
func (w *Worker) judge(attempts int, err error) (verdict storekit.Verdict, reason string) {
	// fmt recovers from an Error method that panics.
	reason = fmt.Sprint(err)
	defer func() {
		if p := recover(); p != nil {
			fallback := outmill.RetryPolicy{MaxAttempts: w.cfg.Retry.MaxAttempts}
			verdict = storekit.Decide(fallback, attempts, errors.New(reason))
		}
	}()
	return storekit.Decide(w.cfg.Retry, attempts, err), reason
}

// Explicit reports whether a handler's error decides the outcome of the record itself:
// outmill.Permanent or Snooze.
func Explicit(err error) (explicit bool) {
	// A typed nil may panic.
	defer func() { _ = recover() }()
	_, snoozed := outmill.SnoozeDelay(err)
	return snoozed || outmill.IsPermanent(err)
}
