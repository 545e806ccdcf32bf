package storekit

import (
	"slices"
	"strings"
	"sync"

	"github.com/outmill/outmill"
)

// maxRotations bounds the memory for selections that are never seen again.
const maxRotations = 1024

// TopicRotation serves topics in turn, so that one with a large backlog does not starve
// another one. It remembers, for each group and selection of topics, which topic was
// served first the last time, and the next claim begins with the one after. The zero value is ready; it may be used concurrently.
type TopicRotation struct {
	mu    sync.Mutex
	first map[string]string
}

// Order sorts the topics, in place, and returns them beginning with the one
// whose turn it is.
func (r *TopicRotation) Order(group string, selection outmill.Topics, topics []string) []string {
	slices.Sort(topics)
	if len(topics) < 2 {
		return topics
	}
	key := keyOf(group, selection)
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.first[key]
	start := 0
	if known {
		start = slices.IndexFunc(topics, func(topic string) bool { return topic > last })
		start = max(start, 0)
	}
	if r.first == nil || len(r.first) >= maxRotations {
		r.first = map[string]string{}
	}
	r.first[key] = topics[start]
	return slices.Concat(topics[start:], topics[:start])
}

// keyOf knows a selection by what it includes. It leaves out what it excludes, because that changes from claim to
// claim where handlers are busy.
func keyOf(group string, selection outmill.Topics) string {
	return group + "\x00" + strings.Join(selection.Include, "\x00")
}
