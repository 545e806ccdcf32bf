package main

import (
	"fmt"
	"strconv"

	"github.com/outmill/outmill"
)

// mostCounted limits each number of the question before a drop.
const mostCounted = 10_000

// dropQuestion says what the drop of a group deletes, and how much of that no other group gets.
func dropQuestion(group, shown string, groups []outmill.GroupInfo, stats []outmill.TopicStats) string {
	var open, lost, dead, processed tally
	for _, t := range stats {
		if t.Group != group {
			continue
		}
		open.add(t.Pending)
		open.add(t.Leased)
		dead.add(t.Dead)
		processed.add(t.Processed)
		if !readByAnother(groups, group, t.Topic) {
			lost.add(t.Pending)
			lost.add(t.Leased)
		}
	}
	return fmt.Sprintf("This drops the group %q of %s with all its records: %s not delivered, %s dead, %s processed. "+
		"Of those that are not delivered, %s of topics that no other group reads, so nobody gets them.",
		group, shown, open, dead, processed, lost)
}

func readByAnother(groups []outmill.GroupInfo, group, topic string) bool {
	for _, g := range groups {
		for _, r := range g.Registrations {
			if g.Group != group && r.Topics.Match(topic) {
				return true
			}
		}
	}
	return false
}

// tally adds up counts, each of which may have reached the limit.
type tally struct {
	n    int
	more bool
}

func (t *tally) add(n int) {
	t.n += n
	t.more = t.more || n >= mostCounted
}

func (t tally) String() string {
	text, verb := strconv.Itoa(t.n), "are"
	if t.more {
		text += " or more"
	}
	if t.n == 1 && !t.more {
		verb = "is"
	}
	return text + " " + verb
}
