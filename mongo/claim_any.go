package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/storekit"
)

// maxTries bounds how often a claim searches again after other claims took the records that it
// chose.
const maxTries = 4

// takeAny takes records of one topic without an order, the earliest due first.
func (c *claim) takeAny(ctx context.Context, topic string, want int) error {
	of := line{reader(c.req.Group), topic}
	for tries := 1; want > 0 && !c.over; tries++ {
		chosen, expired, err := c.look(ctx, of, want)
		if err != nil {
			return err
		}
		passed, err := c.s.passExpired(ctx, expired)
		if err != nil {
			return err
		}
		if len(chosen.list) == 0 {
			c.again = c.again || passed > 0 && !chosen.full
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

// look chooses records of a topic, and also returns the expired records that it met. Claims of
// this process choose one after another, so that they choose different records.
func (c *claim) look(ctx context.Context, of line, want int) (chosen choice, expired bson.A, err error) {
	unlock, err := c.s.inUse.Lock(ctx, reading{of})
	if err != nil {
		return choice{}, nil, err
	}
	defer unlock()
	now, err := c.s.now(ctx)
	if err != nil {
		return choice{}, nil, err
	}
	trail, stirs := c.s.trails.of(of), c.s.trails.stirred()
	if from, skip, ok := trail.next(time.Now(), stirs, want); ok {
		list, err := c.ahead(ctx, of, from, skip, want)
		if err != nil {
			return choice{}, nil, err
		}
		before := c.over
		if chosen, expired = c.chooseFrom(list, now, want); chosen.full || len(chosen.list) == want {
			trail.chose(list[len(list)-1].Seq, true)
			return chosen, expired, nil
		}
		c.over = before
	}
	began := time.Now()
	list, now, err := c.s.candidates(ctx, of, want)
	if err != nil {
		return choice{}, nil, err
	}
	trail.looked(began, stirs, time.Since(began))
	chosen, expired = c.chooseFrom(list, now, want)
	trail.chose(lastInLine(chosen.list), chosen.full || len(chosen.list) == want)
	return chosen, expired, nil
}

func (c *claim) chooseFrom(list []candidate, now time.Time, want int) (chosen choice, expired bson.A) {
	for _, r := range list {
		if r.expired(now) {
			expired = append(expired, r.ID)
		} else if !c.choose(&chosen, r, want) {
			break
		}
	}
	return chosen, expired
}

// lastInLine returns the last seq of the ready records.
func lastInLine(list []candidate) (last bson.Timestamp) {
	for _, r := range list {
		if r.Stage == storekit.StageReady && place(r.Seq) > place(last) {
			last = r.Seq
		}
	}
	return last
}

// ahead reads up to want ready records whose seq is after from. It reads whole documents, and
// stops at the claim's MaxBytes.
func (c *claim) ahead(ctx context.Context, of line, from bson.Timestamp, skip, want int) ([]candidate, error) {
	stages := driver.Pipeline{
		{{Key: "$match", Value: of.in(storekit.StageReady, bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: from}}})}},
		{{Key: "$sort", Value: ascending("seq")}},
	}
	if skip > 0 {
		stages = append(stages, bson.D{{Key: "$skip", Value: skip}})
	}
	stages = append(stages, bson.D{{Key: "$limit", Value: want}}, c.s.anyLane())
	asked := time.Now()
	cursor, err := c.s.records.Aggregate(ctx, stages, options.Aggregate().SetBatchSize(oneBatch))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	var list []candidate
	bytes := c.bytes
	for cursor.Next(ctx) {
		if _, err := cursor.Current.LookupErr(laneMark); err == nil {
			c.s.laneSeen.note(true, asked)
			return list, nil
		}
		d := &document{}
		if err := cursor.Decode(d); err != nil {
			return nil, err
		}
		list = append(list, d.candidate())
		if bytes += d.Size; c.req.MaxBytes > 0 && bytes > c.req.MaxBytes {
			return list, nil
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, err
	}
	c.s.laneSeen.note(false, asked)
	return list, nil
}

// candidates reads the first records of each stage that may be due, by the estimate of the
// server's time, and sorts them by the time from which they are due.
func (s *Store) candidates(ctx context.Context, of line, want int) ([]candidate, time.Time, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, now, err
	}
	// Each stage has its own query, because a query for several stages would sort all its
	// results.
	each := make([]driver.Pipeline, len(dueStages))
	for i, stage := range dueStages {
		filter, order := of.in(stage), ascending("seq")
		if stage > storekit.StageHeld {
			filter, order = append(filter, until(now)), ascending("available_at")
		}
		if stage == storekit.StageLeased {
			// An expired record keeps its lease until the lease is reaped.
			filter = append(filter, unexpired(now))
		}
		each[i] = some(filter, want, order, candidateFields...)
	}
	all, err := aggregateAll[candidate](ctx, s.records, union(s.records, each...))
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.due().Compare(b.due()), cmp.Compare(place(a.Seq), place(b.Seq)))
	})
	return all, now, err
}
