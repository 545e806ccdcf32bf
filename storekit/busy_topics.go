package storekit

import (
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// busyFor is how long a reader claims from the topics that it found before it
// looks for others as well.
const busyFor = 100 * time.Millisecond

// BusyTopics remembers, for each group and selection, of which topics there were
// records a moment ago, so that a claim in the midst of many need not look for
// them again. The zero value is ready; it may be used concurrently.
type BusyTopics struct {
	mu    sync.Mutex
	found map[string]foundTopics
}

type foundTopics struct {
	topics []string
	// exclude is what the look left out.
	exclude []string
	at      time.Time
}

// Note remembers topics that were just found. They are not copied, and must not
// be changed any more.
func (b *BusyTopics) Note(group string, selection outmill.Topics, topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found == nil || len(b.found) >= maxRotations {
		b.found = map[string]foundTopics{}
	}
	b.found[keyOf(group, selection)] = foundTopics{topics, selection.Exclude, time.Now()}
}

// Topics returns what was noted and is selected, nil if there is none, it is too long
// ago, or the look left out a topic that is selected now: that topic would have to wait
// until no other one has records.
func (b *BusyTopics) Topics(group string, selection outmill.Topics) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.found[keyOf(group, selection)]
	if time.Since(found.at) > busyFor || !includesAll(selection.Exclude, found.exclude) {
		return nil
	}
	if len(selection.Exclude) == 0 {
		return found.topics
	}
	var left []string
	match := selection.Matcher()
	for _, topic := range found.topics {
		if match(topic) {
			left = append(left, topic)
		}
	}
	return left
}

func includesAll(list, entries []string) bool {
	if len(entries) == 0 {
		return true
	}
	known := make(map[string]struct{}, len(list))
	for _, entry := range list {
		known[entry] = struct{}{}
	}
	for _, entry := range entries {
		if _, included := known[entry]; !included {
			return false
		}
	}
	return true
}
