package forwarder

import (
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// BreakerOpen reports whether Run holds back records because the broker accepts none; it then
// tries one message at a time. It is false while Run does not forward. A pass of Once has a
// breaker of its own, which this method does not see.
func (f *Forwarder) BreakerOpen() bool {
	fl := f.currentFlow()
	if fl == nil {
		return false
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.state != closed
}

// HeldTopics returns the topics that Run holds because the broker refuses them, sorted; those
// that it is trying again are among them.
func (f *Forwarder) HeldTopics() []string {
	fl := f.currentFlow()
	if fl == nil {
		return nil
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return slices.Sorted(maps.Keys(fl.held))
}

// ClaimedAt is when Run last claimed from the store without an error, whether or not records were
// due, or when it began; zero while Run does not forward. Run claims at least once in a few
// seconds, unless it is full of records that it publishes.
func (f *Forwarder) ClaimedAt() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil || f.current.ctx.Err() != nil {
		return time.Time{}
	}
	return f.current.worker.ClaimedAt()
}

// FailingCalls returns the calls that Run repeats by itself, such as claims and acks, and that have failed
// since their last success, the one that has failed longest first; those of its janitor and of its store's
// listening connection are among them. It returns none while Run does not run. A call may have failed for a
// moment only: FailingCall.Since tells.
func (f *Forwarder) FailingCalls() []outmill.FailingCall {
	f.mu.Lock()
	p := f.latest
	f.mu.Unlock()
	if p == nil || p.ctx.Err() != nil {
		return nil
	}
	return p.failing.FailingCalls()
}

// currentFlow is nil unless Run is forwarding.
func (f *Forwarder) currentFlow() *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil || f.current.ctx.Err() != nil {
		return nil
	}
	return f.current.flow
}
