package subscriber

import (
	"reflect"
	"sync"

	"github.com/outmill/outmill"
)

// reader is what shares messages: all subscriptions of a process to one topic of a
// store, in one group.
type reader struct {
	queue        outmill.Queue
	group, topic string
}

// readers counts the subscriptions of this process.
var readers = struct {
	sync.Mutex
	counts map[reader]int
}{counts: map[reader]int{}}

// enter counts the subscription until leave, and warns of the second one to the
// same group and topic: users who come from Pub/Subs without groups expect each
// handler to get every message.
func (s *Subscriber) enter(sub *subscription) (leave func()) {
	if !reflect.ValueOf(s.queue).Comparable() {
		return func() {}
	}
	r := reader{s.queue, s.cfg.Group, sub.topic}
	readers.Lock()
	defer readers.Unlock()
	readers.counts[r]++
	if readers.counts[r] == 2 {
		sub.log.Error("Warning: two subscriptions of this process read this topic in the same group, so each message reaches only one of them. "+
			"Where both need every message, give each a subscriber with a Config.Group of its own", nil, nil)
	}
	return func() {
		readers.Lock()
		defer readers.Unlock()
		if readers.counts[r]--; readers.counts[r] == 0 {
			delete(readers.counts, r)
		}
	}
}
