package janitor

import (
	"github.com/outmill/outmill"
)

// FailingCalls returns the kinds of work of Run that have failed since they last succeeded, the one that has
// failed longest first. It returns none while Run does not run, because RunOnce returns its errors. A call may
// have failed for a moment only: FailingCall.Since tells.
func (j *Janitor) FailingCalls() []outmill.FailingCall {
	j.mu.Lock()
	runs := j.repeats > 0
	j.mu.Unlock()
	if !runs {
		return nil
	}
	return j.calls.FailingCalls()
}

// repeat notes that Run runs until end is called.
func (j *Janitor) repeat() (end func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.repeats++
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.repeats--; j.repeats == 0 {
			j.calls.Forget()
		}
	}
}
