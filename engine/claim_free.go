package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

// dueSearch finds the rows that a claim without an order may take.
func (c *topicClaim) dueSearch(limit int) driver.Search {
	return driver.Search{By: driver.ByDue, Line: c.line, Limit: limit, Free: true}
}

// takeFree takes rows without an order, those that have been due longest first. Expired rows go
// dead, and paused ones are held, a bounded number in each transaction.
func (c *topicClaim) takeFree(ctx context.Context) error {
	if c.waits {
		if _, err := c.dropFirst(ctx, false); err != nil {
			return err
		}
	}
	for limit := c.want; ; limit = max(c.want, min(2*limit, scanLimit)) {
		rows, err := c.Rows(ctx, c.dueSearch(limit))
		if err != nil {
			return err
		}
		if rows, err = c.addHeld(ctx, rows, limit); err != nil {
			return err
		}
		slices.SortFunc(rows, byDue)
		moved, full := c.takeRows(rows)
		if full || moved == 0 || !c.scanned(moved) {
			return nil
		}
		if err := c.finish(ctx, false); err != nil || c.want <= 0 || c.room() <= 0 {
			return err
		}
	}
}

// addHeld adds the held rows that a claim without an order may take: those of pauses that have ended, and all
// that ordered claims of the group have held under keys.
func (c *topicClaim) addHeld(ctx context.Context, rows []driver.Row, limit int) ([]driver.Row, error) {
	if !c.State().Notes {
		return rows, nil
	}
	held, err := c.freeHeld(ctx, driver.Ask{Line: c.line, Owner: c.owner, Free: c.free, Limit: limit})
	if err != nil {
		return nil, err
	}
	keyed, err := c.Rows(ctx, driver.Search{By: driver.ByKeyed, Line: c.line, Limit: limit, Free: true})
	if err != nil {
		return nil, err
	}
	return append(rows, eachOnce(slices.Concat(held, keyed))...), nil
}

// freeHeld are the first rows that notes hold. Where the first notes hold nothing, it drops them: they would hide those behind them from
// each claim.
func (c *topicClaim) freeHeld(ctx context.Context, ask driver.Ask) ([]driver.Row, error) {
	dropped := false
	for range attempts {
		page, err := c.pageOf(ctx, ask)
		if err != nil || len(page.Notes) == 0 || len(page.Held) > 0 {
			return page.Held, err
		}
		// It has locked rows, for which another claim may wait that has locked the line. So it waits for the line in a transaction of its own.
		if dropped, err = c.dropFirst(ctx, true); err != nil || len(c.busy) > 0 {
			return nil, err
		}
	}
	// If none was dropped, others have locked what they hold.
	c.again = c.again || dropped
	return nil, nil
}

// dropFirst drops the first notes that hold nothing. It locks the line, because a claim by key may be about to hold
// rows under one of them, and reports whether it has dropped any.
func (c *topicClaim) dropFirst(ctx context.Context, pass bool) (dropped bool, err error) {
	ask := driver.Ask{Line: c.line, Owner: c.owner, Free: c.free, Limit: c.notesPage(), Lock: true, Pass: pass}
	page, err := c.pageOf(ctx, ask)
	if err != nil || page.Busy {
		return false, err
	}
	c.lines = append(c.lines, c.line)
	c.dropEmpty(page)
	dropped = len(c.changes.Drop) > 0
	_, err = c.write(ctx)
	return dropped, err
}

// takeRows takes what fits. It returns how many rows it has moved out of the way, and whether the claim needs
// no more of the topic.
func (c *topicClaim) takeRows(rows []driver.Row) (moved int, full bool) {
	for _, r := range rows {
		switch pause := c.pauses.Of(c.line.Group, c.line.Topic, r.Key, r.Tenant); {
		case expired(&r, c.now):
			c.change(r, expire)
			moved++
		case pause != 0:
			c.holdByPause(r, pause)
			moved++
		case r.Broken != "" || c.refuses(&r) != "":
			c.take(r)
			moved++
		case len(c.taken) < c.want && c.fits(&r):
			c.take(r)
		default:
			return moved, true
		}
	}
	return moved, false
}

// holdByPause holds a row under the note of a pause. Its key does not matter for a claim without an order.
func (c *topicClaim) holdByPause(r driver.Row, pause int64) {
	name := driver.PauseNote(pause)
	if r.Key != "" {
		name = driver.KeyedPauseNote(pause)
	}
	c.change(r, func(r *driver.Row) { hold(r, name) })
	c.changes.Notes = append(c.changes.Notes, driver.Note{Line: c.line, Name: name, Blocker: name, Head: r.Seq})
}
