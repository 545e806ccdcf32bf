package forwarder

import (
	"time"

	"github.com/outmill/outmill"
)

// failureHistory distinguishes a message that the broker never accepts from an outage, if
// the publisher's errors do not. A message is the cause of its failures if it fails, the
// very next publish succeeds, and the message still fails after a further time (patience).
// The further time is for clients that notice only after a while that a part of the broker
// is available again. Each further attempt that counts needs the same proof again, so an
// outage costs a message at most one attempt.
//
// Only the goroutine that settles uses it.
type failureHistory struct {
	patience time.Duration
	// failedLast are the messages that failed in the last publish.
	failedLast map[outmill.WorkItemID]struct{}
	// failedBefore are the messages that failed before a publish that succeeded, with the time of
	// that publish.
	failedBefore map[outmill.WorkItemID]time.Time
}

// maxFailedBefore limits the memory for records that other processes have claimed since.
const maxFailedBefore = 10_000

func newFailureHistory(patience time.Duration) *failureHistory {
	return &failureHistory{
		patience:     patience,
		failedLast:   map[outmill.WorkItemID]struct{}{},
		failedBefore: map[outmill.WorkItemID]time.Time{},
	}
}

// someDelivered is called after each publish that delivered at least one message.
func (h *failureHistory) someDelivered(now time.Time) {
	if len(h.failedBefore) > maxFailedBefore {
		clear(h.failedBefore)
	}
	for id := range h.failedLast {
		h.failedBefore[id] = now
	}
	clear(h.failedLast)
}

// noneDelivered is called after each publish that delivered no message. With several
// messages it is an outage, and earlier failures may have been a part of it.
func (h *failureHistory) noneDelivered(messages int) {
	clear(h.failedLast)
	if messages > 1 {
		clear(h.failedBefore)
	}
}

// add records that the message failed, and reports whether the message itself is the cause.
func (h *failureHistory) add(id outmill.WorkItemID, now time.Time) bool {
	since, failedBefore := h.failedBefore[id]
	if failedBefore && now.Sub(since) < h.patience {
		return false
	}
	delete(h.failedBefore, id)
	h.failedLast[id] = struct{}{}
	return failedBefore
}

// forget removes the failures of a message that was delivered.
func (h *failureHistory) forget(id outmill.WorkItemID) {
	delete(h.failedLast, id)
	delete(h.failedBefore, id)
}
