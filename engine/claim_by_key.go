package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// A claim by key goes through the ready rows of a line, together with the held rows of keys whose notes do not
// block it, in the order of their Seqs. When it must not take a row, it takes no later row of the key: it
// holds them under the key's note, so that later claims do not meet them again.

// takeByKey takes rows, those of each key in their order.
func (c *topicClaim) takeByKey(ctx context.Context) error {
	ask := c.firstAsk()
	page, ready, err := c.open(ctx)
	if err != nil || !ready {
		return err
	}
	for lost := map[lineKey]bool{}; ; {
		rows := page.Ready
		if len(page.Held) > 0 {
			rows = slices.Concat(page.Held, page.Ready)
			slices.SortFunc(rows, bySeq)
		}
		known, end, cut := c.learn(page, ask)
		for at := range lost {
			// The next claim sees what has become of the row that was lost.
			if k := known[at.key]; k != nil {
				k.block("")
			}
		}
		if len(page.Ready) == ask.Limit {
			end = min(end, page.Ready[ask.Limit-1].Seq)
		}
		full := c.decide(known, leaveBehind(known, rows, end))
		c.noteKeys(known)
		more := end < driver.None || len(page.Notes) == ask.Limit || cut && len(c.changes.Rows) > 0
		if full || c.found() == c.want || !more || !c.scanned(len(rows)+len(page.Notes)) {
			return nil
		}
		// The rows that are taken are written now, because the next page must not have them as ready.
		if err := c.writeOn(ctx, lost); err != nil {
			return err
		}
		if page, ready, err = c.open(ctx); err != nil || !ready {
			return err
		}
	}
}

// leaveBehind returns the rows up to the end of a page. Of the keys of the others the next page may have earlier rows.
func leaveBehind(known keys, rows []driver.Row, last int64) []driver.Row {
	n := len(rows)
	for n > 0 && rows[n-1].Seq > last {
		n--
	}
	known.leave(rows[n:])
	return rows[:n]
}

// decide decides about the rows, and reports whether the claim needs no more of the topic.
func (c *topicClaim) decide(known keys, rows []driver.Row) (full bool) {
	c.changes.Rows = slices.Grow(c.changes.Rows, min(len(rows), c.want))
	for i, r := range rows {
		k := known.of(r.Key)
		pause, late := c.pauses.Of(c.line.Group, c.line.Topic, r.Key, r.Tenant), c.late(r)
		if !late && expired(&r, c.now) {
			c.change(r, expire)
			continue
		}
		c.blocked(k, r, pause)
		switch {
		case late:
			known.leave(rows[i:])
			return true
		case pause != 0 && r.Key == "":
			c.holdByPause(r, pause)
		case c.parksAlong(k, r, pause):
			c.change(r, park)
		case k.blocked:
			k.stays = k.stays || r.Seq > k.Parked
			c.holdBehind(k, r)
		case c.found() == c.want || !c.fits(&r):
			known.leave(rows[i:])
			return true
		default:
			before := len(c.taken)
			if c.take(r) {
				k.Parked = min(k.Parked, r.Seq)
			}
			k.taken = k.taken || len(c.taken) > before
		}
	}
	return false
}

// blocked blocks the key if the row must not be taken now, and so no later row of the key.
func (c *topicClaim) blocked(k *key, r driver.Row, pause int64) {
	switch {
	case k.Other != "":
		k.block(k.Other)
	case r.Seq > k.Waiting && c.req.KeyPolicy != outmill.KeySkip:
		k.block(driver.RetryBlocks)
	case c.cut == nil && r.Seq > k.Due:
		k.block(driver.RetryBlocks)
	case k.note == nil && r.Seq > k.Held, r.Seq >= k.head:
		// Earlier rows of the key are held, and this claim does not look at them all.
		k.block("")
	case pause != 0:
		if !k.blocked {
			// A row that has expired blocks nothing, so the note is looked at then.
			k.until = r.Expires
		}
		k.block(driver.PauseNote(pause))
	}
}

// parksAlong reports whether the row goes dead with a parked one of its key. A paused key stays as it is.
func (c *topicClaim) parksAlong(k *key, r driver.Row, pause int64) bool {
	_, paused := driver.ByPause(k.by)
	return c.req.KeyPolicy == outmill.KeyPark && r.Seq > k.Parked && pause == 0 && !paused
}

// open locks the line, admits what is due, and reads the first page. ready is false if the claim must return
// nothing of the topic: rows of it still wait for their group to adopt them, due rows could not be admitted, or
// another claim has the line while this one has other lines.
func (c *topicClaim) open(ctx context.Context) (page driver.Page, ready bool, err error) {
	ask := c.firstAsk()
	if page, err = c.pageOf(ctx, ask); err != nil || page.Busy {
		return page, false, err
	}
	c.lines = append(c.lines, c.line)
	if len(page.Due) > 0 {
		lost, err := c.admit(ctx, page.Due)
		if err != nil || lost {
			c.again = true
			return page, false, err
		}
		ask.Due = 0
		if page, err = c.pageOf(ctx, ask); err != nil {
			return page, false, err
		}
	}
	if !page.Unrouted {
		return page, true, nil
	}
	routes, err := c.routing(ctx)
	if err != nil {
		return page, false, err
	}
	_, takes := routes.First(c.line.Topic)
	c.unrouted = c.unrouted || takes
	return page, !takes, nil
}

// firstAsk is the first Ask of an ordered claim of the topic.
func (c *topicClaim) firstAsk() driver.Ask {
	ask := driver.Ask{
		Line: c.line, Owner: c.owner, Free: c.free, Limit: c.notesPage(), Lock: true, Pass: c.hasOther(c.line), Due: c.admits + 1,
	}
	if c.req.Order == outmill.OrderKey {
		ask.Limit, ask.Keys = c.e.config.AtOnce.Page(c.want), true
		most := min(cmp.Or(c.req.MaxBytes, c.e.config.ReadBytes), readAlong)
		ask.Want, ask.MaxBytes, ask.MaxRows = c.content, max(0, most-c.bytes), c.want-c.found()
	}
	return ask
}

// notesPage is the limit of the notes and held rows of a page of another claim.
func (c *claim) notesPage() int { return c.e.config.AtOnce.Page(0) }

// hasOther reports whether the claim has locked another line.
func (c *claim) hasOther(line driver.Line) bool {
	return slices.ContainsFunc(c.lines, func(l driver.Line) bool { return l != line })
}

// pageOf reads a page, and takes over its time: the claim may have waited for the line.
func (c *claim) pageOf(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page, err := c.Page(ctx, ask)
	c.now = max(c.now, page.Now)
	c.keep(page.Contents)
	if page.Busy {
		c.again, c.busy = true, []string{ask.Name()}
	}
	return page, err
}

// admit makes due rows ready, those that have been due longest first, as many as this transaction may. lost says
// that it has given up on some: a later row of their keys must not be returned before them.
func (c *topicClaim) admit(ctx context.Context, rows []driver.Row) (lost bool, err error) {
	slices.SortFunc(rows, byWake)
	if len(rows) > c.admits {
		rows, c.cut, c.again = rows[:c.admits], &driver.Row{}, true
		if len(rows) > 0 {
			c.cut = &rows[len(rows)-1]
		}
	}
	c.admits -= len(rows)
	ids := mapped(rows, func(r driver.Row) outmill.WorkItemID { return r.ID })
	find := func(ctx context.Context, _ int) ([]driver.Row, error) {
		if first := rows; first != nil {
			rows = nil
			return first, nil
		}
		found, err := c.Find(ctx, ids)
		return slices.DeleteFunc(found, func(r driver.Row) bool { return !due(&r, c.now) }), err
	}
	_, lost, err = c.changeAll(ctx, len(ids), find, func(r driver.Row) {
		c.change(r, func(r *driver.Row) { admit(r, c.now) })
	})
	return lost, err
}
