package forwarder

import (
	"time"

	"github.com/outmill/outmill"
)

// doubts distinguishes a message that the broker never accepts from an outage, if the
// publisher's errors do not. A message is guilty if it fails, the very next publish
// succeeds, and the message still fails after a further time (patience). The further time
// is for clients that notice only after a while that a part of the broker is available
// again. Each further attempt that counts needs the same proof again, so an outage costs a
// message at most one attempt.
//
// Only the goroutine that settles uses it.
type doubts struct {
	patience time.Duration
	// accused are the messages that failed in the last publish.
	accused map[outmill.WorkItemID]struct{}
	// suspected are the messages that failed before a publish that succeeded, with the time of
	// that publish.
	suspected map[outmill.WorkItemID]time.Time
}

// maxSuspected limits the memory for records that other processes have claimed since.
const maxSuspected = 10_000

func newDoubts(patience time.Duration) *doubts {
	return &doubts{
		patience:  patience,
		accused:   map[outmill.WorkItemID]struct{}{},
		suspected: map[outmill.WorkItemID]time.Time{},
	}
}

// gotThrough is called after each publish that delivered at least one message.
func (d *doubts) gotThrough(now time.Time) {
	if len(d.suspected) > maxSuspected {
		clear(d.suspected)
	}
	for id := range d.accused {
		d.suspected[id] = now
	}
	clear(d.accused)
}

// tookNothing is called after each publish that delivered no message. With several messages
// it is an outage, and earlier failures may have been a part of it.
func (d *doubts) tookNothing(messages int) {
	clear(d.accused)
	if messages > 1 {
		clear(d.suspected)
	}
}

// accuse records that the message failed, and reports whether it is guilty.
func (d *doubts) accuse(id outmill.WorkItemID, now time.Time) bool {
	since, suspected := d.suspected[id]
	if suspected && now.Sub(since) < d.patience {
		return false
	}
	delete(d.suspected, id)
	d.accused[id] = struct{}{}
	return suspected
}

// acquit forgets the failures of a message that was delivered.
func (d *doubts) acquit(id outmill.WorkItemID) {
	delete(d.accused, id)
	delete(d.suspected, id)
}
