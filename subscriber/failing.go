package subscriber

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// FailingCalls returns the calls that the subscriber repeats by itself, such as claims and acks, and that
// have failed since their last success, the one that has failed longest first; those of its janitor and of
// its store's listening connection are among them. It returns none without a subscription. A call may have
// failed for a moment only: FailingCall.Since tells.
func (s *Subscriber) FailingCalls() []outmill.FailingCall {
	s.mu.Lock()
	var sessions []any
	for ses := range s.sessions {
		sessions = append(sessions, ses.failing)
	}
	s.mu.Unlock()
	return storekit.FailingOf(sessions...)
}

// joined is the session that a Subscribe would join, or nil.
func (s *Subscriber) joined() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}
