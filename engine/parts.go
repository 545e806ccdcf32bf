package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// Of a fair topic the hash of topic and tenant says which of storekit.FairParts lines has a record. docs/store-rules.md draws
// who may change what.

const (
	// settingKind is the kind of the entries of settings. The entry of fairKey has the patterns of fair topics as Value.
	settingKind = "setting"
	fairKey     = "fair topics"
	// A claim takes about fromPart records from each of some parts, but a share from fewParts of them if it is small.
	// Then come the next ones. With less from more of them it would write more pages.
	fromPart, fewParts = 64, 4
	// manyLines is the most lines that a search for due ones names.
	manyLines = 4 * storekit.FairParts
)

// fairTopics are those of one generation of the registrations.
type fairTopics struct {
	generation int64
	storekit.FairTopics
	patterns []string
}

// fair returns the setting of the database.
func (t *tx) fair(ctx context.Context) (*fairTopics, error) {
	if known := t.e.fair.Load(); known != nil && known.generation == t.State().Routes {
		return known, nil
	}
	entry, err := t.entry(ctx, false, settingKind, fairKey)
	if err != nil {
		return nil, err
	}
	found := &fairTopics{generation: t.State().Routes}
	if entry != nil {
		if err := json.Unmarshal([]byte(entry.Value), &found.patterns); err != nil {
			return nil, fmt.Errorf("the setting of fair topics cannot be read: %w: call SetFairTopics", err)
		}
	}
	found.FairTopics = storekit.NewFairTopics(found.patterns)
	t.e.fair.Store(found)
	return found, nil
}

// sameFair returns an error if the database has another setting than this process.
func (t *tx) sameFair(ctx context.Context) error {
	fair, err := t.fair(ctx)
	if err == nil && !slices.Equal(fair.patterns, t.e.config.FairTopics) {
		err = fmt.Errorf("%w: the store %q has %q, the database has %q", outmill.ErrFairTopics, t.e.config.Name,
			t.e.config.FairTopics, fair.patterns)
	}
	return err
}

// ServesTurns reports whether the topic is one of Config.FairTopics. See storekit.TenantTurns.
func (e *Engine) ServesTurns(topic string) bool { return e.serves.ServesTurns(topic) }

// SetFairTopics makes Config.FairTopics those of the database. Stores of other processes that have other ones fail from
// then on with outmill.ErrFairTopics. If a topic that becomes fair, or is no longer fair, has undelivered records, it
// changes nothing, and returns outmill.ErrUndelivered: their order, and the turn of their tenants, would be lost.
func (e *Engine) SetFairTopics(ctx context.Context) error {
	const operation = "set the fair topics"
	if err := Ready(ctx, e, operation); err != nil {
		return err
	}
	return e.setFairTopics(ctx, operation, true)
}

// setFairTopics does nothing to a setting that exists, unless change is set. It is a part of Ensure.
func (e *Engine) setFairTopics(ctx context.Context, operation string, change bool) error {
	update := func(fn func(driver.Tx) error) error { return e.db.Update(ctx, driver.Begin{Durable: true}, fn) }
	return e.do(ctx, operation, update, func(ctx context.Context, t *tx) error {
		if err := t.lockRoutes(ctx); err != nil {
			return err
		}
		found, err := t.entry(ctx, true, settingKind, fairKey)
		if err != nil || found != nil && !change {
			return err
		}
		var was []string
		if found != nil {
			// One that cannot be read is as if there were none.
			_ = json.Unmarshal([]byte(found.Value), &was)
		}
		before := storekit.NewFairTopics(was)
		if err := t.noneUndelivered(ctx, func(topic string) bool { return before.ServesTurns(topic) != e.ServesTurns(topic) }); err != nil {
			return err
		}
		if err := t.putAs(ctx, driver.Entry{Kind: settingKind, Key: fairKey, Made: t.now}, e.config.FairTopics); err != nil {
			return err
		}
		return t.bumpRoutes(ctx)
	})
}

// noneUndelivered returns an error if one of the topics has undelivered records.
func (t *tx) noneUndelivered(ctx context.Context, of func(topic string) bool) error {
	lines, err := t.allLines(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(slices.DeleteFunc(lines, func(line driver.Line) bool { return !of(line.Topic) }), linesAtOnce) {
		var searches []driver.Search
		for _, line := range some {
			searches = append(searches, mapped(undelivered, func(stage driver.Stage) driver.Search {
				return driver.Search{By: driver.ByStage, Line: line, Stage: stage, Limit: 1}
			})...)
		}
		found, err := t.Rows(ctx, searches...)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%w: topic %q of group %q", outmill.ErrUndelivered, found[0].Topic, found[0].Group)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// namedLines are the lines of these topics; nil if they are too many to name.
func namedLines(fair storekit.FairTopics, group string, topics ...string) []driver.Line {
	lines := make([]driver.Line, 0, len(topics))
	for _, topic := range topics {
		lines = append(lines, driver.Line{Group: group, Topic: topic})
		for part := 1; part < storekit.FairParts && fair.ServesTurns(topic); part++ {
			lines = append(lines, driver.Line{Group: group, Topic: topic, Part: part})
		}
	}
	if len(lines) > manyLines {
		return nil
	}
	return lines
}

// dueLines are the lines to claim from.
type dueLines struct {
	// names are those of all lines that were found. guess says that an earlier claim has found them, and waits that it has found them locked.
	names        []string
	guess, waits bool
	topics       []string
	// lines are those of a topic in the order of their parts, beginning with the one behind which the last claim ended.
	lines map[string][]driver.Line
}

// dueLines leaves out the parts that are full.
func (e *Engine) dueLines(req outmill.ClaimRequest, names []string) (due dueLines, err error) {
	due.names, due.lines = names, map[string][]driver.Line{}
	for _, name := range names {
		line := driver.LineOf(req.Group, name)
		switch fair := e.isFair(line); {
		case fair && req.Order == outmill.OrderTopic:
			return due, fmt.Errorf("%w: %q", outmill.ErrFairOrder, line.Topic)
		case fair && req.Full != nil && req.Full("", line.Topic)>>line.Part&1 == 1:
			continue
		case due.lines[line.Topic] == nil:
			due.topics = append(due.topics, line.Topic)
		}
		due.lines[line.Topic] = append(due.lines[line.Topic], line)
	}
	for topic, lines := range due.lines {
		if len(lines) == 1 {
			continue
		}
		from := e.parts.begin(req.Group, topic)
		slices.SortFunc(lines, func(a, b driver.Line) int { return cmp.Compare(a.Part, b.Part) })
		if at := slices.IndexFunc(lines, func(line driver.Line) bool { return place(line) >= from }); at > 0 {
			due.lines[topic] = slices.Concat(lines[at:], lines[:at])
		}
	}
	return due, nil
}

func (e *Engine) isFair(line driver.Line) bool { return line.Part > 0 || e.ServesTurns(line.Topic) }

// place is the place of a part for partRotation.
func place(line driver.Line) string { return fmt.Sprintf("%02d", line.Part) }

// serve claims from the parts of a topic, as much of each. last says that it is the last topic.
func (c *claim) serve(ctx context.Context, lines []driver.Line, want int, last bool) error {
	if len(lines) == 1 {
		return c.serveLine(ctx, lines[0], want, last)
	}
	end := len(c.got) + want
	room := func() int { return min(c.room(), end-len(c.got)) }
	for len(lines) > 0 && room() > 0 {
		share := shareOf(room(), min(len(lines), max(fewParts, room()/fromPart)))
		some := lines[:min(len(lines), shareOf(room(), share))]
		lines = slices.Clone(lines[len(some):])
		alone, more, lost, err := c.serveTogether(ctx, some, share)
		if lost {
			// The claim looks again at the lines of which somebody else got rows.
			more = slices.DeleteFunc(slices.Clone(some), func(line driver.Line) bool { return slices.Contains(alone, line) })
		}
		for _, line := range alone {
			if err != nil || room() <= 0 {
				break
			}
			before, want := len(c.got), min(share, room())
			err = c.serveLine(ctx, line, want, false)
			if len(c.got)-before == want {
				more = append(more, line)
			}
		}
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	return nil
}

// serveTogether takes a share from each of the lines of which the ready rows decide, with one read and one write for all.
// It returns the other lines, and those that may have more. lost says that somebody else got rows of some, and that the claim may look
// again.
func (c *claim) serveTogether(ctx context.Context, lines []driver.Line, share int) (alone, more []driver.Line, lost bool, err error) {
	ordered := c.req.Order == outmill.OrderKey
	ask := driver.Ask{Owner: c.owner, Free: c.free, Limit: share, Keys: ordered, Lock: ordered, Pass: true}
	pages, err := c.Pages(ctx, ask, lines)
	if err != nil {
		return nil, nil, false, err
	}
	for i, page := range pages {
		if page.Busy {
			alone = append(alone, lines[i])
			continue
		}
		var full bool
		taken, changed := len(c.taken), len(c.changes.Rows)
		tc := c.of(lines[i], taken+c.shareOf(lines[i], share))
		if ordered {
			c.lines = append(c.lines, lines[i])
			known, _, _ := tc.learn(page, ask)
			full = tc.decide(known, page.Ready)
			tc.noteKeys(known)
		} else {
			slices.SortFunc(page.Ready, byDue)
			_, full = tc.takeRows(page.Ready)
		}
		taken, changed = len(c.taken)-taken, len(c.changes.Rows)-changed
		if full {
			// It has more, but the claim has no room for it.
			c.took(lines[i], taken, taken)
			continue
		}
		c.took(lines[i], taken, share)
		// If nothing of the page was changed, the next one would be the same.
		if len(page.Ready) == share && changed > 0 && c.scanned(changed-taken) {
			more = append(more, lines[i])
		}
	}
	all := c.of(driver.Line{}, 0)
	err = all.finish(ctx, false)
	c.again = c.again || all.lost
	return alone, more, all.lost && c.scanned(share*len(lines)), err
}

// shareOf is how much of the share the claim may take of the line.
func (c *claim) shareOf(line driver.Line, share int) int {
	if c.req.PartLimit <= 0 || !c.e.isFair(line) {
		return share
	}
	left := c.req.PartLimit
	for _, change := range c.got {
		if change.Now.Line == line {
			left--
		}
	}
	return max(0, min(share, left))
}

// took notes that the claim has taken n rows of the line, and had wanted more than that or not.
func (c *claim) took(line driver.Line, n, want int) {
	if n < want && !c.over {
		c.empty[line.Name()] = true
	}
	if n > 0 && c.e.isFair(line) {
		c.e.parts.end(line.Group, line.Topic, afterTurn(place(line)))
	}
}

func (c *claim) serveLine(ctx context.Context, line driver.Line, want int, last bool) error {
	if want = c.shareOf(line, want); want == 0 {
		return nil
	}
	before := c.claimed()
	err := c.of(line, want).run(ctx, last)
	c.took(line, c.claimed()-before, want)
	return err
}
