package storekit

import (
	"context"
	"sync"

	"github.com/outmill/outmill"
)

// Notifier wakes the readers of a store within one process: it passes the topics with
// records that may have become claimable to listeners. A store implements [roles.Waker] with it.
// The zero value is ready to use. Notifier is safe for concurrent use.
type Notifier struct {
	mu        sync.Mutex
	listeners map[*func(topic string)]struct{}
	closed    bool
}

// Listen calls woken for each topic of each Notify, until ctx ends or the notifier is
// closed. See [roles.Waker] for the rules of woken.
func (n *Notifier) Listen(ctx context.Context, woken func(topic string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || ctx.Err() != nil {
		return
	}
	if n.listeners == nil {
		n.listeners = map[*func(topic string)]struct{}{}
	}
	listener := &woken
	n.listeners[listener] = struct{}{}
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, listener)
	})
}

// Notify passes the topics to every listener. No topics stand for any topic.
func (n *Notifier) Notify(topics ...string) {
	if len(topics) == 0 {
		topics = anyTopic
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for woken := range n.listeners {
		for _, topic := range topics {
			(*woken)(topic)
		}
	}
}

var anyTopic = []string{""}

// HasListeners reports whether there are listeners.
func (n *Notifier) HasListeners() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.listeners) > 0
}

// Close removes all listeners and accepts no further ones.
func (n *Notifier) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	clear(n.listeners)
}

// TopicsOf returns the topics of the records, each once. If there are more than a
// [TopicSet] keeps, it returns none, which stands for any topic.
func TopicsOf(records []*outmill.Record) []string {
	var topics TopicSet
	for _, r := range records {
		topics.Add(r.Topic)
	}
	return topics.List()
}
