package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
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

// changeAtOnce is how many records of a call of Delete or Requeue one transaction changes.
const changeAtOnce = 1000

// delete deletes the records that have the status; "" is any. It returns how many it deleted, also
// with an error.
func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (deleted int, err error) {
	const operation = "delete"
	if len(ids) == 0 {
		return 0, s.explain(ctx, operation, s.ready(alone(ctx)))
	}
	ctx = storekit.OneCommand(ctx)
	for some := range slices.Chunk(ids, changeAtOnce) {
		a := alteration{ids: uuids(some), how: isDead}
		if status != "" {
			a.conditions = where("status", status)
		}
		n, err := s.alter(ctx, operation, a, storekit.NewAuditEntry(ctx, roles.AuditDelete, some...))
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// alteration is what an operator does to records: an update, or a delete if update is nil.
type alteration struct {
	ids        bson.A
	conditions bson.D
	update     any
	// how is the change of a step in its joins.
	how change
}

func (a alteration) filter(more ...bson.E) bson.D {
	return slices.Concat(in("_id", a.ids), a.conditions, more)
}

// alter changes records and writes the entry of the audit, in one transaction. A store without
// transactions writes the entry last.
func (s *Store) alter(ctx context.Context, operation string, a alteration, entry roles.AuditEntry) (altered int, err error) {
	err = s.do(ctx, operation, func(ctx context.Context) error {
		if s.config.WithoutTransactions {
			// What a failed attempt has changed stays changed.
			n, err := s.alterIn(ctx, a, touched{})
			if altered += n; err != nil {
				return err
			}
			return s.note(ctx, entry, altered)
		}
		steps, err := findAll[stepRecord](ctx, s.records, a.filter(exists("step")...), first(len(a.ids), nil, "step"))
		if err != nil {
			return err
		}
		counted, n := touched{}, 0
		err = s.onJoins(ctx, steps, func(ctx context.Context) (err error) {
			clear(counted)
			if n, err = s.alterIn(ctx, a, counted); err != nil {
				return err
			}
			return s.note(ctx, entry, n)
		})
		if err == nil {
			altered = n
			s.hurry(ctx, counted)
		}
		return err
	})
	return altered, err
}

// alterIn is alter within a transaction, without the entry. After a delete, the next claims check
// the lanes of the records' keys.
func (s *Store) alterIn(ctx context.Context, a alteration, counted touched) (int, error) {
	if len(a.ids) == 0 {
		return 0, nil
	}
	var keys map[lineKey]bool
	if a.update == nil {
		var err error
		if keys, err = s.keysOf(ctx, a.ids); err != nil {
			return 0, err
		}
	}
	n, err := s.stepsIn(ctx, a.filter(), a.update, a.how, counted)
	if err != nil {
		return 0, err
	}
	if a.update != nil {
		result, err := s.records.UpdateMany(ctx, a.filter(noStep()), a.update)
		if err == nil {
			n += int(result.ModifiedCount)
		}
		return n, err
	}
	result, err := s.records.DeleteMany(ctx, a.filter(noStep()))
	if err == nil {
		n += int(result.DeletedCount)
		err = s.openLanes(ctx, keys)
	}
	return n, err
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

// mostRequeued is how many parked records one transaction requeues.
const mostRequeued = 1000

// requeueAtOnce returns how many parked records of a key the nth transaction of a call requeues.
func (s *Store) requeueAtOnce(nth int) int { return min(s.atOnce.Requeue(nth), mostRequeued) }

// Requeue makes dead records pending again. See outmill.Inspector. It requeues the records of a
// parked key in batches, the earliest first.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	const operation = "requeue"
	if len(ids) == 0 {
		return 0, s.explain(ctx, operation, s.ready(alone(ctx)))
	}
	defer func() {
		if requeued > 0 {
			s.cameBack()
		}
	}()
	ctx = storekit.OneCommand(ctx)
	for some := range slices.Chunk(ids, changeAtOnce) {
		entry := storekit.NewAuditEntry(ctx, roles.AuditRequeue, some...)
		keys, err := s.parkedKeys(ctx, operation, some)
		if err != nil {
			return requeued, err
		}
		for _, key := range keys {
			n, err := s.requeueParked(ctx, operation, entry, key)
			if requeued += n; err != nil {
				return requeued, err
			}
		}
		n, err := s.alter(ctx, operation, requeueing(uuids(some), "$$NOW"), entry)
		if requeued += n; err != nil {
			return requeued, err
		}
	}
	return requeued, nil
}

// parkedKeys returns the keys with which the records were parked.
func (s *Store) parkedKeys(ctx context.Context, operation string, ids []outmill.WorkItemID) (keys []lineKey, err error) {
	err = s.do(ctx, operation, func(ctx context.Context) error {
		found, err := findAll[lineKey](ctx, s.records, append(in("_id", uuids(ids)), bson.E{Key: "parked", Value: true}),
			first(len(ids), nil, "grp", "topic", "key"))
		slices.SortFunc(found, func(a, b lineKey) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key, b.Key))
		})
		keys = slices.Compact(found)
		return err
	})
	return keys, err
}

// requeueing requeues those of the records that are dead.
func requeueing(ids bson.A, due any) alteration {
	return alteration{ids: ids, conditions: where("stage", storekit.StageDead), update: requeue(due), how: isRequeued}
}

// requeue makes a record due at the time, which has come, so that claims without an order take
// records that have been due for longer first.
func requeue(due any) any {
	return pipeline(bson.D{
		{Key: "stage", Value: storekit.StageDelayed}, {Key: "open", Value: true}, {Key: "keyed", Value: given(hasKey, true, "$$REMOVE")},
		{Key: "status", Value: outmill.StatusPending}, {Key: "available_at", Value: due}, {Key: "next_at", Value: due},
		{Key: "attempts", Value: 0}, {Key: "expiries", Value: 0},
	}, "expires_at", "parked", "settled")
}

// requeueParked requeues the parked records of a key. It conflicts with claims of the topic,
// which would otherwise park records behind the ones that are being requeued.
func (s *Store) requeueParked(ctx context.Context, operation string, entry roles.AuditEntry, key lineKey) (requeued int, err error) {
	for nth := 0; ; nth++ {
		limit, n := s.requeueAtOnce(nth), 0
		err := s.transact(ctx, operation, func(ctx context.Context) error {
			if err := s.touch(ctx, []line{{key.Group, key.Topic}}); err != nil {
				return err
			}
			ids, err := s.parkedWith(ctx, key, limit)
			if err != nil {
				return err
			}
			if n, err = s.alterIn(ctx, requeueing(ids, "$$NOW"), touched{}); err != nil {
				return err
			}
			return s.note(ctx, entry, n)
		})
		if err != nil {
			return requeued, err
		}
		if requeued += n; n < limit {
			return requeued, nil
		}
	}
}
