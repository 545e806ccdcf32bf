package engine

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// takeByTopic takes rows as if the topic were one key.
func (c *topicClaim) takeByTopic(ctx context.Context) error {
	page, ready, err := c.open(ctx)
	if err != nil || !ready {
		return err
	}
	c.dropEmpty(page)
	state, err := c.Whole(ctx, c.line, c.owner)
	if err != nil || state.Other != "" {
		return err
	}
	limit := c.e.config.AtOnce.Page(c.want)
	// Later rows are for another transaction, because an earlier one may come before that.
	rows, err := c.Rows(ctx, driver.Search{By: driver.ByPlace, Line: c.line, Limit: limit})
	if err != nil {
		return err
	}
	c.again = c.takeInOrder(rows, min(state.Waiting, state.Due)) && len(rows) == limit || c.again
	return nil
}

// takeInOrder takes rows up to the first one that must not be taken, and reports whether there was none.
func (c *topicClaim) takeInOrder(rows []driver.Row, waiting int64) bool {
	for _, r := range rows {
		switch {
		case c.late(r):
			return false
		case expired(&r, c.now):
			c.change(r, expire)
		case r.Seq > waiting && c.req.KeyPolicy != outmill.KeySkip,
			c.pauses.Of(c.line.Group, c.line.Topic, r.Key, r.Tenant) != 0,
			c.found() == c.want, !c.fits(&r):
			return false
		default:
			c.take(r)
		}
	}
	return true
}
