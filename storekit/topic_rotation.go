package storekit

import (
	"slices"
	"strings"
	"sync"

	"github.com/outmill/outmill"
)

// maxRotations limits the memory for selections that are not used any more.
const maxRotations = 1024

// TopicRotation serves topics in turn, so that a topic with a large backlog does not starve
// the others. For each group and selection of topics it remembers the first topic of the
// last claim; the next claim begins with the topic after it. The zero value is ready to
// use. TopicRotation is safe for concurrent use.
type TopicRotation struct {
	mu    sync.Mutex
	first map[string]string
}

// Order sorts the topics in place, and returns them beginning with the topic whose turn it
// is.
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

// keyOf identifies a selection by its Include list only, because Exclude changes from claim
// to claim while handlers are busy.
func keyOf(group string, selection outmill.Topics) string {
	return group + "\x00" + strings.Join(selection.Include, "\x00")
}
