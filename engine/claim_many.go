package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// mostTogether is the most topics that a claim reads at once.
const mostTogether = storekit.FairParts

// together reports whether the claim has so many topics that it serves some of them with one read and one write. By topic, a claim has one
// topic to itself.
func (c *claim) together(due dueLines) bool {
	return len(due.topics) > manyTopics && c.req.Order != outmill.OrderTopic && !due.waits
}

// runTogether claims a share from each topic, and then more from those that have more, while there is room.
func (c *claim) runTogether(ctx context.Context, due dueLines) error {
	share := shareOf(c.req.Limit, len(due.topics))
	var open []driver.Line
	for topics := due.topics; len(topics) > 0 && c.room() > 0; {
		some := topics[:min(len(topics), shareOf(c.room(), share), mostTogether)]
		topics = topics[len(some):]
		var lines []driver.Line
		for _, topic := range some {
			switch of := due.lines[topic]; {
			case c.pauses.Topic(c.req.Group, topic):
			case len(of) == 1:
				lines = append(lines, of[0])
			case c.room() > 0:
				if err := c.serve(ctx, of, min(share, c.room()), false); err != nil {
					return err
				}
			}
		}
		more, err := c.shareTogether(ctx, lines, share)
		if err != nil {
			return err
		}
		if open = append(open, more...); share == 1 {
			// Each has had its turn, and the next claims go on with the others.
			for _, line := range more {
				c.empty[line.Name()] = true
			}
		}
	}
	return c.serveInTurn(ctx, open, c.req.Limit)
}

// shareTogether claims a share from each line, and returns those that may have more.
func (c *claim) shareTogether(ctx context.Context, lines []driver.Line, share int) (open []driver.Line, err error) {
	for len(lines) > 0 && c.room() > 0 {
		before := len(c.got)
		alone, more, lost, err := c.serveTogether(ctx, lines, share)
		if err != nil {
			return nil, err
		}
		if err := c.serveInTurn(ctx, alone, share); err != nil {
			return nil, err
		}
		open = append(open, more...)
		if !lost {
			break
		}
		got := map[driver.Line]int{}
		for _, change := range c.got[before:] {
			got[change.Now.Line]++
		}
		// Somebody else got rows of others.
		lines = slices.DeleteFunc(lines, func(line driver.Line) bool { return got[line] >= share || slices.Contains(alone, line) })
	}
	return open, nil
}

// serveInTurn claims a share from each line by itself, while there is room.
func (c *claim) serveInTurn(ctx context.Context, lines []driver.Line, share int) error {
	for _, line := range lines {
		if c.room() <= 0 {
			break
		}
		if err := c.serveLine(ctx, line, min(share, c.room()), false); err != nil {
			return err
		}
	}
	return nil
}
