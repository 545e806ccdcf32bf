// Package bell wakes the readers of a store within one process. Stores share
// it.
package bell

import (
	"context"
	"sync"

	"github.com/outmill/outmill"
)

// Bell tells listeners of which topics records may have become claimable. The
// zero value is ready; it may be used concurrently.
type Bell struct {
	mu        sync.Mutex
	listeners map[*func(topic string)]struct{}
	closed    bool
}

// Listen has woken called for each topic of each ring, until ctx ends or the
// bell is closed. See storekit.Waker for what woken may do.
func (b *Bell) Listen(ctx context.Context, woken func(topic string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || ctx.Err() != nil {
		return
	}
	if b.listeners == nil {
		b.listeners = map[*func(topic string)]struct{}{}
	}
	listener := &woken
	b.listeners[listener] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, listener)
	})
}

// Ring tells every listener of the topics; without topics, of any topic.
func (b *Bell) Ring(topics ...string) {
	if len(topics) == 0 {
		topics = anyTopic
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for woken := range b.listeners {
		for _, topic := range topics {
			(*woken)(topic)
		}
	}
}

var anyTopic = []string{""}

// Heard reports whether anybody listens.
func (b *Bell) Heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.listeners) > 0
}

// Close forgets all listeners and takes no further ones.
func (b *Bell) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	clear(b.listeners)
}

// TopicsOf returns the topics of the records, each once. It returns none, which
// stands for any topic, where there are more than a ring should carry.
func TopicsOf(records []*outmill.Record) []string {
	var topics Topics
	for _, r := range records {
		topics.Add(r.Topic)
	}
	return topics.List()
}
