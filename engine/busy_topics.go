package engine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// busyFor is how long a reader claims only from the topics that it found, before it
// searches for others.
const busyFor = 100 * time.Millisecond

// mostSelections limits the memory for selections that are not used any more.
const mostSelections = 1024

// busyTopics remembers, for each group and selection, the topics, or names of lines (storekit.LineName), that had records a moment
// ago, so that not every claim of a series must search for topics. The zero value is ready
// to use. busyTopics is safe for concurrent use.
type busyTopics struct {
	mu    sync.Mutex
	found map[string]foundTopics
}

type foundTopics struct {
	topics []string
	// exclude is the Exclude list of the search.
	exclude []string
	at      time.Time
}

// note remembers topics that were just found. It does not copy the list, so the caller must
// not change it afterwards.
func (b *busyTopics) note(group string, selection outmill.Topics, topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found == nil || len(b.found) >= mostSelections {
		b.found = map[string]foundTopics{}
	}
	b.found[selectionKey(group, selection)] = foundTopics{topics, selection.Exclude, time.Now()}
}

// forget drops all notes.
func (b *busyTopics) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.found)
}

// drop removes topics from a note. It does not renew the note.
func (b *busyTopics) drop(group string, selection outmill.Topics, gone map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := selectionKey(group, selection)
	found, noted := b.found[key]
	if !noted || len(gone) == 0 {
		return
	}
	// A list that topics has returned does not change.
	found.topics = slices.DeleteFunc(slices.Clone(found.topics), func(topic string) bool { return gone[topic] })
	if len(found.topics) == 0 {
		found.topics = nil
	}
	b.found[key] = found
}

// topics returns the noted topics that are selected. It returns nil if there are none, if
// the note is too old, or if the search excluded a topic that is selected now, because that
// topic would have to wait until no other topic has records.
func (b *busyTopics) topics(group string, selection outmill.Topics) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.found[selectionKey(group, selection)]
	if time.Since(found.at) > busyFor || !includesAll(selection.Exclude, found.exclude) {
		return nil
	}
	if len(selection.Exclude) == 0 {
		return found.topics
	}
	var left []string
	match := selection.Matcher()
	for _, topic := range found.topics {
		if of, _ := storekit.TopicOfLine(topic); match(of) {
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

// selectionKey identifies a selection by its Include list only, because Exclude changes from claim
// to claim while handlers are busy.
func selectionKey(group string, selection outmill.Topics) string {
	return group + "\x00" + strings.Join(selection.Include, "\x00")
}
