package forwarder

import "github.com/outmill/outmill"

// doubts tells a message that the broker will never take from a broker that
// takes none, for publishers that do not: a message is guilty if it fails, the
// very next publish of others goes through, and it then fails again. Each
// further attempt that is counted needs the same proof again, so that an outage
// costs a message no more than one.
//
// It is used by the one goroutine that settles.
type doubts struct {
	// accused failed in the last publish.
	accused map[outmill.WorkItemID]struct{}
	// guilty failed before a publish that went through.
	guilty map[outmill.WorkItemID]struct{}
}

// maxGuilty bounds the memory of records that went elsewhere.
const maxGuilty = 10_000

func newDoubts() *doubts {
	return &doubts{accused: map[outmill.WorkItemID]struct{}{}, guilty: map[outmill.WorkItemID]struct{}{}}
}

// next is told of each publish, and whether the broker took anything.
func (d *doubts) next(took bool) {
	if took {
		if len(d.guilty) > maxGuilty {
			clear(d.guilty)
		}
		for id := range d.accused {
			d.guilty[id] = struct{}{}
		}
	}
	clear(d.accused)
}

// accuse notes that the message failed and reports whether it was guilty.
func (d *doubts) accuse(id outmill.WorkItemID) bool {
	_, guilty := d.guilty[id]
	delete(d.guilty, id)
	d.accused[id] = struct{}{}
	return guilty
}

// acquit: the message was delivered after all.
func (d *doubts) acquit(id outmill.WorkItemID) {
	delete(d.accused, id)
	delete(d.guilty, id)
}
