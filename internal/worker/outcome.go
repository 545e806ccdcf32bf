package worker

import (
	"time"

	"github.com/outmill/outmill"
)

type outcomeKind int

// The order of the kinds is the order in which a flush stores them: the store must know
// that a record failed before the later records of its key are released.
const (
	abandoned outcomeKind = iota
	failed
	acked
	snoozed
	released
)

// String is the name of the store's method in lower case.
func (k outcomeKind) String() string {
	return [...]string{"abandon", "fail", "ack", "snooze", "release"}[k]
}

type outcome struct {
	kind   outcomeKind
	item   *Item
	delay  time.Duration
	reason string
	// unhandled says, of a failed one, that no handling began.
	unhandled bool
}

func (o outcome) lease() outmill.Lease { return o.item.lease }

// givesBack reports whether the record may be delivered again before later records of its
// key.
func (o outcome) givesBack(policy outmill.KeyPolicy) bool {
	switch o.kind {
	case abandoned, snoozed:
		return policy != outmill.KeySkip
	case failed:
		return policy == outmill.KeyPark
	case released:
		return true
	case acked:
	}
	return false
}

// maySetFree reports whether the outcome may have made a record claimable.
func (o outcome) maySetFree() bool {
	return o.kind != acked && o.kind != failed || o.item.key != ""
}
