package next

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// A message is written to the log once. Which group reads it follows from the history of the registrations: see
// docs/postgres-next.md, "Readings and chains". A chain is a cursor over the rows of a topic and part. It passes from
// group to group, and to no group while it waits for a first one.

// logMark says what was committed at a moment: the rows up to pos that seen shows. The transactions from the end of seen up
// to horizon may have written rows up to pos, too.
type logMark struct {
	pos           int64
	seen, horizon string
}

// logBegin is before the first row.
var logBegin = logMark{pos: -1}

// logReading is the time for which a group has one registration. Events have numbers in their order: all of one transaction
// that drops a group share one.
type logReading struct {
	// number is the event of the begin.
	number int64
	group  string
	topics outmill.Topics
	// takes is the event since which the registration does not hold; 0 is none.
	takes int64
	// ended is the event of the end, 0 if there was none; dropped says that it was a drop and not the end of the TTL.
	ended   int64
	dropped bool
	// begin and end are the marks of the two events.
	begin, end logMark
}

// noChain is the number of no chain.
const noChain int64 = -1

// logChains are the chains of a topic.
type logChains struct {
	// of has the chain of each group that reads the topic, waiting that of no group, or noChain.
	of      map[string]int64
	waiting int64
	// readings are the living ones of each group that select the topic.
	readings map[string][]logReading
}

// logChainsOf folds the history of the readings that select the topic.
func logChainsOf(history []logReading, topic string) *logChains {
	c := &logChains{of: map[string]int64{}, readings: map[string][]logReading{}}
	for _, e := range logEvents(history, topic) {
		switch e.number {
		case e.reading.number:
			c.begin(e.reading)
		case e.reading.takes:
			c.take(e.reading)
		default:
			c.end(e.reading)
		}
	}
	return c
}

type logEvent struct {
	number  int64
	reading logReading
}

// logEvents are what has happened to the readings that select the topic, in order.
func logEvents(history []logReading, topic string) (events []logEvent) {
	for _, r := range history {
		if !r.topics.Match(topic) {
			continue
		}
		events = append(events, logEvent{r.number, r})
		if r.takes > r.number {
			events = append(events, logEvent{r.takes, r})
		}
		if r.ended != 0 {
			events = append(events, logEvent{r.ended, r})
		}
	}
	slices.SortStableFunc(events, func(a, b logEvent) int { return cmp.Compare(a.number, b.number) })
	return events
}

func (c *logChains) begin(r logReading) {
	if len(c.readings[r.group]) == 0 {
		c.of[r.group] = r.number
	}
	if r.takes == r.number {
		c.take(r)
		return
	}
	r.takes = 0 // not yet
	c.readings[r.group] = append(c.readings[r.group], r)
}

// take has the group read what waits. The chain that it had while it held has given it nothing.
func (c *logChains) take(r logReading) {
	if c.waiting != noChain { // then nobody takes yet
		c.of[r.group], c.waiting = c.waiting, noChain
	}
	c.remove(r)
	c.readings[r.group] = append(c.readings[r.group], r)
}

func (c *logChains) remove(r logReading) {
	c.readings[r.group] = slices.DeleteFunc(c.readings[r.group], func(known logReading) bool { return known.number == r.number })
}

// end ends a reading. With the last one of a group its chain ends, or waits if nobody else reads the topic.
func (c *logChains) end(r logReading) {
	c.remove(r)
	if len(c.readings[r.group]) > 0 {
		return
	}
	chain := c.of[r.group]
	delete(c.of, r.group)
	delete(c.readings, r.group)
	switch {
	case len(c.readings) > 0 || c.waiting != noChain:
	case r.dropped:
		c.waiting = chain
	default:
		c.waiting = r.ended
	}
}

// logChainBegin is where a chain begins.
func logChainBegin(history []logReading, chain int64) logMark {
	for _, r := range history {
		switch {
		case chain == r.number:
			return r.begin
		case chain == r.ended && chain != 0:
			return r.end
		}
	}
	return logBegin
}

// logCopyID is the id that a row has for a chain. A row that two chains read has two ids, so each can be a record.
func logCopyID(history []logReading, chain int64, id outmill.WorkItemID) outmill.WorkItemID {
	if chain == 0 {
		return id
	}
	name := "\x00" + strconv.FormatInt(chain, 10) // that no group can have
	for _, r := range history {
		if r.number == chain {
			name = r.group
		}
	}
	return storekit.CopyID(id, name)
}
