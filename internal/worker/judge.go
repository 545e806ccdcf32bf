package worker

import (
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// judge asks the policy. The error is a handler's and the backoff a user's:
// where one of them panics (a typed nil does), the record is retried by the
// default backoff, and the process lives.
func (w *Worker) judge(attempts int, err error) (verdict storekit.Verdict, reason string) {
	// fmt survives an Error method that panics.
	reason = fmt.Sprint(err)
	defer func() {
		if p := recover(); p != nil {
			fallback := outmill.RetryPolicy{MaxAttempts: w.cfg.Retry.MaxAttempts}
			verdict = storekit.Decide(fallback, attempts, errors.New(reason))
		}
	}()
	return storekit.Decide(w.cfg.Retry, attempts, err), reason
}

// Explicit reports whether a handler's error says itself what is to become of the
// record: outmill.Permanent or Snooze.
func Explicit(err error) (explicit bool) {
	// A typed nil may panic.
	defer func() { _ = recover() }()
	_, snoozed := outmill.SnoozeDelay(err)
	return snoozed || outmill.IsPermanent(err)
}
