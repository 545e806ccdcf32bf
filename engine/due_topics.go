package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// dueTopics returns the selected topics that may have something to claim. It first gives what waits for a
// first group to it: a transaction was open while the group registered.
func (e *Engine) dueTopics(ctx context.Context, req outmill.ClaimRequest) ([]string, error) {
	topics, unrouted, err := e.lookForTopics(ctx, req)
	if err != nil || !unrouted {
		return topics, err
	}
	adopted, err := e.adopt(ctx, "claim", req.Topics.Matcher())
	if err == nil && adopted > 0 {
		topics, _, err = e.lookForTopics(ctx, req)
	}
	return topics, err
}

// lookForTopics also reports whether a first group may get what waits for one.
func (e *Engine) lookForTopics(ctx context.Context, req outmill.ClaimRequest) (topics []string, unrouted bool, err error) {
	ask := driver.Topics{Group: req.Group, Free: freeBlockers(req), Held: req.Order != outmill.OrderKey}
	if names, listed := req.Topics.Names(); listed && len(names) <= manyTopics {
		ask.Names = names
	}
	run := func(fn func(driver.Tx) error) error { return e.db.View(ctx, driver.Begin{Topics: &ask}, fn) }
	err = e.do(ctx, "claim", run, func(ctx context.Context, t *tx) (err error) {
		ask := ask
		if ask.Free, err = t.freeBlockers(ctx, req); err != nil {
			return err
		}
		if topics, err = t.Due(ctx, ask); err != nil {
			return err
		}
		match := req.Topics.Matcher()
		topics = slices.DeleteFunc(topics, func(topic string) bool { return !match(topic) || t.pauses.Topic(req.Group, topic) })
		unrouted, err = t.mayAdopt(ctx, match)
		return err
	})
	return topics, unrouted, err
}

// mayAdopt reports whether rows of the topics wait that a registered group is to have.
func (t *tx) mayAdopt(ctx context.Context, selects func(topic string) bool) (bool, error) {
	if !t.State().Unrouted {
		return false, nil
	}
	waiting, err := t.TopicsOf(ctx, "")
	if err != nil {
		return false, err
	}
	routes, err := t.routing(ctx)
	if err != nil {
		return false, err
	}
	return len(routes.FirstOf(slices.DeleteFunc(waiting, func(topic string) bool { return !selects(topic) }))) > 0, nil
}

// freeBlockers are the Blockers of notes that do not block the claim, whatever is paused.
func freeBlockers(req outmill.ClaimRequest) []string {
	free := []string{"", req.Owner.String()}
	if req.KeyPolicy == outmill.KeySkip {
		free = append(free, driver.RetryBlocks)
	}
	return free
}

// freeBlockers adds the pauses that have ended. A claim in the order of keys also takes the rows that a claim
// without an order has held for a pause, and holds them under the notes of their keys.
func (t *tx) freeBlockers(ctx context.Context, req outmill.ClaimRequest) ([]string, error) {
	free := freeBlockers(req)
	if !t.State().Paused {
		return free, nil
	}
	blockers, err := t.Pausing(ctx, req.Group)
	for _, name := range blockers {
		number, _ := driver.ByPause(name)
		keyed := name == driver.KeyedPauseNote(number)
		if !t.pauses.Has(number) || keyed && req.Order == outmill.OrderKey {
			free = append(free, name)
		}
	}
	return free, err
}
