package forwarder

import (
	"time"

	"github.com/outmill/outmill"
)

// doubts tells a message that the broker will never take from a broker that
// takes none, for publishers that do not: a message is guilty if it fails, the
// very next publish gets through, and some time after that it still fails. The
// time is for clients that need some themselves before they take note that a
// part of the broker is back. Each further attempt that is counted needs the
// same proof again, so that an outage costs a message no more than one.
//
// It is used by the one goroutine that settles.
type doubts struct {
	patience time.Duration
	// accused failed in the last publish.
	accused map[outmill.WorkItemID]struct{}
	// suspected failed before a publish that got through, at that time.
	suspected map[outmill.WorkItemID]time.Time
}

// maxSuspected bounds the memory of records that went elsewhere.
const maxSuspected = 10_000

func newDoubts(patience time.Duration) *doubts {
	return &doubts{
		patience:  patience,
		accused:   map[outmill.WorkItemID]struct{}{},
		suspected: map[outmill.WorkItemID]time.Time{},
	}
}

// gotThrough is told of each publish that delivered something.
func (d *doubts) gotThrough(now time.Time) {
	if len(d.suspected) > maxSuspected {
		clear(d.suspected)
	}
	for id := range d.accused {
		d.suspected[id] = now
	}
	clear(d.accused)
}

// tookNothing is told of each publish that delivered nothing. With several
// messages it is an outage, and what failed before may have been one too.
func (d *doubts) tookNothing(messages int) {
	clear(d.accused)
	if messages > 1 {
		clear(d.suspected)
	}
}

// accuse notes that the message failed and reports whether it is guilty.
func (d *doubts) accuse(id outmill.WorkItemID, now time.Time) bool {
	since, suspected := d.suspected[id]
	if suspected && now.Sub(since) < d.patience {
		return false
	}
	delete(d.suspected, id)
	d.accused[id] = struct{}{}
	return suspected
}

// acquit: the message was delivered after all.
func (d *doubts) acquit(id outmill.WorkItemID) {
	delete(d.accused, id)
	delete(d.suspected, id)
}
