package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Each lease is settled by an update of its own document, which checks again that the lease is
// valid. So a call that is repeated continues where it stopped. One command has many of these
// updates.

// leaseGroup identifies leases that the same update settles.
type leaseGroup struct {
	owner outmill.OwnerToken
	claim int
	delay time.Duration
	err   string
	park  bool
}

func groupOf(item outmill.Settlement) leaseGroup {
	return leaseGroup{item.Lease.Owner, item.Lease.Claim, ceil(item.Delay), item.Err, item.Park}
}

// sorted groups the settlements, nearly always into one group.
func sorted(items []outmill.Settlement) (order []leaseGroup, ids map[leaseGroup]bson.A) {
	ids = map[leaseGroup]bson.A{}
	for _, item := range items {
		g := groupOf(item)
		if ids[g] == nil {
			order = append(order, g)
		}
		ids[g] = append(ids[g], uuid(item.Lease.ID))
	}
	return order, ids
}

func (g leaseGroup) standing(ids bson.A) bson.D {
	return append(in("_id", ids),
		bson.E{Key: "stage", Value: storekit.StageLeased}, bson.E{Key: "owner", Value: uuid(g.owner)}, bson.E{Key: "claims", Value: g.claim})
}

// lineKey is a key of a topic of a group. It is the id of a lane.
type lineKey struct {
	Group reader `bson:"grp"`
	Topic string `bson:"topic"`
	Key   string `bson:"key"`
}

// settlement is the progress of a settling call. It is kept when the call is repeated.
type settlement struct {
	s     *Store
	items []outmill.Settlement
	// how is the change of a step in its joins; nil is none.
	how *change
	// keys are the keys of the records, whose lanes the next claims must check.
	keys map[lineKey]bool
}

// settle updates the records of the valid leases by update, or deletes them if it returns nil.
func (s *Store) settle(ctx context.Context, operation string, items []outmill.Settlement, how *change, update func(leaseGroup) any) error {
	if len(items) == 0 {
		return s.explain(ctx, operation, s.ready(alone(ctx)))
	}
	of := &settlement{s: s, items: items, how: how, keys: map[lineKey]bool{}}
	return s.do(ctx, operation, func(ctx context.Context) error { return of.run(ctx, update) })
}

// settleAll is settle for leases without settlements, within an operation.
func (s *Store) settleAll(ctx context.Context, leases []outmill.Lease, update func(leaseGroup) any) error {
	of := &settlement{s: s, items: storekit.Bare(leases), keys: map[lineKey]bool{}}
	return of.run(ctx, update)
}

func (of *settlement) run(ctx context.Context, update func(leaseGroup) any) error {
	if err := of.note(ctx); err != nil {
		return err
	}
	done, err := of.write(ctx, update)
	if err == nil && of.how != nil && done < len(of.items) {
		err = of.writeSteps(ctx, update)
	}
	if err != nil {
		return err
	}
	return of.s.openLanes(ctx, of.keys)
}

// writeSteps settles the records that write has skipped: records of steps.
func (of *settlement) writeSteps(ctx context.Context, update func(leaseGroup) any) error {
	found, err := of.stepRecords(ctx, leaseIDs(of.items))
	if err != nil {
		return err
	}
	for some := range slices.Chunk(found, stepsAtOnce) {
		counted := touched{}
		err := of.s.onJoins(ctx, some, func(ctx context.Context) error {
			clear(counted)
			return of.stepsIn(ctx, some, update, counted)
		})
		if err != nil {
			return err
		}
		of.s.hurry(ctx, counted)
	}
	return nil
}

// stepRecords reads the leased records of steps among these ids.
func (of *settlement) stepRecords(ctx context.Context, ids bson.A) ([]stepRecord, error) {
	return findAll[stepRecord](ctx, of.s.records,
		append(in("_id", ids), append(exists("step"), bson.E{Key: "stage", Value: storekit.StageLeased})...),
		first(len(ids), nil, "step", "stage", "owner", "claims"))
}

// stepsIn settles records of steps and counts them, within a transaction.
func (of *settlement) stepsIn(ctx context.Context, among []stepRecord, update func(leaseGroup) any, counted touched) error {
	ids := make(bson.A, len(among))
	for i, r := range among {
		ids[i] = r.ID
	}
	found, err := of.stepRecords(ctx, ids)
	if err != nil {
		return err
	}
	leases := map[outmill.Lease]leaseGroup{}
	for _, item := range slices.Backward(of.items) {
		leases[item.Lease] = groupOf(item)
	}
	standing, moves := map[leaseGroup]bson.A{}, map[uuid]change{}
	for _, r := range found {
		if g, ok := leases[outmill.Lease{ID: outmill.WorkItemID(r.ID), Owner: outmill.OwnerToken(r.Owner), Claim: r.Claims}]; ok {
			standing[g] = append(standing[g], r.ID)
			moves[r.Step] = moves[r.Step].add(*of.how)
		}
	}
	if len(standing) == 0 {
		return nil
	}
	var models []driver.WriteModel
	for g, ids := range standing {
		models = append(models, writing(in("_id", ids), update(g)))
	}
	if _, err := of.s.records.BulkWrite(ctx, models); err != nil {
		return err
	}
	return of.s.moveSteps(ctx, moves, counted)
}

// writing makes an update, or a delete if update is nil.
func writing(filter bson.D, update any) driver.WriteModel {
	if update == nil {
		return driver.NewDeleteManyModel().SetFilter(filter)
	}
	return driver.NewUpdateManyModel().SetFilter(filter).SetUpdate(update)
}

// note reads the keys of the records, before they are deleted. It reads nothing if there are no
// lanes.
func (of *settlement) note(ctx context.Context) error {
	if none, err := of.s.noLanes(ctx); none || err != nil {
		return err
	}
	ids := leaseIDs(of.items)
	found, err := findAll[lineKey](ctx, of.s.records, append(in("_id", ids), exists("key")...), first(len(ids), nil, "grp", "topic", "key"))
	for _, key := range found {
		of.keys[key] = true
	}
	return err
}

// write returns how many valid leases it found.
func (of *settlement) write(ctx context.Context, update func(leaseGroup) any) (done int, err error) {
	order, ids := sorted(of.items)
	models := make([]driver.WriteModel, len(order))
	for i, g := range order {
		filter := g.standing(ids[g])
		if of.how != nil {
			filter = append(filter, noStep())
		}
		models[i] = writing(filter, update(g))
	}
	result, err := of.s.records.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil {
		return 0, err
	}
	return int(result.MatchedCount + result.DeletedCount), nil
}

// pending is the part of the update that is the same whenever a record is given back.
func pending(stage any, more ...bson.E) driver.Pipeline {
	return pipeline(append(bson.D{{Key: "stage", Value: stage}, {Key: "status", Value: outmill.StatusPending}}, more...), "owner")
}

// dueAsBefore gives back a record that is due. The record goes to StageWaiting, although its time
// has come, until a claim takes it or makes it ready: a claim in order may have read the ready
// records already, and it reads the waiting records last.
func dueAsBefore(more ...bson.E) driver.Pipeline {
	later := bson.D{{Key: "$gt", Value: bson.A{"$next_at", "$created_at"}}}
	return pending(storekit.StageWaiting, append(more, bson.E{Key: "available_at", Value: given(later, "$next_at", "$created_at")})...)
}

func released() driver.Pipeline { return dueAsBefore() }

// dueAgain makes a record wait for the delay.
func dueAgain(delay time.Duration, more ...bson.E) driver.Pipeline {
	return pending(storekit.StageWaiting, append(more, bson.E{Key: "expiries", Value: 0},
		bson.E{Key: "available_at", Value: inTime(delay)}, bson.E{Key: "next_at", Value: inTime(delay)})...)
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack"
	if err := storekit.CheckWorker(by); err != nil {
		return s.explain(ctx, operation, err)
	}
	return s.settle(ctx, operation, storekit.Bare(leases), &isAcked, s.acked(by))
}

// acked returns the update for an ack: nil deletes the record.
func (s *Store) acked(by string) func(leaseGroup) any {
	return func(leaseGroup) any {
		if s.config.Retain <= 0 {
			return nil
		}
		processed := bson.D{
			{Key: "stage", Value: storekit.StageProcessed}, {Key: "settled", Value: true}, {Key: "status", Value: outmill.StatusProcessed},
			{Key: "processed_at", Value: "$$NOW"}, {Key: "delete_at", Value: inTime(s.config.Retain)},
		}
		if by != "" {
			processed = append(processed, bson.E{Key: "processed_by", Value: literal(by)})
		}
		return pipeline(processed, "owner", "available_at", "open", "keyed")
	}
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	err := s.settle(ctx, "release", storekit.Bare(leases), nil, func(leaseGroup) any { return released() })
	if err == nil && len(leases) > 0 {
		s.cameBack()
	}
	return err
}

// cameBack makes readers of this process search for records that were given back.
func (s *Store) cameBack() {
	s.trails.stir()
	s.notifier.Notify()
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForAbandon(settlements)
	return s.giveBack(ctx, "abandon", items, func(g leaseGroup) any {
		return dueAgain(g.delay, bson.E{Key: "attempts", Value: plus("attempts", 1)}, bson.E{Key: "last_error", Value: literal(g.err)})
	})
}

// Snooze makes the records due again after their delay, and counts no attempt. See outmill.Queue.
func (s *Store) Snooze(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForSnooze(settlements)
	err := s.giveBack(ctx, "snooze", items, func(g leaseGroup) any { return dueAgain(g.delay) })
	if err == nil && len(items) > 0 {
		s.hurryWaiting(ctx, leaseIDs(items))
	}
	return err
}

// giveBack wakes readers if some of the records are due at once.
func (s *Store) giveBack(ctx context.Context, operation string, items []outmill.Settlement, update func(leaseGroup) any) error {
	err := s.settle(ctx, operation, items, nil, update)
	if err == nil && storekit.SomeAtOnce(items) {
		s.cameBack()
	}
	return err
}

// Extend sets the end of the valid leases, and returns them. See outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	if len(leases) == 0 {
		return nil, s.explain(ctx, operation, s.ready(alone(ctx)))
	}
	var standing []outmill.Lease
	err := s.do(ctx, operation, func(ctx context.Context) error {
		of := &settlement{s: s, items: storekit.Bare(leases)}
		_, err := of.write(ctx, func(leaseGroup) any { return pipeline(bson.D{{Key: "available_at", Value: inTime(lease)}}) })
		if err == nil {
			standing, err = s.standing(ctx, leases)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return standing, nil
}

// standing returns the valid ones of the leases. It also learns whether the pauses have changed.
func (s *Store) standing(ctx context.Context, leases []outmill.Lease) ([]outmill.Lease, error) {
	ids := make(bson.A, len(leases))
	asked := make(map[outmill.Lease]bool, len(leases))
	for i, l := range leases {
		ids[i], asked[l] = uuid(l.ID), true
	}
	found, err := aggregateAll[struct {
		ID     uuid  `bson:"_id"`
		Owner  uuid  `bson:"owner"`
		Claims int   `bson:"claims"`
		Pauses int64 `bson:"pauses"`
	}](ctx, s.records, unionOf([]part{
		{s.records, driver.Pipeline{
			{{Key: "$match", Value: append(in("_id", ids), bson.E{Key: "stage", Value: storekit.StageLeased})}}, project("owner", "claims"),
		}},
		s.lastChange(),
	}))
	if err != nil {
		return nil, err
	}
	var list []outmill.Lease
	var generation int64
	for _, f := range found {
		generation = max(generation, f.Pauses)
		if l := (outmill.Lease{ID: outmill.WorkItemID(f.ID), Owner: outmill.OwnerToken(f.Owner), Claim: f.Claims}); asked[l] {
			list = append(list, l)
		}
	}
	_, err = s.pausesOf(ctx, generation)
	return list, err
}

// dead is the update that makes a record dead.
func dead(reason any) driver.Pipeline { return append(deadByKey(reason), unset("keyed")) }

// deadByKey makes a record dead so that claims find it by its key, if it has one.
func deadByKey(reason any, more ...bson.E) driver.Pipeline {
	return pipeline(append(bson.D{
		{Key: "stage", Value: storekit.StageDead}, {Key: "settled", Value: true}, {Key: "status", Value: outmill.StatusDead},
		{Key: "last_error", Value: reason},
	}, more...), "owner", "available_at", "open", "paused_by")
}

var hasKey = bson.D{{Key: "$ne", Value: bson.A{bson.D{{Key: "$type", Value: "$key"}}, "missing"}}}

// parked is the update that makes a record dead behind another one of its key.
func parked() driver.Pipeline {
	return deadByKey(literal(storekit.ParkedError), bson.E{Key: "parked", Value: true})
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForFail(settlements)
	parking := slices.ContainsFunc(items, func(z outmill.Settlement) bool { return z.Park })
	update := func(g leaseGroup) any {
		if !g.park {
			return dead(literal(g.err))
		}
		return deadByKey(literal(g.err), bson.E{Key: "parked", Value: given(hasKey, true, "$$REMOVE")})
	}
	if !parking {
		return s.settle(ctx, "fail", items, &isDead, update)
	}
	of := &settlement{s: s, items: items, how: &isDead, keys: map[lineKey]bool{}}
	var counted touched
	err := s.transact(ctx, "fail", func(ctx context.Context) error {
		counted = touched{}
		return of.failAndPark(ctx, update, counted)
	})
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// parkAtOnce is how many records go dead together with those that failed. Claims that meet more
// of them make these dead.
const parkAtOnce = 1000

func (of *settlement) failAndPark(ctx context.Context, update func(leaseGroup) any, counted touched) error {
	heads, err := of.heads(ctx)
	if err != nil {
		return err
	}
	var lines []line
	for _, h := range heads {
		lines = append(lines, line{h.Group, h.Topic})
	}
	if err := of.s.touch(ctx, lines); err != nil {
		return err
	}
	if err := of.note(ctx); err != nil {
		return err
	}
	steps, err := of.stepRecords(ctx, leaseIDs(of.items))
	if err != nil {
		return err
	}
	if len(steps) > 0 {
		if err := of.stepsIn(ctx, steps, update, counted); err != nil {
			return err
		}
	}
	if _, err := of.write(ctx, update); err != nil {
		return err
	}
	if err := of.s.openLanes(ctx, of.keys); err != nil {
		return err
	}
	if len(heads) == 0 {
		return nil
	}
	return of.s.parkBehind(ctx, heads, counted)
}

// head is a failed record that parks the later records of its key.
type head struct {
	ID     uuid           `bson:"_id"`
	Group  reader         `bson:"grp"`
	Topic  string         `bson:"topic"`
	Key    string         `bson:"key"`
	Seq    bson.Timestamp `bson:"seq"`
	Owner  uuid           `bson:"owner"`
	Claims int            `bson:"claims"`
}

// heads reads the records of valid leases that fail with Park.
func (of *settlement) heads(ctx context.Context) ([]head, error) {
	var ids bson.A
	wanted := map[outmill.Lease]bool{}
	for _, item := range of.items {
		if item.Park {
			ids = append(ids, uuid(item.Lease.ID))
			wanted[item.Lease] = true
		}
	}
	filter := append(in("_id", ids), append(exists("key"), bson.E{Key: "stage", Value: storekit.StageLeased})...)
	found, err := findAll[head](ctx, of.s.records, filter, first(len(ids), nil, "grp", "topic", "key", "seq", "owner", "claims"))
	var heads []head
	for _, h := range found {
		if wanted[outmill.Lease{ID: outmill.WorkItemID(h.ID), Owner: outmill.OwnerToken(h.Owner), Claim: h.Claims}] {
			heads = append(heads, h)
		}
	}
	return heads, err
}

// pendingStages are the stages of pending records.
var pendingStages = []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageExpired,
	storekit.StageAside, stageInTurn}

// parkBehind parks pending records behind the heads. It skips leased records: if one is given
// back, a claim parks it.
func (s *Store) parkBehind(ctx context.Context, heads []head, counted touched) error {
	from, keys := map[lineKey]uint64{}, map[line]bson.A{}
	for _, h := range heads {
		key, of := lineKey{h.Group, h.Topic, h.Key}, line{h.Group, h.Topic}
		if at, known := from[key]; known {
			from[key] = min(at, place(h.Seq))
			continue
		}
		from[key] = place(h.Seq)
		keys[of] = append(keys[of], h.Key)
	}
	var filters []bson.D
	for of, keys := range keys {
		filters = append(filters, of.keyed(bson.D{{Key: "$in", Value: pendingStages}}, bson.D{{Key: "$in", Value: keys}}))
	}
	found, err := findAll[head](ctx, s.records, either(filters...), first(parkAtOnce, nil, "grp", "topic", "key", "seq"))
	if err != nil {
		return err
	}
	var ids bson.A
	for _, f := range found {
		if place(f.Seq) > from[lineKey{f.Group, f.Topic, f.Key}] {
			ids = append(ids, f.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return s.park(ctx, ids, counted)
}

// park makes pending records dead behind another record of their key, within a transaction.
func (s *Store) park(ctx context.Context, ids bson.A, counted touched) error {
	filter := append(in("_id", ids), bson.E{Key: "stage", Value: bson.D{{Key: "$in", Value: pendingStages}}})
	if _, err := s.stepsIn(ctx, filter, parked(), isDead, counted); err != nil {
		return err
	}
	_, err := s.records.UpdateMany(ctx, append(filter, noStep()), parked())
	return err
}

func leaseIDs(items []outmill.Settlement) bson.A {
	ids := make(bson.A, len(items))
	for i, item := range items {
		ids[i] = uuid(item.Lease.ID)
	}
	return ids
}
