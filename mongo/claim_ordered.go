package mongo

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
)

// A claim in order reads everything in one snapshot, decides, and then writes,
// the line's document among the locks before anything else: of two that
// overlap, the later one meets a write conflict and begins again. So each takes
// effect after the one before, and one whose process dies in the middle of it
// holds nothing, unless it dies while it writes.

const (
	// admitAtOnce bounds how many records of each kind one update puts in line
	// whose wait, delay or lease is over. There are more until all are: what is due
	// and not in line holds up nothing.
	admitAtOnce = 1000
	minPage     = 32
)

const nowhere = math.MaxUint64

// takeInOrder leases up to want records of the topic, those of each key, or all
// of them, in their order.
func (c *claim) takeInOrder(ctx context.Context, topic string, want int) error {
	of := line{group(c.req.Group), topic}
	// Within this process claims wait for each other; others meet a conflict.
	unlock, err := c.s.inUse.Lock(ctx, of)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.s.admit(ctx, of); err != nil {
		return err
	}
	token, over := uuid(outmill.NewOwnerToken()), c.over
	var done *ordered
	err = again(ctx, func() error {
		if done != nil && done.ran {
			// The commit has failed, and may be carried out all the same. The owner's own
			// leases do not block a key, so what comes after them would be handed out first.
			if err := c.giveBack(ctx, done.chosen.ids, token); err != nil {
				return err
			}
		}
		return c.s.once(ctx, func(ctx context.Context) error {
			// A suspect that was met in vain leaves no mark.
			c.over = over
			done = &ordered{claim: c, line: of, want: want, token: token, counted: touched{}}
			err := done.run(ctx)
			done.ran = err == nil
			return err
		})
	})
	if err != nil {
		if done != nil && len(done.chosen.ids) > 0 {
			// Nobody may know whether the transaction was committed.
			_ = c.giveBack(ctx, done.chosen.ids, token)
		}
		return err
	}
	c.s.hurry(ctx, done.counted)
	c.again = c.again || done.lookAgain
	c.add(done.records)
	return nil
}

// admit puts in line what is due: from then on its place is that of its append,
// and leased is what has a lease that has not ended.
func (s *Store) admit(ctx context.Context, of line) error {
	for {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		ids, keys, full, err := s.toAdmit(ctx, of, now)
		if err != nil || len(ids) == 0 {
			return err
		}
		ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", stageLeased}}}
		result, err := s.records.UpdateMany(ctx, append(in("_id", ids), stillDue()),
			pipeline(append(countEnded(ended), bson.E{Key: "stage", Value: stageLine}, bson.E{Key: "status", Value: outmill.StatusPending}), "owner", "available_at"))
		if err != nil {
			return err
		}
		if err := s.openLanes(ctx, keys); err != nil || !full || result.ModifiedCount == 0 {
			return err
		}
	}
}

func (s *Store) toAdmit(ctx context.Context, of line, now time.Time) (ids bson.A, keys map[lineKey]bool, full bool, err error) {
	var each []driver.Pipeline
	for _, stage := range []int{stageWaiting, stageDelayed, stageLeased} {
		filter := of.in(stage, until(now))
		if stage == stageLeased {
			// The lease of an expired record stands until it is reaped; others that
			// have expired leave the wait to those who pass over them.
			filter = append(filter, unexpired(now))
		}
		each = append(each, some(filter, admitAtOnce, ascending("available_at"), "key", "stage"))
	}
	found, err := aggregateAll[candidate](ctx, s.records, union(s.records, each...))
	keys = map[lineKey]bool{}
	inStage := map[int]int{}
	for _, r := range found {
		ids = append(ids, r.ID)
		if r.Key != "" {
			keys[lineKey{of.Group, of.Topic, r.Key}] = true
		}
		inStage[r.Stage]++
		full = full || inStage[r.Stage] == admitAtOnce
	}
	return ids, keys, full, err
}

// ordered is a claim in order of one line, in one transaction.
type ordered struct {
	*claim
	line  line
	want  int
	token uuid
	now   time.Time

	// states has what is known of each key; openings are those that were read.
	states   map[string]*keyState
	openings bson.A

	// What was decided.
	chosen                  choice
	expired, parking, holds bson.A
	decided                 map[uuid]bool
	lookAgain               bool

	records []*outmill.Record
	counted touched
	// ran: all that is left is the commit.
	ran bool
}

// keyState is what an ordered claim knows of a key.
type keyState struct {
	// other is the owner of a lease that is not the claimer's, and its end.
	other    string
	otherEnd time.Time
	// waiting is the place of the first record that waits.
	waiting    uint64
	waitingEnd time.Time
	parked     bool

	// lane is the key's, nil where there is none. looked: this claim looks at it,
	// and held are the first of its records; there may be more from heldFrom on.
	lane     *lane
	looked   bool
	held     []candidate
	heldFrom uint64
	// newHead is the first of the records that this claim holds.
	newHead *candidate
}

func (o *ordered) run(ctx context.Context) error {
	var err error
	if o.now, err = o.s.now(ctx); err != nil {
		return err
	}
	if waits, err := o.waitsForGroup(ctx); err != nil || waits {
		return err
	}
	page, err := o.page(ctx)
	if err != nil {
		return err
	}
	if o.req.Order == outmill.OrderTopic {
		page, err = o.beforeBarrier(ctx, page)
	} else {
		page, err = o.readStates(ctx, page)
	}
	if err != nil {
		return err
	}
	o.walk(page)
	return o.write(ctx)
}

// waitsForGroup tells whether records of the topic are due that no group has
// yet: none is handed out before all have been adopted.
func (o *ordered) waitsForGroup(ctx context.Context) (bool, error) {
	unrouted := line{Topic: o.line.Topic}
	found, err := findAll[candidate](ctx, o.s.records, either(unrouted.in(stageLine), unrouted.in(stageDelayed, until(o.now))), first(1, nil, "_id"))
	return len(found) > 0, err
}

func (o *ordered) pageSize() int { return max(o.want, minPage) }

func (o *ordered) page(ctx context.Context) ([]candidate, error) {
	return findAll[candidate](ctx, o.s.records, o.line.in(stageLine), first(o.pageSize(), ascending("seq"), candidateFields...))
}

// walk decides about each record, in their order.
func (o *ordered) walk(page []candidate) {
	o.decided = map[uuid]bool{}
	for _, r := range page {
		state := o.states[r.Key]
		block, blocked := o.blocks(state, r)
		switch {
		case r.expired(o.now):
			o.expired = append(o.expired, r.ID)
		case state != nil && state.parked && o.req.KeyPolicy == outmill.Park:
			o.parking = append(o.parking, r.ID)
		case blocked:
			o.hold(state, r, block)
			continue
		case !o.choose(&o.chosen, r, o.want):
			return
		}
		o.decided[r.ID] = true
	}
	// Behind what led nowhere there may be more.
	o.lookAgain = len(page) >= o.pageSize() || len(o.expired)+len(o.parking) > 0
}

// blocks tells whether the record may not be taken, and what to note in its
// key's lane.
func (o *ordered) blocks(state *keyState, r candidate) (block, bool) {
	if state == nil {
		return block{}, false
	}
	switch at, barrier := place(r.Seq), o.barrier(state); {
	case state.other != "":
		return block{state.other, state.otherEnd}, true
	case at > state.heldFrom && state.heldFrom < barrier:
		return block{by: blockedByNothing}, true
	case at > barrier:
		return block{blockedByWaiting, state.waitingEnd}, true
	}
	return block{}, false
}

// barrier is the place from which on records may not be taken because of one
// that waits.
func (o *ordered) barrier(state *keyState) uint64 {
	if o.req.KeyPolicy == outmill.Skip {
		return nowhere
	}
	return state.waiting
}

// hold takes a record out of the line, unless it is already.
func (o *ordered) hold(state *keyState, r candidate, b block) {
	if r.Stage == stageHeld {
		return
	}
	o.holds = append(o.holds, r.ID)
	if state.newHead != nil {
		return
	}
	state.newHead = &r
	if state.lane == nil {
		state.lane = &lane{ID: lineKey{o.line.Group, o.line.Topic, r.Key}, Group: o.line.Group, Topic: o.line.Topic, Head: r.Seq}
	}
	if place(r.Seq) < place(state.lane.Head) {
		state.lane.Head = r.Seq
	}
	state.lane.note(b, o.now)
}

// beforeBarrier is the page as if the topic were one key: nothing while another
// owner has a lease, and nothing behind a record that waits.
func (o *ordered) beforeBarrier(ctx context.Context, page []candidate) ([]candidate, error) {
	other, err := findAll[candidate](ctx, o.s.records, o.line.in(stageLeased,
		bson.E{Key: "owner", Value: bson.D{{Key: "$ne", Value: uuid(o.req.Owner)}}}, inTheWay(o.now)), first(1, nil, "_id"))
	if err != nil || len(other) > 0 {
		return nil, err
	}
	held, err := findAll[candidate](ctx, o.s.records, o.line.in(stageHeld), first(o.pageSize(), ascending("seq"), candidateFields...))
	if err != nil {
		return nil, err
	}
	page = o.merged(page, held, len(held) == o.pageSize())
	if o.req.KeyPolicy == outmill.Skip {
		return page, nil
	}
	waiting, err := findAll[candidate](ctx, o.s.records, o.line.in(stageWaiting, unexpired(o.now)), first(1, ascending("seq"), "seq"))
	if err != nil || len(waiting) == 0 {
		return page, err
	}
	barrier := place(waiting[0].Seq)
	return slices.DeleteFunc(page, func(r candidate) bool { return place(r.Seq) > barrier }), nil
}

// merged is the page with what is held, in their order. What is behind the end
// of one that goes on waits: there may be records before it that were not read.
func (o *ordered) merged(page, held []candidate, heldGoesOn bool) []candidate {
	end := uint64(nowhere)
	if len(page) == o.pageSize() {
		end = place(page[len(page)-1].Seq)
	}
	if heldGoesOn {
		end = min(end, place(held[len(held)-1].Seq))
	}
	all := slices.DeleteFunc(slices.Concat(page, held), func(r candidate) bool { return place(r.Seq) > end })
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(place(a.Seq), place(b.Seq)) })
	return all
}

// unexpired leaves out what has expired by about the server's time.
func unexpired(now time.Time) bson.E {
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "expires_at", Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: "expires_at", Value: bson.D{{Key: "$gt", Value: now}}}},
	}}
}

// inTheWay leaves out leases that have ended of records that have expired.
func inTheWay(now time.Time) bson.E {
	either := unexpired(now).Value.(bson.A)
	return bson.E{Key: "$or", Value: append(either, bson.D{{Key: "available_at", Value: bson.D{{Key: "$gt", Value: now}}}})}
}

// readStates reads what is known of the keys on the page and of the lanes that
// are to be looked at, and returns the page with what these have held.
func (o *ordered) readStates(ctx context.Context, page []candidate) ([]candidate, error) {
	o.states = map[string]*keyState{}
	var keys bson.A
	know := func(key string) *keyState {
		state := o.states[key]
		if state == nil && key != "" {
			state = &keyState{waiting: nowhere, heldFrom: nowhere}
			o.states[key] = state
			keys = append(keys, key)
		}
		return state
	}
	for _, r := range page {
		know(r.Key)
	}
	lanes, more, err := o.lanesToLookAt(ctx)
	if err != nil {
		return nil, err
	}
	for i := range lanes {
		state := know(lanes[i].ID.Key)
		state.lane, state.looked = &lanes[i], true
	}
	if len(keys) == 0 {
		return page, nil
	}
	if more {
		if err := o.readLanes(ctx, keys); err != nil {
			return nil, err
		}
	}
	if err := o.readBlocks(ctx, keys); err != nil {
		return nil, err
	}
	if err := o.readParked(ctx, keys); err != nil {
		return nil, err
	}
	held, err := o.readHeld(ctx, lanes)
	return o.merged(page, held, false), err
}

// lanesToLookAt are those that were opened, those that this owner blocks itself,
// and those whose time has come. There may be more lanes.
func (o *ordered) lanesToLookAt(ctx context.Context) (lanes []lane, more bool, err error) {
	of := bson.D{{Key: "grp", Value: o.line.Group}, {Key: "topic", Value: o.line.Topic}}
	lanes, err = findAll[lane](ctx, o.s.lanes, of, first(1, nil, "_id"))
	if err != nil || len(lanes) == 0 {
		return nil, false, err
	}
	openings, err := findAll[opening](ctx, o.s.openings, of, first(o.pageSize(), nil))
	if err != nil {
		return nil, false, err
	}
	lanes = nil
	var ids bson.A
	for _, opened := range openings {
		o.openings = append(o.openings, opened.ID)
		ids = append(ids, lineKey{o.line.Group, o.line.Topic, opened.Key})
	}
	for _, filter := range []bson.D{
		in("_id", orNone(ids)),
		append(slices.Clone(of), in("blocked_by", bson.A{blockedByNothing, o.req.Owner.String(), passedOver(o.req.KeyPolicy)})...),
		append(slices.Clone(of), bson.E{Key: "until", Value: bson.D{{Key: "$lte", Value: o.now}}}),
		append(slices.Clone(of), bson.E{Key: "until", Value: bson.D{{Key: "$gt", Value: o.now.Add(2 * lastLook)}}}),
	} {
		found, err := findAll[lane](ctx, o.s.lanes, filter, first(o.pageSize(), nil))
		if err != nil {
			return nil, false, err
		}
		lanes = append(lanes, found...)
	}
	slices.SortFunc(lanes, func(a, b lane) int { return cmp.Compare(a.ID.Key, b.ID.Key) })
	return slices.CompactFunc(lanes, func(a, b lane) bool { return a.ID == b.ID }), true, nil
}

func orNone(ids bson.A) bson.A {
	if ids == nil {
		return bson.A{}
	}
	return ids
}

// readLanes finds the lanes of keys that are not to be looked at.
func (o *ordered) readLanes(ctx context.Context, keys bson.A) error {
	var ids bson.A
	for _, key := range keys {
		if o.states[key.(string)].lane == nil {
			ids = append(ids, lineKey{o.line.Group, o.line.Topic, key.(string)})
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := findAll[lane](ctx, o.s.lanes, in("_id", ids))
	for i := range found {
		state := o.states[found[i].ID.Key]
		state.lane, state.heldFrom = &found[i], place(found[i].Head)
	}
	return err
}

// readBlocks reads what may be in the way of the keys: leases of others, and
// records that wait where the policy stops at these.
func (o *ordered) readBlocks(ctx context.Context, keys bson.A) error {
	stages := bson.A{stageLeased}
	if o.req.KeyPolicy != outmill.Skip {
		stages = append(stages, stageWaiting)
	}
	// Conditions with $or would lead the server away from the index by keys.
	found, err := findAll[candidate](ctx, o.s.records, o.line.keyed(bson.D{{Key: "$in", Value: stages}}, bson.D{{Key: "$in", Value: keys}},
		bson.E{Key: "owner", Value: bson.D{{Key: "$ne", Value: uuid(o.req.Owner)}}}),
		options.Find().SetProjection(ascending("stage", "key", "owner", "seq", "available_at", "expires_at")))
	found = slices.DeleteFunc(found, func(r candidate) bool {
		return r.expired(o.now) && (r.Stage == stageWaiting || !r.AvailableAt.After(o.now))
	})
	for _, r := range found {
		state := o.states[r.Key]
		if r.Stage == stageLeased {
			state.other, state.otherEnd = outmill.OwnerToken(r.Owner).String(), r.AvailableAt
		} else if place(r.Seq) < state.waiting {
			state.waiting, state.waitingEnd = place(r.Seq), r.AvailableAt
			if !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(r.AvailableAt) {
				state.waitingEnd = r.ExpiresAt
			}
		}
	}
	return err
}

// readParked leaps from key to key.
func (o *ordered) readParked(ctx context.Context, keys bson.A) error {
	if o.req.KeyPolicy != outmill.Park {
		return nil
	}
	found, err := aggregateAll[struct {
		Key string `bson:"_id"`
	}](ctx, o.s.records, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "grp", Value: o.line.Group}, {Key: "parked", Value: true}, {Key: "topic", Value: o.line.Topic}, {Key: "key", Value: bson.D{{Key: "$in", Value: keys}}}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$key"}}}},
	})
	for _, f := range found {
		o.states[f.Key].parked = true
	}
	return err
}

// readHeld reads the first held records of the keys whose lanes are looked at,
// fewer of each the more these are.
func (o *ordered) readHeld(ctx context.Context, lanes []lane) ([]candidate, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	each, ids := max(1, o.pageSize()/len(lanes)), make(bson.A, len(lanes))
	for i := range lanes {
		ids[i] = lanes[i].ID
	}
	found, err := aggregateAll[struct {
		ID   lineKey     `bson:"_id"`
		Held []candidate `bson:"held"`
	}](ctx, o.s.lanes, driver.Pipeline{
		{{Key: "$match", Value: in("_id", ids)}},
		{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: o.s.records.Name()}, {Key: "localField", Value: "_id.key"}, {Key: "foreignField", Value: "key"},
			{Key: "pipeline", Value: some(o.line.in(stageHeld, bson.E{Key: "open", Value: true}), each, ascending("seq"), candidateFields...)},
			{Key: "as", Value: "held"},
		}}},
		{{Key: "$project", Value: ascending("held")}},
	})
	var all []candidate
	for _, f := range found {
		state := o.states[f.ID.Key]
		state.held = f.Held
		if len(f.Held) == each {
			state.heldFrom = place(f.Held[each-1].Seq)
		}
		all = append(all, f.Held...)
	}
	return all, err
}

// write carries out what was decided.
func (o *ordered) write(ctx context.Context) error {
	var records, lanes []driver.WriteModel
	update := func(ids bson.A, change any, conditions ...bson.E) {
		if len(ids) > 0 {
			records = append(records, driver.NewUpdateManyModel().SetFilter(append(in("_id", ids), conditions...)).SetUpdate(change))
		}
	}
	update(o.chosen.ids, leased(o.req.Owner, o.token, o.req.Lease), stillDue())
	update(o.holds, set(bson.D{{Key: "stage", Value: stageHeld}}))
	for _, state := range o.states {
		if model := o.writeLane(state); model != nil {
			lanes = append(lanes, model)
		}
	}
	if len(records)+len(lanes)+len(o.openings)+len(o.parking)+len(o.expired) == 0 {
		o.lookAgain = false
		return nil
	}
	if err := o.s.touch(ctx, []line{o.line}); err != nil {
		return err
	}
	passed, err := o.s.passExpired(ctx, o.expired)
	if err != nil {
		return err
	}
	// Where nothing has moved, another look would see the same.
	o.lookAgain = o.lookAgain && passed+len(records)+len(lanes)+len(o.parking) > 0
	if len(o.parking) > 0 {
		if err := o.s.park(ctx, o.parking, o.counted); err != nil {
			return err
		}
	}
	if len(records) > 0 {
		if _, err := o.s.records.BulkWrite(ctx, records); err != nil {
			return err
		}
	}
	if len(lanes) > 0 {
		if _, err := o.s.lanes.BulkWrite(ctx, lanes); err != nil {
			return err
		}
	}
	if len(o.openings) > 0 {
		if _, err := o.s.openings.DeleteMany(ctx, in("_id", o.openings)); err != nil {
			return err
		}
	}
	if len(o.chosen.ids) == 0 {
		return nil
	}
	o.records, err = o.readBack(ctx, o.chosen, o.token)
	return err
}

// writeLane notes what blocks a lane that was looked at, or got a record; it
// returns nil where there is nothing to note.
func (o *ordered) writeLane(state *keyState) driver.WriteModel {
	if !state.looked && state.newHead == nil {
		return nil
	}
	if state.looked {
		rest := slices.DeleteFunc(slices.Clone(state.held), func(r candidate) bool { return o.decided[r.ID] })
		switch {
		case len(rest) > 0:
			state.lane.Head = rest[0].Seq
		case state.heldFrom != nowhere:
			state.lane.Head = state.held[len(state.held)-1].Seq
		case state.newHead != nil:
			state.lane.Head = state.newHead.Seq
		default:
			return driver.NewDeleteOneModel().SetFilter(where("_id", state.lane.ID))
		}
		if state.newHead != nil && place(state.newHead.Seq) < place(state.lane.Head) {
			state.lane.Head = state.newHead.Seq
		}
		state.lane.note(o.blockOf(state), o.now)
	}
	return driver.NewReplaceOneModel().SetFilter(where("_id", state.lane.ID)).SetReplacement(state.lane).SetUpsert(true)
}

// blockOf is what blocks the lane's head.
func (o *ordered) blockOf(state *keyState) block {
	switch {
	case state.other != "":
		return block{state.other, state.otherEnd}
	case place(state.lane.Head) > o.barrier(state):
		return block{blockedByWaiting, state.waitingEnd}
	}
	return block{by: blockedByNothing}
}
