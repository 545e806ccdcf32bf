package driver

import (
	"cmp"
	"slices"

	"github.com/outmill/outmill"
)

// A message is written to the log once. Which group reads it follows from the history of the registrations: see
// docs/postgres-log.md, "Readings and chains". A chain is a cursor over the rows of a topic and part. It passes from
// group to group, and to no group while it waits for a first one.

// logMark says what was committed at a moment: the rows that seen shows, of which none is behind pos.
type logMark struct {
	pos  int64
	seen string
}

// logBegin is before the first row.
var logBegin = logMark{pos: -1}

// logReading is the time for which a group has one registration. Each event has a number, in their order.
type logReading struct {
	// number is the event of the begin.
	number int64
	group  string
	topics outmill.Topics
	// takes is the event since which the registration does not hold; 0 is none.
	takes int64
	// ended is the event of the end, 0 if there was none.
	ended int64
	// swept is the event since which what the group had not read is gone, if it still waits: after the end of the TTL.
	swept int64
	// dropping says that the steps of its drop have not given back its records yet.
	dropping bool
	// begin and end are the marks of the two events.
	begin, end logMark
}

// noChain is the number of no chain.
const noChain int64 = -1

// logChains are the chains of a topic.
type logChains struct {
	// of has the chain of each group that reads the topic, waiting that of no group, or noChain. While a chain waits, no
	// group has one: those that read the topic hold.
	of      map[string]int64
	waiting int64
	// waitsBy is the reading with the end of which the chain began to wait.
	waitsBy int64
	// readings are the living ones of each group that select the topic, and first is with which it began to read it.
	readings map[string][]logReading
	first    map[string]int64
	// dropping are the chains that a group had whose drop still gives back records.
	dropping map[int64]bool
	// known are all chains of the topic, and had is the group that had a chain last, for those that a group has lost.
	known []int64
	had   map[int64]string
	// masks say which ids rows have for each chain, and named which of them those of the last event have. See rename.
	masks map[int64]logMasks
	named map[int64]string
	// heirs are the chains that wait instead of others, since what these had left was swept.
	heirs map[int64]int64
	// begins are where chains begin, but those that begin before the first row.
	begins map[int64]logMark
	// holders has the group of each chain. works has, for each group, the chains whose leased rows the group has.
	holders map[int64]string
	works   map[string][]int64
}

// logChainsOf folds the history of the readings that select the topic.
func logChainsOf(history []logReading, topic string) *logChains {
	c := &logChains{of: map[string]int64{}, readings: map[string][]logReading{}, first: map[string]int64{}, dropping: map[int64]bool{},
		known: []int64{0}, had: map[int64]string{}, masks: map[int64]logMasks{}, named: map[int64]string{}, heirs: map[int64]int64{},
		begins: map[int64]logMark{}, holders: map[int64]string{}, works: map[string][]int64{}}
	for _, e := range logEvents(history, topic) {
		switch r := e.reading; e.number {
		case r.number:
			c.begin(r)
		case r.takes:
			c.take(r)
		case r.ended:
			c.end(r)
		case r.swept:
			c.sweep(r)
		}
		c.rename(e.number)
	}
	c.fold()
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
		for _, number := range []int64{r.takes, r.ended, r.swept} {
			if number > r.number {
				events = append(events, logEvent{number, r})
			}
		}
	}
	slices.SortStableFunc(events, func(a, b logEvent) int { return cmp.Compare(a.number, b.number) })
	return events
}

func (c *logChains) begin(r logReading) {
	c.begins[r.number] = r.begin
	if len(c.readings[r.group]) == 0 {
		c.first[r.group] = r.number
		if c.waiting == noChain {
			c.of[r.group] = r.number
		}
		c.known = append(c.known, r.number)
	}
	c.readings[r.group] = append(c.readings[r.group], r)
	if r.takes == r.number {
		c.take(r)
	}
}

// take has the group read what waits. The others that held begin where they began to hold.
func (c *logChains) take(r logReading) {
	if c.waiting == noChain {
		return
	}
	for group := range c.readings {
		c.of[group] = c.first[group]
	}
	c.of[r.group], c.waiting = c.waiting, noChain
}

// end ends a reading. With the last one of a group its chain ends, or waits if nobody else reads the topic.
func (c *logChains) end(r logReading) {
	c.readings[r.group] = slices.DeleteFunc(c.readings[r.group], func(known logReading) bool { return known.number == r.number })
	if len(c.readings[r.group]) > 0 {
		return
	}
	chain, reads := c.of[r.group]
	delete(c.of, r.group)
	delete(c.readings, r.group)
	if reads && chain != noChain {
		c.had[chain] = r.group
	}
	if reads && len(c.readings) == 0 {
		c.waiting, c.waitsBy, c.dropping[chain] = chain, r.number, r.dropping
	}
}

// sweep replaces the chain that waits since the end of a reading by one that begins there.
func (c *logChains) sweep(r logReading) {
	if c.waiting != noChain && c.waitsBy == r.number {
		c.heirs[c.waiting] = r.swept
		c.waiting, c.begins[r.swept] = r.swept, r.end
		c.known = append(c.known, r.swept)
	}
}

// fold fills holders and works. It runs behind the last event.
func (c *logChains) fold() {
	for group, chain := range c.of {
		c.holders[chain] = group
	}
	for _, chain := range c.known {
		group := c.worker(chain)
		c.works[group] = append(c.works[group], chain)
	}
}

// holder is the group that has the chain; "" is none, because it waits. A chain that has ended has no holder.
func (c *logChains) holder(chain int64) (group string, ok bool) {
	if group, ok = c.holders[chain]; ok {
		return group, true
	}
	return "", chain == c.waiting
}

// worker is the group that has the chain's leased rows. A dropped group keeps its leased rows until the drop has given them back.
func (c *logChains) worker(chain int64) string {
	if group, holds := c.holder(chain); holds && group != "" && !c.dropping[chain] {
		return group
	}
	return c.had[chain]
}

// beginOf is where a chain begins.
func (c *logChains) beginOf(chain int64) logMark {
	if begin, ok := c.begins[chain]; ok {
		return begin
	}
	return logBegin
}

// logPruned is the history without the readings that have ended and that change nothing: for all of its time another one with the
// same topics took, so its chain was its own, and has ended with it. What the chain has left in the tables must be gone.
func logPruned(history []logReading) (kept []logReading) {
	for _, r := range history {
		if r.ended == 0 || r.dropping || !slices.ContainsFunc(history, func(o logReading) bool { return o.covers(r) }) ||
			slices.ContainsFunc(history, func(o logReading) bool { return o.goesOn(r) }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// covers reports whether the reading took before r began, and lives longer.
func (o logReading) covers(r logReading) bool {
	return o.takes != 0 && o.takes < r.number && (o.ended == 0 || o.ended > r.ended) &&
		slices.Equal(o.topics.Include, r.topics.Include) && slices.Equal(o.topics.Exclude, r.topics.Exclude)
}

// goesOn reports whether the reading keeps the chain of r, which has ended.
func (o logReading) goesOn(r logReading) bool {
	return o.group == r.group && o.number > r.number && o.number < r.ended && (o.ended == 0 || o.ended > r.ended)
}
