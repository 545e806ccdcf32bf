package driver

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// logHistory is the history of the registrations with one stamp.
type logHistory struct {
	stamp    int64
	readings []logReading
	topics   sync.Map // of *logChains
}

// chains are those of a topic.
func (h *logHistory) chains(topic string) *logChains {
	if known, ok := h.topics.Load(topic); ok {
		return known.(*logChains)
	}
	c := logChainsOf(h.readings, topic)
	h.topics.Store(topic, c)
	return c
}

// line is a chain of a line.
func (h *logHistory) line(line driver.Line, chain int64) *logLine {
	c := h.chains(line.Topic)
	group, _ := c.holder(chain)
	return &logLine{
		topic: line.Name(), chain: chain, group: group, begin: c.beginOf(chain), stamp: h.stamp, dropping: c.dropping[chain],
		masks: c.masks[chain],
	}
}

// lineOf is a chain of the line with the name; ok is false if the chain has ended.
func (h *logHistory) lineOf(name string, chain int64) (l *logLine, ok bool) {
	line := driver.LineOf("", name)
	_, ok = h.chains(line.Topic).holder(chain)
	return h.line(line, chain), ok
}

// unread is the chain of which the group of the line has the rows that are not read; nil is none.
func (h *logHistory) unread(line driver.Line) *logLine {
	c := h.chains(line.Topic)
	chain, reads := c.of[line.Group]
	if line.Group == "" {
		chain, reads = c.waiting, true
	}
	if !reads || chain == noChain || c.dropping[chain] && line.Group != "" {
		return nil
	}
	return h.line(line, chain)
}

// reads is the chain that the group of the line claims from, also while a drop of it goes on; nil is none.
func (h *logHistory) reads(line driver.Line) *logLine {
	chain, reads := h.chains(line.Topic).of[line.Group]
	if !reads || chain == noChain || line.Group == "" {
		return nil
	}
	return h.line(line, chain)
}

// works are the chains of which the group of the line has what is in work.
func (h *logHistory) works(line driver.Line) (lines []*logLine) {
	c := h.chains(line.Topic)
	for _, chain := range c.works[line.Group] {
		l := h.line(line, chain)
		l.group = line.Group
		lines = append(lines, l)
	}
	return lines
}

// ofRow are the chains for which a row of the event has the id, and those that wait instead of them.
func (c *logChains) ofRow(row outmill.WorkItemID, event int64, id outmill.WorkItemID) (chains []int64) {
	for _, chain := range c.known {
		if c.masks[chain].id(chain, row, event) != id {
			continue
		}
		for ok := true; ok; chain, ok = c.heirs[chain] {
			chains = append(chains, chain)
		}
	}
	return chains
}

// read reads a row of log_history.
func (h *logHistory) read(scan scan) error {
	var r logReading
	var number *int64
	var topics []byte
	err := scan(&h.stamp, &number, &r.group, &topics, &r.takes, &r.ended, &r.swept, &r.dropping, &r.begin.pos, &r.begin.seen, &r.end.pos,
		&r.end.seen)
	if err != nil || number == nil {
		return err
	}
	r.number = *number
	if err := json.Unmarshal(topics, &r.topics); err != nil {
		return err
	}
	h.readings = append(h.readings, r)
	return nil
}

// errStale says that the registrations have changed since the process read them.
var errStale = errors.New("the registrations have changed: the transaction runs again")

// stale reports whether the process or the server has found that.
func stale(err error) bool { return errors.Is(err, errStale) || code(err) == codeStale }

// history returns the registrations as this transaction knows them.
func (t *tx) history(ctx context.Context) (*logHistory, error) {
	if t.log.history != nil {
		return t.log.history, nil
	}
	h := &logHistory{}
	t.add("log_history", nil, h.read)
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	t.log.history = h
	if t.log.stamp == 0 {
		t.d.log.history.Store(h)
	}
	return h, nil
}

// learn takes over what the process knows of the history, if it is that of the stamp.
func (t *tx) learn(stamp int64) {
	if known := t.d.log.history.Load(); known != nil && known.stamp == stamp {
		t.log.history = known
		return
	}
	t.log.history = nil
}

// Registered writes events of registrations. See driver.Historian.
func (t *tx) Registered(ctx context.Context, events ...driver.Event) (left driver.Left, err error) {
	if t.log.stamp == 0 {
		t.log.stamp = rand.Int64()
	}
	before, err := t.history(ctx)
	if err != nil {
		return left, err
	}
	ends := false
	for _, e := range events {
		switch e.What {
		case driver.Swept:
			if err := t.sweep(ctx, before, e, &left); err != nil {
				return left, err
			}
		case driver.Dropped:
			t.add("log_dropped", []any{e.Group, t.log.stamp}, nil)
		default:
			topics, err := json.Marshal(e.Topics)
			if err != nil {
				return left, err
			}
			ends = ends || e.What == driver.Ends || e.What == driver.Drops
			what := [...]string{"begins", "takes", "ends", "drops"}[e.What]
			t.add("log_registered", []any{what, e.Group, string(topics), e.Takes, t.log.stamp}, nil)
		}
	}
	t.log.history = nil
	if err := t.flush(ctx); err != nil || !ends {
		return left, err
	}
	after, err := t.history(ctx)
	if err != nil {
		return left, err
	}
	lost, err := t.leftBy(ctx, before, after)
	left.Waiting, left.Gone = left.Waiting+lost.Waiting, left.Gone+lost.Gone
	return left, err
}

// leftBy counts what is not read of chains that have lost their group.
func (t *tx) leftBy(ctx context.Context, before, after *logHistory) (left driver.Left, err error) {
	lines, err := t.logTopics(ctx)
	if err != nil {
		return left, err
	}
	for _, line := range lines {
		was, is := before.chains(line.Topic), after.chains(line.Topic)
		for _, chain := range was.known {
			had, held := was.holder(chain)
			has, holds := is.holder(chain)
			to := &left.Gone
			if holds {
				to = &left.Waiting
			}
			if !held || chain == noChain || holds && (had == "" || has != "") {
				continue
			}
			l := before.line(line, chain)
			t.add("log_count", []any{l.topic, l.chain, l.begin.pos, l.begin.seen, mostCounted}, func(scan scan) error {
				n := 0
				err := scan(&n)
				*to += n
				return err
			})
		}
	}
	err = t.flush(ctx)
	return left, err
}

// mostCounted is how many rows of a line are counted.
const mostCounted = 10_000

// logTopics are the topics of the lines of the log, which the transaction must know to find the lines of a group.
func (t *tx) logTopics(ctx context.Context) ([]driver.Line, error) {
	lines, err := list(ctx, t, "log_topics", nil, sqlkit.LineIn(""))
	if err == nil {
		// The caller may change its list.
		known := slices.Clone(lines)
		t.d.log.topics.Store(&known)
	}
	return lines, err
}

// logLinesOf are the lines of the groups of which the log has rows.
func (t *tx) logLinesOf(ctx context.Context, groups []string) (map[driver.Line]bool, error) {
	h, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := t.logTopics(ctx)
	if err != nil {
		return nil, err
	}
	found := map[driver.Line]bool{}
	var chains []anyChain
	for _, line := range lines {
		for _, group := range groups {
			line.Group = group
			if l := h.unread(line); l != nil {
				chains = append(chains, anyChain{l, line, true})
			}
			for _, l := range h.works(line) {
				chains = append(chains, anyChain{l, line, false})
			}
		}
	}
	t.addAny(chains, func(c anyChain) { found[c.line] = true })
	return found, t.flush(ctx)
}

// addAny queues the question which chains have something. A group that comes and goes leaves many that have ended.
func (t *tx) addAny(chains []anyChain, has func(anyChain)) {
	lines := make([]*logLine, len(chains))
	for i, c := range chains {
		lines[i] = c.logLine
	}
	unread := numbersOf(chains, func(c *anyChain) int64 {
		if c.unread {
			return 1
		}
		return 0
	})
	t.add("log_any", append(chainArgs(lines), unread), func(scan scan) error {
		var place int
		err := scan(&place)
		if err == nil {
			has(chains[place-1])
		}
		return err
	})
}

// inLine are the lines with the group.
func inLine(group string, lines []driver.Line) []driver.Line {
	for i := range lines {
		lines[i].Group = group
	}
	return lines
}
