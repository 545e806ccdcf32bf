package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// maxTries bounds how often a claim searches again after other claims took the records that it
// chose.
const maxTries = 4

// takeAny takes records of one topic without an order, the earliest due first.
func (c *claim) takeAny(ctx context.Context, topic string, want int) error {
	of := line{reader(c.req.Group), topic}
	broughtBack := false
	for tries := 1; want > 0 && !c.over; tries++ {
		seen, err := c.look(ctx, of, want)
		if err != nil {
			return err
		}
		if len(seen.returned) > 0 && !broughtBack {
			// They may have been due longer than the chosen ones.
			broughtBack, c.over = true, false
			if _, err := c.s.bringBack(ctx, seen.returned); err != nil {
				return err
			}
			continue
		}
		moved, err := c.makeWay(ctx, of, seen)
		if err != nil {
			return err
		}
		chosen := seen.chosen
		if len(chosen.list) == 0 {
			c.again = c.again || moved > 0 && !chosen.full
			return nil
		}
		taken, err := c.lease(ctx, chosen)
		c.s.trails.of(of).got(len(chosen.list), taken)
		if err != nil {
			return err
		}
		want -= taken
		// If other claims were faster, search again: there may be records behind those that they
		// took.
		if taken == len(chosen.list) || chosen.full && taken > 0 || tries == maxTries {
			return nil
		}
	}
	return nil
}

// reading is the lock of a topic from which a claim without an order chooses.
type reading struct{ line }

// sight is the result of a look: the chosen records, and records to move out of the way, or to
// bring back.
type sight struct {
	chosen            choice
	expired, returned bson.A
	paused            []pausedRecord
}

// makeWay moves records out of the way of the next claims. It returns their number, and that of
// the records that the next claim has to bring back.
func (c *claim) makeWay(ctx context.Context, of line, seen sight) (int, error) {
	passed, err := c.s.passExpired(ctx, seen.expired)
	if err != nil {
		return 0, err
	}
	aside, err := c.s.setAside(ctx, of, seen.paused)
	if err != nil {
		return 0, err
	}
	if aside > 0 {
		c.ask = min(max(2*c.ask, 2*c.req.Limit), c.s.asideAtOnce)
	}
	return passed + aside + len(seen.returned), nil
}

// look chooses records of a topic. Claims of this process choose one after another, so that they
// choose different records.
func (c *claim) look(ctx context.Context, of line, want int) (sight, error) {
	unlock, err := c.s.inUse.Lock(ctx, reading{of})
	if err != nil {
		return sight{}, err
	}
	defer unlock()
	now, err := c.s.now(ctx)
	if err != nil {
		return sight{}, err
	}
	trail, stirs := c.s.trails.of(of), c.s.trails.stirred()
	if from, skip, ok := trail.next(time.Now(), stirs, want); ok {
		list, pauses, err := c.ahead(ctx, of, from, skip, want)
		if err != nil || pauses.Topic(c.req.Group, of.Topic) {
			return sight{}, err
		}
		before := c.over
		if seen := c.chooseFrom(of, list, pauses, now, want); seen.chosen.full || len(seen.chosen.list) == want {
			trail.chose(list[len(list)-1].Seq, true)
			return seen, nil
		}
		c.over = before
	}
	began := time.Now()
	found, err := c.s.candidates(ctx, of, max(want, c.ask))
	if err != nil || found.pauses.Topic(c.req.Group, of.Topic) {
		return sight{}, err
	}
	trail.looked(began, stirs, time.Since(began))
	seen := c.chooseFrom(of, found.due, found.pauses, found.now, want)
	seen.returned = found.returned
	trail.chose(lastInLine(seen.chosen.list), seen.chosen.full || len(seen.chosen.list) == want)
	return seen, nil
}

func (c *claim) chooseFrom(of line, list []candidate, pauses *roles.PauseList, now time.Time, want int) (seen sight) {
	for _, r := range list {
		if r.expired(now) {
			seen.expired = append(seen.expired, r.ID)
		} else if number := pauses.Of(c.req.Group, of.Topic, r.Key, r.TenantID); number != 0 {
			seen.paused = append(seen.paused, pausedRecord{r, number})
		} else if !c.choose(&seen.chosen, r, want) {
			break
		}
	}
	return seen
}

// lastInLine returns the last seq of the ready records.
func lastInLine(list []candidate) (last bson.Timestamp) {
	for _, r := range list {
		if isReady(r.Stage) && place(r.Seq) > place(last) {
			last = r.Seq
		}
	}
	return last
}

// ahead reads up to want ready records whose seq is after from, and the pauses. It reads whole
// documents, and stops at the claim's MaxBytes. So the change of the pauses comes first.
func (c *claim) ahead(
	ctx context.Context, of line, from bson.Timestamp, skip, want int,
) (list []candidate, pauses *roles.PauseList, err error) {
	ready := driver.Pipeline{
		{{Key: "$match", Value: of.ready(bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: from}}})}},
		{{Key: "$sort", Value: ascending("seq")}},
	}
	if skip > 0 {
		ready = append(ready, bson.D{{Key: "$skip", Value: skip}})
	}
	ready = append(ready, bson.D{{Key: "$limit", Value: want}})
	first := c.s.lastChange()
	stages := slices.Concat(first.stages, driver.Pipeline{unionWith(part{c.s.records, ready}), c.s.anyLane()})
	asked := time.Now()
	cursor, err := first.from.Aggregate(ctx, stages, options.Aggregate().SetBatchSize(oneBatch))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	bytes, generation, lanes := c.bytes, int64(0), false
	for cursor.Next(ctx) {
		if n, is := cursor.Current.Lookup(pausesField).AsInt64OK(); is && len(list) == 0 {
			generation = n
			continue
		}
		if _, err := cursor.Current.LookupErr(laneMark); err == nil {
			lanes = true
			break
		}
		d := &document{}
		if err := cursor.Decode(d); err != nil {
			return nil, nil, err
		}
		list = append(list, d.candidate())
		if bytes += d.Size; c.req.MaxBytes > 0 && bytes > c.req.MaxBytes {
			pauses, err = c.s.pausesOf(ctx, generation)
			return list, pauses, err
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, nil, err
	}
	c.s.laneSeen.note(lanes, asked)
	pauses, err = c.s.pausesOf(ctx, generation)
	return list, pauses, err
}

// candidates are the records from which a claim without an order chooses.
type candidates struct {
	// due are the first records of each stage that may be due, by the estimate of the server's time,
	// sorted by the time from which they are due.
	due []candidate
	// returned are the first records that are aside for pauses that are gone.
	returned bson.A
	pauses   *roles.PauseList
	now      time.Time
}

func (s *Store) candidates(ctx context.Context, of line, want int) (found candidates, err error) {
	for range searchTries {
		known := s.pauses.Load()
		if found, err = s.candidatesBy(ctx, of, want, known); err != nil || found.pauses.Generation() == known.Generation() {
			break
		}
	}
	slices.SortFunc(found.due, func(a, b candidate) int {
		return cmp.Or(a.due().Compare(b.due()), cmp.Compare(place(a.Seq), place(b.Seq)))
	})
	return found, err
}

func (s *Store) candidatesBy(ctx context.Context, of line, want int, known *roles.PauseList) (found candidates, err error) {
	if found.now, err = s.now(ctx); err != nil {
		return found, err
	}
	// Each stage has its own query, because a query for several stages would sort all its
	// results.
	each := make([]driver.Pipeline, len(dueStages))
	for i, stage := range dueStages {
		filter, order := of.due(stage, found.now)
		each[i] = some(filter, want, order, candidateFields...)
	}
	err = s.search(ctx, &found, of, each, known)
	return found, err
}

// search carries out the queries for due records, together with that for those that come back
// after a pause.
func (s *Store) search(ctx context.Context, found *candidates, of line, each []driver.Pipeline, known *roles.PauseList) error {
	back := of.resumed(known)
	each = append(each, driver.Pipeline{{{Key: "$match", Value: back}}, {{Key: "$limit", Value: s.asideAtOnce}}, project("stage")})
	all, err := aggregateAll[struct {
		Record candidate `bson:",inline"`
		Pauses int64     `bson:"pauses"`
	}](ctx, s.records, append(union(s.records, each...), unionWith(s.lastChange())))
	if err != nil {
		return err
	}
	var generation int64
	for _, f := range all {
		switch generation = max(generation, f.Pauses); {
		case f.Pauses > 0:
		case f.Record.Stage == storekit.StageAside:
			found.returned = append(found.returned, f.Record.ID)
		default:
			found.due = append(found.due, f.Record)
		}
	}
	found.pauses, err = s.pausesOf(ctx, generation)
	return err
}
