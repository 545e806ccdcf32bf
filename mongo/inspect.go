package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	const operation = "get"
	var records []*outmill.Record
	err := s.do(ctx, operation, func(ctx context.Context) (err error) {
		records, err = s.find(ctx, where("_id", uuid(id)), 1)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, s.explain(ctx, operation, outmill.ErrNotFound)
	}
	return records[0], nil
}

// find returns records in the order of their ids. A held record whose key is still blocked has no
// NextAttemptAt.
func (s *Store) find(ctx context.Context, filter bson.D, limit int) ([]*outmill.Record, error) {
	found, err := findAll[document](ctx, s.records, filter, first(limit, ascending("_id")))
	if err != nil {
		return nil, err
	}
	var held bson.A
	for _, d := range found {
		if d.Stage == storekit.StageHeld {
			held = append(held, lineKey{d.Group, d.Topic, d.Key})
		}
	}
	blocked := map[lineKey]bool{}
	if len(held) > 0 {
		lanes, err := findAll[lane](ctx, s.lanes,
			append(in("_id", held), bson.E{Key: "blocked_by", Value: bson.D{{Key: "$ne", Value: storekit.BlockedByNothing}}}))
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			blocked[l.ID] = true
		}
		opened, err := s.openedOf(ctx, lanes)
		if err != nil {
			return nil, err
		}
		for _, o := range opened {
			delete(blocked, lineKey{o.Group, o.Topic, o.Key})
		}
	}
	records := make([]*outmill.Record, len(found))
	for i := range found {
		records[i] = found[i].record()
		if d := found[i]; d.Stage == storekit.StageHeld && blocked[lineKey{d.Group, d.Topic, d.Key}] {
			records[i].NextAttemptAt = time.Time{}
		}
	}
	return records, nil
}

// openedOf returns the openings of the topics and groups of the lanes.
func (s *Store) openedOf(ctx context.Context, lanes []lane) ([]opening, error) {
	var all []opening
	seen := map[line]bool{}
	for _, l := range lanes {
		of := line{l.Group, l.Topic}
		if seen[of] {
			continue
		}
		seen[of] = true
		found, err := findAll[opening](ctx, s.openings, bson.D{{Key: "grp", Value: of.Group}, {Key: "topic", Value: of.Topic}})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.delete(ctx, "", ids)
}

// delete deletes the records that have the status; "" is any.
func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "delete", s.ready(alone(ctx)))
	}
	filter := in("_id", uuids(ids))
	if status != "" {
		filter = append(filter, bson.E{Key: "status", Value: status})
	}
	deleted := 0
	err := s.do(ctx, "delete", func(ctx context.Context) error {
		keys, err := s.keysOf(ctx, uuids(ids))
		if err != nil {
			return err
		}
		n, err := s.remove(ctx, filter, isDead)
		if deleted += n; err != nil {
			return err
		}
		return s.openLanes(ctx, keys)
	})
	return deleted, err
}

// remove deletes records. For records of steps that were not settled, it counts the change in
// their joins.
func (s *Store) remove(ctx context.Context, filter bson.D, how change) (int, error) {
	result, err := s.records.DeleteMany(ctx, append(slices.Clone(filter), noStep()))
	if err != nil {
		return 0, err
	}
	n := 0
	if !s.config.WithoutTransactions {
		n, err = s.withSteps(ctx, filter, nil, how)
	}
	return n + int(result.DeletedCount), err
}

func uuids(ids []outmill.WorkItemID) bson.A {
	list := make(bson.A, len(ids))
	for i, id := range ids {
		list[i] = uuid(id)
	}
	return list
}

// keysOf returns the keys of the records.
func (s *Store) keysOf(ctx context.Context, ids bson.A) (map[lineKey]bool, error) {
	found, err := findAll[lineKey](ctx, s.records, append(in("_id", ids), exists("key")...), first(len(ids), nil, "grp", "topic", "key"))
	keys := map[lineKey]bool{}
	for _, key := range found {
		keys[key] = true
	}
	return keys, err
}

// requeueAtOnce is how many parked records one transaction requeues.
const requeueAtOnce = 1000

// Requeue makes dead records pending again. See outmill.Inspector. It requeues the records of a
// parked key in batches, the earliest first.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	const operation = "requeue"
	if len(ids) == 0 {
		return 0, s.explain(ctx, operation, s.ready(alone(ctx)))
	}
	var keys []lineKey
	err := s.do(ctx, operation, func(ctx context.Context) error {
		found, err := findAll[lineKey](ctx, s.records, append(in("_id", uuids(ids)), bson.E{Key: "parked", Value: true}),
			first(len(ids), nil, "grp", "topic", "key"))
		slices.SortFunc(found, func(a, b lineKey) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key, b.Key))
		})
		keys = slices.Compact(found)
		return err
	})
	if err != nil {
		return 0, err
	}
	requeued := 0
	for _, key := range keys {
		n, err := s.requeueParked(ctx, operation, key)
		if requeued += n; err != nil {
			return requeued, err
		}
	}
	err = s.do(ctx, operation, func(ctx context.Context) error {
		filter := append(in("_id", uuids(ids)), bson.E{Key: "stage", Value: storekit.StageDead})
		result, err := s.records.UpdateMany(ctx, append(slices.Clone(filter), noStep()), requeue())
		if err != nil {
			return err
		}
		n, err := s.withSteps(ctx, filter, requeue(), isRequeued)
		requeued += n + int(result.ModifiedCount)
		return err
	})
	if requeued > 0 {
		s.cameBack()
	}
	return requeued, err
}

// requeue makes a record due now, by time, so that claims without an order take records that have
// been due for longer first.
func requeue() any {
	return pipeline(bson.D{
		{Key: "stage", Value: storekit.StageDelayed}, {Key: "open", Value: true}, {Key: "keyed", Value: given(hasKey, true, "$$REMOVE")},
		{Key: "status", Value: outmill.StatusPending}, {Key: "available_at", Value: "$$NOW"}, {Key: "next_at", Value: "$$NOW"},
		{Key: "attempts", Value: 0}, {Key: "expiries", Value: 0},
	}, "expires_at", "parked", "settled")
}

// requeueParked requeues the parked records of a key. It conflicts with claims of the topic,
// which would otherwise park records behind the ones that are being requeued.
func (s *Store) requeueParked(ctx context.Context, operation string, key lineKey) (requeued int, err error) {
	for {
		n := 0
		err := s.transact(ctx, operation, func(ctx context.Context) error {
			n = 0
			if err := s.touch(ctx, []line{{key.Group, key.Topic}}); err != nil {
				return err
			}
			found, err := findAll[candidate](ctx, s.records,
				line{key.Group, key.Topic}.keyed(storekit.StageDead, key.Key, bson.E{Key: "parked", Value: true}),
				first(requeueAtOnce, ascending("seq"), "_id"))
			if err != nil || len(found) == 0 {
				return err
			}
			ids := make(bson.A, len(found))
			for i, r := range found {
				ids[i] = r.ID
			}
			filter := append(in("_id", ids), bson.E{Key: "stage", Value: storekit.StageDead})
			steps, err := s.stepsIn(ctx, filter, requeue(), isRequeued, touched{})
			if err != nil {
				return err
			}
			result, err := s.records.UpdateMany(ctx, append(filter, noStep()), requeue())
			if err == nil {
				n = steps + int(result.ModifiedCount)
			}
			return err
		})
		if requeued += n; err != nil || n < requeueAtOnce {
			return requeued, err
		}
	}
}
