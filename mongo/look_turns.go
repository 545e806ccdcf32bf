package mongo

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// The comment on stageInTurn explains how a claim in order serves turns.

// turnsInOrder is the part of a claim in order that serves turns.
type turnsInOrder struct {
	// without are the first ready records without a turn. given means that the claim gave them one,
	// and unturned is the seq of the first one that is left.
	without  []candidate
	given    bool
	unturned uint64
	// held are the held records of the lanes that are checked.
	held []candidate
	page *turnPage
	// rooms limits the records of each tenant.
	rooms *storekit.TenantRooms
}

func (o *ordered) giveAtOnce() int { return o.s.atOnce.Admit(o.want) }

// unturned finds the first n ready records without a turn.
func (o *ordered) unturned(n int) driver.Pipeline {
	return some(o.line.in(storekit.StageReady), n, ascending("seq"), candidateFields...)
}

// readTurns reads the records of several tenants, those that are held, and what is ready before
// them in their keys. If it gives turns to records instead, the claim must begin its reads again.
func (o *ordered) readTurns(ctx context.Context, turn *turn) (list []candidate, given bool, err error) {
	if len(o.turns.without) > 0 && !o.turns.given {
		o.turns.given = true
		err := o.s.once(ctx, func(ctx context.Context) error {
			if err := turn.stands(ctx); err != nil {
				return err
			}
			n, err := o.s.giveTurns(ctx, o.turns.without)
			o.moved += n
			return err
		})
		return nil, true, err
	}
	if o.turns.page, err = o.s.readInTurns(ctx, o.line, o.pageSize(), o.turns.rooms); err != nil {
		return nil, false, err
	}
	o.goesOn = o.turns.page.goesOn
	o.trail.flow(o.goesOn)
	ready := o.turns.page.list
	for _, r := range ready {
		o.know(r.Key)
	}
	list = slices.Concat(ready, o.turns.held)
	for i := range list {
		list[i].Turn = turnOf(list[i].TenantID)
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(place(a.Seq), place(b.Seq)) })
	return list, false, o.readBehind(ctx, list)
}

// firstOfKey is the seq of the first ready record of a key, or, without a key, of the first one
// without a turn.
type firstOfKey struct {
	Key string         `bson:"key"`
	Seq bson.Timestamp `bson:"seq"`
}

// readBehind finds the first ready record of each key that is not in the list, and the first
// ready record without a turn.
func (o *ordered) readBehind(ctx context.Context, list []candidate) error {
	parts := []driver.Pipeline{{
		{{Key: "$match", Value: o.line.in(storekit.StageReady)}}, {{Key: "$sort", Value: ascending("seq")}}, {{Key: "$limit", Value: 1}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "seq", Value: 1}}}},
	}}
	keys := make(bson.A, 0, len(o.states))
	for key := range o.states {
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		parts = append(parts, driver.Pipeline{
			{{Key: "$match", Value: o.line.in(stageInTurn, bson.E{Key: "key", Value: bson.D{{Key: "$in", Value: keys}}})}},
			{{Key: "$sort", Value: keyOrder}},
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$key"}, {Key: "seq", Value: bson.D{{Key: "$first", Value: "$seq"}}}}}},
			{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "key", Value: "$_id"}, {Key: "seq", Value: 1}}}},
		})
	}
	found, err := aggregateAll[firstOfKey](ctx, o.s.records, union(o.s.records, parts...))
	if err != nil {
		return err
	}
	of := map[string][]candidate{}
	for _, r := range list {
		if r.Key != "" {
			of[r.Key] = append(of[r.Key], r)
		}
	}
	var doubtful []firstOfKey
	for _, f := range found {
		switch records := of[f.Key]; {
		case f.Key == "":
			o.turns.unturned = place(f.Seq)
		case !slices.ContainsFunc(records, func(r candidate) bool { return r.Seq == f.Seq }):
			o.states[f.Key].behind = place(f.Seq)
		case place(records[len(records)-1].Seq) > place(f.Seq):
			doubtful = append(doubtful, f)
		}
	}
	return o.readBetween(ctx, doubtful, of)
}

// readBetween finds the first ready record of each of these keys that is behind the first one and
// not in the list.
func (o *ordered) readBetween(ctx context.Context, keys []firstOfKey, of map[string][]candidate) error {
	for some := range slices.Chunk(keys, searchesAtOnce) {
		each := make([]driver.Pipeline, len(some))
		for i, f := range some {
			behind := bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: f.Seq}}}
			each[i] = driver.Pipeline{
				{{Key: "$match", Value: o.line.in(stageInTurn, bson.E{Key: "key", Value: f.Key}, behind)}},
				{{Key: "$sort", Value: keyOrder}}, {{Key: "$limit", Value: len(of[f.Key])}},
				{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "key", Value: 1}, {Key: "seq", Value: 1}}}},
			}
		}
		found, err := aggregateAll[firstOfKey](ctx, o.s.records, union(o.s.records, each...))
		if err != nil {
			return err
		}
		for _, f := range found {
			if !slices.ContainsFunc(of[f.Key], func(r candidate) bool { return r.Seq == f.Seq }) {
				o.states[f.Key].behind = min(o.states[f.Key].behind, place(f.Seq))
			}
		}
	}
	return nil
}

// walkInTurns decides about each record, so that the tenants take turns and each key keeps its
// order.
func (o *ordered) walkInTurns(list []candidate) {
	o.decided = map[uuid]bool{}
	if o.turns.page == nil {
		return
	}
	queues, keys := map[int64][]candidate{}, map[string][]candidate{}
	var turns []int64
	for _, r := range list {
		turns = append(turns, r.Turn)
		if r.Key != "" {
			keys[r.Key] = append(keys[r.Key], r)
		}
		if r.Key == "" || len(keys[r.Key]) == 1 {
			enqueue(queues, r)
		}
	}
	slices.Sort(turns)
	end := inTurns(fromPlace(o.turns.page.place, slices.Compact(turns)), queues, func(r candidate) verdict {
		is, left := o.decide(r, keys[r.Key])
		if left {
			o.decided[r.ID] = true
			if state := o.states[r.Key]; state != nil {
				state.left = true
				if keys[r.Key] = keys[r.Key][1:]; len(keys[r.Key]) > 0 {
					enqueue(queues, keys[r.Key][0])
				}
			}
		}
		return is
	})
	o.s.endTurns(o.line, end)
	o.lookAgain = o.goesOn || len(list) >= o.pageSize() || len(o.expired)+len(o.parking)+len(o.aside)+o.moved > 0
}

// decide decides about a record, which is the first of its key in the list. If the key is
// blocked, it decides about the rest of the key, too. left means that the record is no longer
// ready.
func (o *ordered) decide(r candidate, ofKey []candidate) (is verdict, left bool) {
	state := o.states[r.Key]
	holdAll := func(b block) (verdict, bool) {
		for _, each := range ofKey {
			o.hold(state, each, b)
		}
		return passed, false
	}
	switch {
	case o.turns.rooms.Of(r.TenantID) <= 0:
		// It stays as it is. The records behind it in its key make way for those of other keys.
		if state != nil {
			for _, each := range ofKey[1:] {
				o.hold(state, each, block{by: storekit.BlockedByTurn})
			}
		}
		return passed, false
	case r.expired(o.now):
		o.expired = append(o.expired, r.ID)
		return passed, true
	case state != nil && place(r.Seq) > o.turns.unturned:
		return passed, false
	case state != nil && place(r.Seq) > state.behind:
		return holdAll(block{by: storekit.BlockedByTurn})
	}
	pause := o.pauseOf(state, r)
	blocking, blocked := o.blocks(state, r)
	switch {
	case pause != 0 && state == nil:
		o.aside = append(o.aside, pausedRecord{r, pause})
	case pause != 0:
		return holdAll(block{storekit.BlockedByPause, state.pauseEnds, pause})
	case state != nil && state.parked && o.req.KeyPolicy == outmill.KeyPark:
		o.parking = append(o.parking, r.ID)
	case blocked:
		return holdAll(blocking)
	case !o.choose(&o.chosen, r, o.want):
		return full, false
	default:
		o.turns.rooms.Take(r.TenantID)
		return took, true
	}
	return passed, true
}
