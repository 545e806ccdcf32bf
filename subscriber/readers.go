package subscriber

import (
	"reflect"
	"sync"

	"github.com/outmill/outmill"
)

// reader identifies the subscriptions of this process that share messages: those to one
// topic of one store, in one group.
type reader struct {
	queue        outmill.Queue
	group, topic string
}

// readers counts the subscriptions of this process per reader.
var readers = struct {
	sync.Mutex
	counts map[reader]int
}{counts: map[reader]int{}}

// enter counts the subscription until leave. It warns of a second subscription to the same
// group and topic, because users of Pub/Subs without groups expect each handler to get
// every message.
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
			"If both need every message, give each a subscriber with its own Config.Group", nil, nil)
	}
	return func() {
		readers.Lock()
		defer readers.Unlock()
		if readers.counts[r]--; readers.counts[r] == 0 {
			delete(readers.counts, r)
		}
	}
}
