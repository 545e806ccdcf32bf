package storekit

import (
	"context"
	"slices"
	"sync"
)

// maxTopics limits the topics of a set. A larger set stands for any topic. Readers then
// claim from all their topics, which is also only one claim.
const maxTopics = 64

// TopicSet collects the topics for one [Notifier.Notify]. The zero value is ready to use.
// TopicSet is safe for concurrent use.
type TopicSet struct {
	mu   sync.Mutex
	list []string
	over bool
}

// Add adds topics; an empty one stands for any topic.
func (t *TopicSet) Add(topics ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range topics {
		switch {
		case t.over || slices.Contains(t.list, topic):
		case topic == "" || len(t.list) == maxTopics:
			t.list, t.over = nil, true
		default:
			t.list = append(t.list, topic)
		}
	}
}

// List returns the topics; none stands for any topic.
func (t *TopicSet) List() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// Take returns the result of List, and empties the set.
func (t *TopicSet) Take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.list
	t.list, t.over = nil, false
	return list
}

type gatherKey struct{ store any }

// GatherTopics returns a context in which [NoteTopics] adds the topics of the store's
// appends to topics. It is for a transaction whose commit the store sees.
func GatherTopics(ctx context.Context, store any, topics *TopicSet) context.Context {
	return context.WithValue(ctx, gatherKey{store}, topics)
}

// NoteTopics adds the topics to the set that the context carries for the store, if any.
func NoteTopics(ctx context.Context, store any, topics []string) {
	gathered, ok := ctx.Value(gatherKey{store}).(*TopicSet)
	if !ok {
		return
	}
	if len(topics) == 0 {
		topics = anyTopic
	}
	gathered.Add(topics...)
}
