package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// dueNames returns the names of the selected lines that may have something to claim. It first gives what waits for a
// first group to it: a transaction was open while the group registered.
func (e *Engine) dueNames(ctx context.Context, req outmill.ClaimRequest) ([]string, error) {
	names, unrouted, err := e.lookForLines(ctx, req)
	if err != nil || !unrouted {
		return names, err
	}
	adopted, err := e.adopt(ctx, "claim", req.Topics.Matcher())
	if err == nil && adopted > 0 {
		names, _, err = e.lookForLines(ctx, req)
	}
	return names, err
}

// lookForLines also reports whether a first group may get what waits for one.
func (e *Engine) lookForLines(ctx context.Context, req outmill.ClaimRequest) (names []string, unrouted bool, err error) {
	ask := driver.Topics{Group: req.Group, Free: freeBlockers(req), Held: req.Order != outmill.OrderKey}
	if topics, listed := req.Topics.Names(); listed && len(topics) <= manyTopics {
		if ask.Lines = namedLines(e.serves, req.Group, topics...); req.Order == outmill.OrderTopic && slices.ContainsFunc(topics, e.ServesTurns) {
			return nil, false, e.explain(ctx, "claim", fmt.Errorf("%w: one of %q", outmill.ErrFairOrder, topics))
		}
	}
	if e.quiet(ctx, req, ask) {
		return nil, false, nil
	}
	err = e.do(ctx, "claim", e.own(ctx, e.db.View, driver.Begin{Topics: &ask}), func(ctx context.Context, t *tx) (err error) {
		ask := ask
		if err := t.sameFair(ctx); err != nil {
			return err
		}
		if ask.Free, err = t.freeBlockers(ctx, req); err != nil {
			return err
		}
		lines, err := t.Due(ctx, ask)
		if err != nil {
			return err
		}
		match := req.Topics.Matcher()
		names = nil
		for _, line := range lines {
			if match(line.Topic) && !t.pauses.Topic(req.Group, line.Topic) {
				names = append(names, line.Name())
			}
		}
		unrouted, err = t.mayAdopt(ctx, match)
		return err
	})
	e.empty.note(req, err == nil && len(names) == 0 && !unrouted)
	return names, unrouted, err
}

// quiet asks the driver where the last look has found nothing. Of an error the look that follows tells.
func (e *Engine) quiet(ctx context.Context, req outmill.ClaimRequest, ask driver.Topics) bool {
	looker, ok := e.db.(driver.Looker)
	if !ok || !e.empty.has(req) || e.ready(ctx) != nil {
		return false
	}
	quiet, err := looker.Quiet(ctx, ask, e.pauses.load().Generation())
	return quiet && err == nil
}

// emptyLooks are the groups and selections whose last look has found nothing. The zero value is ready to use.
type emptyLooks struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// mostEmpty limits the memory for selections that are not used again.
const mostEmpty = 1000

func (l *emptyLooks) has(req outmill.ClaimRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, empty := l.known[emptyKey(req)]
	return empty
}

func (l *emptyLooks) note(req outmill.ClaimRequest, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !empty:
		delete(l.known, emptyKey(req))
		return
	case l.known == nil || len(l.known) >= mostEmpty:
		l.known = map[string]struct{}{}
	}
	l.known[emptyKey(req)] = struct{}{}
}

func emptyKey(req outmill.ClaimRequest) string {
	return req.Group + "\x00" + strings.Join(req.Topics.Include, "\x00") + "\x00\x00" + strings.Join(req.Topics.Exclude, "\x00")
}

// mayAdopt reports whether rows of the topics wait that a registered group is to have.
func (t *tx) mayAdopt(ctx context.Context, selects func(topic string) bool) (bool, error) {
	if !t.State().Unrouted {
		return false, nil
	}
	waiting, err := t.LinesOf(ctx, "")
	if err != nil {
		return false, err
	}
	routes, err := t.routing(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(waiting, func(line driver.Line) bool {
		_, takes := routes.First(line.Topic)
		return takes && selects(line.Topic)
	}), nil
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
		if !t.pauses.Has(number) || driver.IsKeyedPause(name) && req.Order == outmill.OrderKey {
			free = append(free, name)
		}
	}
	return free, err
}
