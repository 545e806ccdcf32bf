package storekit

import (
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// busyFor is how long a reader claims only from the topics that it found, before it
// searches for others.
const busyFor = 100 * time.Millisecond

// BusyTopics remembers, for each group and selection, the topics, or names of lines (LineName), that had records a moment
// ago, so that not every claim of a series must search for topics. The zero value is ready
// to use. BusyTopics is safe for concurrent use.
type BusyTopics struct {
	mu    sync.Mutex
	found map[string]foundTopics
}

type foundTopics struct {
	topics []string
	// exclude is the Exclude list of the search.
	exclude []string
	at      time.Time
}

// Note remembers topics that were just found. It does not copy the list, so the caller must
// not change it afterwards.
func (b *BusyTopics) Note(group string, selection outmill.Topics, topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found == nil || len(b.found) >= maxRotations {
		b.found = map[string]foundTopics{}
	}
	b.found[keyOf(group, selection)] = foundTopics{topics, selection.Exclude, time.Now()}
}

// Forget drops all notes.
func (b *BusyTopics) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.found)
}

// Drop removes topics from a note. It does not renew the note.
func (b *BusyTopics) Drop(group string, selection outmill.Topics, gone map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(group, selection)
	found, noted := b.found[key]
	if !noted || len(gone) == 0 {
		return
	}
	// A list that Topics has returned does not change.
	found.topics = slices.DeleteFunc(slices.Clone(found.topics), func(topic string) bool { return gone[topic] })
	if len(found.topics) == 0 {
		found.topics = nil
	}
	b.found[key] = found
}

// Topics returns the noted topics that are selected. It returns nil if there are none, if
// the note is too old, or if the search excluded a topic that is selected now, because that
// topic would have to wait until no other topic has records.
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
		if of, _ := TopicOfLine(topic); match(of) {
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
