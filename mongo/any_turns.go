package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// takeAnyInTurns takes records of one topic without an order, so that the tenants take turns. The
// comment on stageInTurn explains turns.
func (c *claim) takeAnyInTurns(ctx context.Context, topic string, want int) error {
	of := line{reader(c.req.Group), topic}
	unlock, err := c.s.inUse.Lock(ctx, reading{of})
	if err != nil {
		return err
	}
	defer unlock()
	for tries := 1; want > 0 && !c.over; tries++ {
		pauses, moved, err := c.makeDue(ctx, of)
		if err != nil || pauses.Topic(c.req.Group, topic) {
			return err
		}
		seen, goesOn, err := c.lookInTurns(ctx, of, want, pauses)
		if err != nil {
			return err
		}
		away, err := c.makeWay(ctx, of, seen)
		if err != nil {
			return err
		}
		chosen := seen.chosen
		c.s.trails.of(of).flow(goesOn && len(chosen.list) == want)
		if len(chosen.list) == 0 {
			c.again = c.again || moved+away > 0 && !chosen.full
			return nil
		}
		taken, err := c.lease(ctx, chosen)
		if err != nil {
			return err
		}
		want -= taken
		// See takeAny. If records were in the way, the tenants that have more fill the claim.
		if chosen.full && taken > 0 || taken == len(chosen.list) && (!goesOn || away == 0) || tries == maxTries {
			return nil
		}
	}
	return nil
}

// lookInTurns chooses records, and finds those to move out of the way.
func (c *claim) lookInTurns(ctx context.Context, of line, want int, pauses *roles.PauseList) (seen sight, goesOn bool, err error) {
	now, err := c.s.now(ctx)
	if err != nil {
		return sight{}, false, err
	}
	rooms := storekit.RoomsOf(c.req, of.Topic, c.records)
	page, err := c.s.readInTurns(ctx, of, max(want, c.ask), rooms)
	if err != nil {
		return sight{}, false, err
	}
	queues := map[int64][]candidate{}
	var turns []int64
	for _, r := range page.list {
		if queues[r.Turn] == nil {
			turns = append(turns, r.Turn)
		}
		enqueue(queues, r)
	}
	end := inTurns(fromPlace(page.place, turns), queues, func(r candidate) verdict {
		if rooms.Of(r.TenantID) <= 0 {
			return passed
		}
		if r.expired(now) {
			seen.expired = append(seen.expired, r.ID)
			return passed
		}
		if number := pauses.Of(c.req.Group, of.Topic, r.Key, r.TenantID); number != 0 {
			seen.paused = append(seen.paused, pausedRecord{r, number})
			return passed
		}
		if !c.choose(&seen.chosen, r, want) {
			return full
		}
		rooms.Take(r.TenantID)
		return took
	})
	c.s.endTurns(of, end)
	return seen, page.goesOn, nil
}

// makeDue gives a turn to records that are due and have none: ready and held ones, those whose
// wait, delay or lease has ended, and those that are aside for a pause that is gone. Of each kind
// it takes as many as one update may. It returns the pauses, and the number of records that it
// moved.
func (c *claim) makeDue(ctx context.Context, of line) (pauses *roles.PauseList, moved int, err error) {
	for n := 1; ; n++ {
		known := c.s.pauses.Load()
		found, err := c.notInTurn(ctx, of, known)
		if err != nil {
			return nil, moved, err
		}
		if found.pauses.Generation() != known.Generation() && n < searchTries {
			continue
		}
		back := 0
		if len(found.returned) > 0 && n <= searchTries {
			if back, err = c.s.bringBack(ctx, found.returned); err != nil {
				return nil, moved, err
			}
		}
		did, err := c.moveDue(ctx, of, found)
		if moved += did + back; err != nil || back == 0 {
			return found.pauses, moved, err
		}
	}
}

// moveDue gives turns to what a search has found, and returns how many records it moved.
func (c *claim) moveDue(ctx context.Context, of line, found candidates) (int, error) {
	most := c.s.atOnce.Admit(c.req.Limit)
	var ready, others []candidate
	var expired bson.A
	keys, inStage := map[lineKey]bool{}, map[int]int{}
	for _, r := range found.due {
		if inStage[r.Stage]++; inStage[r.Stage] == most {
			c.again = true
		}
		switch {
		case r.Stage == storekit.StageReady:
			ready = append(ready, r)
			continue
		case r.expired(found.now):
			expired = append(expired, r.ID)
		default:
			others = append(others, r)
		}
		if r.Key != "" {
			keys[lineKey{of.Group, of.Topic, r.Key}] = true
		}
	}
	moved, err := c.s.passExpired(ctx, expired)
	if err != nil {
		return moved, err
	}
	for _, move := range []func() (int, error){
		func() (int, error) { return c.s.giveTurns(ctx, ready) },
		func() (int, error) { return c.s.lineUp(ctx, others) },
	} {
		n, err := move()
		if moved += n; err != nil {
			return moved, err
		}
	}
	return moved, c.s.openLanes(ctx, keys)
}

// notInTurn finds the records that moveDue makes ready, and those that come back after a pause.
func (c *claim) notInTurn(ctx context.Context, of line, known *roles.PauseList) (found candidates, err error) {
	if found.now, err = c.s.now(ctx); err != nil {
		return found, err
	}
	most := c.s.atOnce.Admit(c.req.Limit)
	var each []driver.Pipeline
	for _, stage := range dueStages {
		filter, order := of.due(stage, found.now)
		if stage == storekit.StageReady {
			filter = of.in(stage)
		}
		each = append(each, some(filter, most, order, candidateFields...))
	}
	err = c.s.search(ctx, &found, of, each, known)
	return found, err
}
