package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// The reads of a claim in order are not one snapshot: MongoDB has no union in transactions, and
// outside a transaction a server may have dropped the snapshot that it has just begun to read. So
// the order of the reads matters:
//
//	1. the lanes, which only the claim that has the turn writes
//	2. the ready records, and the held records of the lanes
//	3. leases of other owners on the keys that were met
//	4. records of these keys that wait
//	5. records of these keys that are aside
//
// A record that blocks a later one of its key is in 2, 3 or 4, and during these reads it moves
// only forwards: from ready or held to leased (by a process that was late, see claims in order),
// and from leased to waiting (by a call that ends a lease without settling the record). Only the
// claim that has the turn moves a record from waiting to ready: see admit. So the reads miss no
// record that blocks.

// Each part of an aggregation marks its documents. Ready records have no mark, and come last, so
// that the claim can stop when it has enough.
const (
	lookMark      = "look"
	foundHeld     = "held"     // held records of a lane
	foundDue      = "due"      // a due record that is not ready yet
	foundNoOne    = "no one"   // a due record that waits for a group
	foundLane     = "lane"     // a lane of this topic and group
	foundAnyLane  = "any lane" // a lane of any topic
	foundParked   = "parked"   // a key with parked records
	foundPauses   = "pauses"   // the generation of the pauses
	foundAside    = "aside"    // a record that is aside, and that the claim has to bring back first; or its key
	foundUnturned = "unturned" // a ready record without a turn, of a fair topic
	foundResumed  = "resumed"  // another record that is aside for a pause that is gone
)

// found is a document of that aggregation with a mark.
type found struct {
	Record candidate `bson:",inline"`
	// Lane and Held are set if the mark is foundHeld.
	Lane lineKey     `bson:"of"`
	Held []candidate `bson:"records"`
	// Pauses is set if the mark is foundPauses.
	Pauses int64 `bson:"pauses"`
}

func (s *Store) marked(mark string, stages driver.Pipeline) part {
	return part{s.records, append(slices.Clone(stages), markedAs(mark))}
}

func markedAs(mark string) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: lookMark, Value: mark}}}}
}

// unionOf returns the results of the parts, one after another. The first part reads the
// collection of the records.
func unionOf(parts []part) driver.Pipeline {
	stages := slices.Clone(parts[0].stages)
	for _, more := range parts[1:] {
		stages = append(stages, unionWith(more))
	}
	return stages
}

// maxAdmissions bounds how often a claim starts its reads again because a record became due.
// After that, such a record counts as waiting, and blocks its key.
const maxAdmissions = 3

// leastBytes is the least number of bytes that a look may read. A claim that wants less reads as
// much, because the first records may be blocked.
const leastBytes = 1 << 20

// look reads the page and the records that block it, and returns the records about which the
// claim may decide. It returns none if records of the topic wait for a group: a claim hands out
// none before all of them are adopted.
func (o *ordered) look(ctx context.Context, turn *turn) ([]candidate, error) {
	searchDue := o.turns != nil || o.trail.searchesDue(time.Now(), o.s.trails.stirred())
	searches := 1
	for admissions := 0; ; {
		known := o.s.pauses.Load()
		o.pauses = known
		if err := o.readLanes(ctx); err != nil {
			return nil, err
		}
		page, seen, err := o.readPage(ctx, searchDue)
		if err != nil {
			return nil, err
		}
		if o.pauses, err = o.s.pausesOf(ctx, o.generation); err != nil {
			return nil, err
		}
		switch {
		case o.pauses.Generation() != known.Generation() && searches < searchTries:
			searches++
			continue
		case o.pauses.Topic(o.req.Group, o.line.Topic):
			o.states, o.openings = nil, nil
			return nil, nil
		case !searchDue && admissions == 0 && (!o.goesOn || slices.ContainsFunc(page, o.trail.isNew)):
			searchDue = true
			continue
		case seen[foundNoOne]:
			o.trail.routed(time.Time{})
			return nil, nil
		case seen[foundLane] && !o.lanesRead:
			o.trail.mayHaveLanes(true)
			continue
		case (seen[foundAside] || seen[foundResumed]) && !o.broughtBack:
			if err := o.bringBackAll(ctx, seen); err != nil {
				return nil, err
			}
			searchDue = true
			continue
		}
		o.trail.mayHaveLanes(seen[foundLane])
		due := seen[foundDue]
		if o.turns != nil && (!due || admissions == maxAdmissions) {
			var given bool
			if page, given, err = o.readTurns(ctx, turn); err != nil {
				return nil, err
			}
			if given {
				continue
			}
		}
		if !due || admissions == maxAdmissions {
			if due, err = o.readBlocks(ctx); err != nil {
				return nil, err
			}
		}
		if due && admissions < maxAdmissions {
			admissions, searchDue = admissions+1, false
			if err := o.s.admit(ctx, o.line, turn); err != nil {
				return nil, err
			}
			continue
		}
		if o.otherHas {
			return nil, nil
		}
		if seen[foundLane] {
			err = o.readOtherLanes(ctx)
		}
		return slices.DeleteFunc(page, func(r candidate) bool { return place(r.Seq) > o.barrierOf }), err
	}
}

// readPage reads the ready and the held records, and returns which marks it has seen.
func (o *ordered) readPage(ctx context.Context, searchDue bool) (page []candidate, seen map[string]bool, err error) {
	if o.now, err = o.s.now(ctx); err != nil {
		return nil, nil, err
	}
	o.states, o.barrierOf, o.otherHas = map[string]*keyState{}, nowhere, false
	for i := range o.lanes {
		state := o.know(o.lanes[i].ID.Key)
		state.lane, state.looked = &o.lanes[i], true
	}
	began, stirs := time.Now(), o.s.trails.stirred()
	page, held, seen, goesOn, err := o.readParts(ctx, o.parts(searchDue))
	if err != nil {
		return nil, nil, err
	}
	if searchDue {
		o.trail.looked(began, stirs, time.Since(began))
		o.trail.sawTo(o.now)
	}
	o.s.laneSeen.note(seen[foundAnyLane], began)
	o.trail.flow(goesOn)
	o.goesOn = goesOn
	if o.turns != nil {
		o.turns.held = held
	}
	return o.merged(page, held), seen, nil
}

// readParts also notes whether there are more ready records behind the page.
func (o *ordered) readParts(ctx context.Context, parts []part) (page, held []candidate, seen map[string]bool, goesOn bool, err error) {
	cursor, err := o.s.records.Aggregate(ctx, unionOf(parts), options.Aggregate().SetBatchSize(oneBatch))
	if err != nil {
		return nil, nil, nil, false, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	seen, o.generation = map[string]bool{}, 0
	if o.turns != nil {
		o.turns.without, o.turns.unturned = nil, nowhere
	}
	bytes := o.bytes
	for cursor.Next(ctx) {
		if mark, is := cursor.Current.Lookup(lookMark).StringValueOK(); is {
			var f found
			if err := cursor.Decode(&f); err != nil {
				return nil, nil, nil, false, err
			}
			seen[mark] = true
			switch mark {
			case foundHeld:
				held = append(held, o.held(f)...)
			case foundUnturned:
				o.turns.without = append(o.turns.without, f.Record)
			case foundPauses:
				o.generation = f.Pauses
			}
			continue
		}
		d := &document{}
		if err := cursor.Decode(d); err != nil {
			return nil, nil, nil, false, err
		}
		page = append(page, d.candidate())
		o.know(d.Key)
		bytes += d.Size
		tooBig := o.req.MaxBytes > 0 && bytes > max(o.req.MaxBytes, leastBytes)
		if tooBig || bytes > leastBytes && len(page) > max(o.want, minPage) {
			return page, held, seen, true, nil
		}
	}
	return page, held, seen, len(page) == o.pageSize(), cursor.Err()
}

// held returns the held records of a lane, or of a topic in order.
func (o *ordered) held(f found) []candidate {
	if o.req.Order == outmill.OrderTopic {
		return []candidate{f.Record}
	}
	state := o.know(f.Lane.Key)
	state.held = f.Held
	if len(f.Held) == o.heldOfEach() {
		state.heldFrom = place(f.Held[len(f.Held)-1].Seq)
	}
	return f.Held
}

// know returns the state of a key. It returns nil if there is no key, or if keys do not matter.
func (o *ordered) know(key string) *keyState {
	if key == "" || o.req.Order == outmill.OrderTopic {
		return nil
	}
	state := o.states[key]
	if state == nil {
		state = &keyState{waiting: nowhere, heldFrom: nowhere, behind: nowhere}
		o.states[key] = state
	}
	return state
}

// readBlocks reads the records that block those that were read. due means that one of them is
// due, and must become ready first.
func (o *ordered) readBlocks(ctx context.Context) (due bool, err error) {
	parts := o.blocksOfTopic()
	if o.req.Order != outmill.OrderTopic {
		if parts = o.blocksOfKeys(); parts == nil {
			return false, nil
		}
	}
	all, err := aggregateAll[struct {
		Record candidate `bson:",inline"`
		Look   string    `bson:"look"`
	}](ctx, o.s.records, unionOf(parts))
	for _, f := range all {
		r := f.Record
		due = due || r.Stage == storekit.StageWaiting && !r.AvailableAt.After(o.now) && !r.expired(o.now)
		switch {
		case f.Look == foundParked:
			o.know(r.Key).parked = true
		case f.Look == foundAside:
			// It may be before all other records of its key.
			o.know(r.Key).waiting = 0
		case o.req.Order == outmill.OrderTopic:
			o.blockTopic(r)
		default:
			o.blockKey(o.know(r.Key), r)
		}
	}
	return due, err
}

// blockTopic treats a topic in order as one key.
func (o *ordered) blockTopic(r candidate) {
	if r.Stage == storekit.StageLeased {
		o.otherHas = true
	} else {
		o.barrierOf = min(o.barrierOf, place(r.Seq))
	}
}

func (o *ordered) blockKey(state *keyState, r candidate) {
	switch {
	case r.expired(o.now) && (r.Stage == storekit.StageWaiting || !r.AvailableAt.After(o.now)):
	case r.Stage == storekit.StageLeased:
		state.other, state.otherEnd = outmill.OwnerToken(r.Owner).String(), r.AvailableAt
	case place(r.Seq) < state.waiting:
		state.waiting, state.waitingEnd = place(r.Seq), r.AvailableAt
		if !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(r.AvailableAt) {
			state.waitingEnd = r.ExpiresAt
		}
	}
}

// parts returns the aggregations of a look, the ready records last. searchDue adds the search for due
// records that are not ready yet.
func (o *ordered) parts(searchDue bool) []part {
	parts := []part{}
	unrouted := line{Topic: o.line.Topic}
	for _, filter := range []bson.D{unrouted.in(storekit.StageReady), unrouted.in(storekit.StageDelayed, until(o.now))} {
		parts = append(parts, o.s.marked(foundNoOne, firstOf(filter)))
	}
	if searchDue {
		for _, filter := range dueNotReady(o.line, o.now) {
			parts = append(parts, o.s.marked(foundDue, firstOf(filter)))
		}
	}
	change := o.s.lastChange()
	parts = append(parts, part{change.from, append(change.stages, markedAs(foundPauses))},
		o.s.marked(foundAside, firstOf(o.asideInOrder())), o.s.marked(foundResumed, firstOf(o.line.resumed(o.pauses))))
	if o.req.Order == outmill.OrderTopic {
		parts = append(parts, o.s.marked(foundHeld, some(o.line.in(storekit.StageHeld), o.pageSize(), ascending("seq"), candidateFields...)))
	} else {
		parts = append(parts, o.laneParts()...)
	}
	if o.turns != nil {
		return append(parts, o.s.marked(foundUnturned, o.unturned(o.giveAtOnce())))
	}
	return append(parts, part{o.s.records, driver.Pipeline{
		{{Key: "$match", Value: o.line.ready()}}, {{Key: "$sort", Value: ascending("seq")}},
		{{Key: "$limit", Value: o.pageSize()}},
	}})
}

// laneParts find whether there are lanes, and the held records of the lanes that are checked.
func (o *ordered) laneParts() []part {
	mark := func(mark string) driver.Pipeline {
		return driver.Pipeline{{{Key: "$limit", Value: 1}},
			{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: lookMark, Value: literal(mark)}}}}}
	}
	parts := []part{
		{o.s.lanes, append(driver.Pipeline{{{Key: "$match", Value: everyLane}}}, mark(foundAnyLane)...)},
		{o.s.lanes, append(driver.Pipeline{{{Key: "$match",
			Value: bson.D{{Key: "grp", Value: o.line.Group}, {Key: "topic", Value: o.line.Topic}}}}}, mark(foundLane)...)},
	}
	if len(o.lanes) == 0 {
		return parts
	}
	ids := make(bson.A, len(o.lanes))
	for i, l := range o.lanes {
		ids[i] = l.ID
	}
	return append(parts, part{o.s.lanes, driver.Pipeline{
		{{Key: "$match", Value: in("_id", ids)}},
		{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: o.s.records.Name()}, {Key: "localField", Value: "_id.key"}, {Key: "foreignField", Value: "key"},
			{Key: "pipeline", Value: some(o.line.in(storekit.StageHeld, bson.E{Key: "keyed", Value: true}), o.heldOfEach(), ascending("seq"),
				candidateFields...)},
			{Key: "as", Value: "records"},
		}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "of", Value: "$_id"}, {Key: "records", Value: 1}}}},
		markedAs(foundHeld),
	}})
}

// asideInOrder selects records that are aside, and that have a place in the order of the claim.
func (o *ordered) asideInOrder() bson.D {
	if o.req.Order == outmill.OrderTopic {
		return o.line.in(storekit.StageAside)
	}
	return o.line.in(storekit.StageAside, bson.E{Key: "keyed", Value: true})
}

// bringBackAll brings back records that are aside, once in a claim. If it leaves some, the claim
// treats their keys as blocked, and the next claim continues.
func (o *ordered) bringBackAll(ctx context.Context, seen map[string]bool) error {
	o.broughtBack = true
	for mark, filter := range map[string]bson.D{foundAside: o.asideInOrder(), foundResumed: o.line.resumed(o.pauses)} {
		if !seen[mark] {
			continue
		}
		found, err := findAll[candidate](ctx, o.s.records, filter, first(o.s.asideAtOnce, nil, "_id"))
		if err != nil {
			return err
		}
		moved, err := o.s.bringBack(ctx, recordIDs(found))
		if err != nil {
			return err
		}
		o.moved += moved
	}
	return nil
}

func firstOf(filter bson.D) driver.Pipeline {
	return driver.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$limit", Value: 1}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}}}
}

// dueNotReady selects due records that are not ready yet, by stage.
func dueNotReady(of line, now time.Time) []bson.D {
	return []bson.D{
		of.in(storekit.StageWaiting, until(now)), of.in(storekit.StageDelayed, until(now)),
		// An expired record keeps its lease until the lease is reaped. Other expired records
		// become ready, and the claim that meets them there skips them.
		of.in(storekit.StageLeased, until(now), unexpired(now)),
	}
}

var blockFields = []string{"stage", "key", "owner", "seq", "available_at", "expires_at"}

func (o *ordered) notMine() bson.E {
	return bson.E{Key: "owner", Value: bson.D{{Key: "$ne", Value: uuid(o.req.Owner)}}}
}

// blocksOfTopic finds leases of another owner, and the first record that waits. If the policy
// does not block behind waiting records, it finds due records that are not ready yet instead.
func (o *ordered) blocksOfTopic() []part {
	waiting := o.line.in(storekit.StageWaiting, unexpired(o.now))
	if o.req.KeyPolicy == outmill.KeySkip {
		waiting = append(waiting, until(o.now))
	}
	return []part{
		{o.s.records, append(firstOf(o.line.in(storekit.StageLeased, o.notMine(), inTheWay(o.now)))[:2], project(blockFields...))},
		{o.s.records, some(waiting, 1, ascending("seq"), blockFields...)},
		{o.s.records, some(o.line.in(storekit.StageAside), 1, ascending("seq"), blockFields...)},
	}
}

func project(fields ...string) bson.D { return bson.D{{Key: "$project", Value: ascending(fields...)}} }

// blocksOfKeys finds leases of other owners, and records that wait. If the policy does not block
// behind waiting records, it finds due records that are not ready yet instead.
func (o *ordered) blocksOfKeys() []part {
	if len(o.states) == 0 {
		return nil
	}
	keys := make(bson.A, 0, len(o.states))
	for key := range o.states {
		keys = append(keys, key)
	}
	these := bson.D{{Key: "$in", Value: keys}}
	waiting := o.line.keyed(storekit.StageWaiting, these)
	if o.req.KeyPolicy == outmill.KeySkip {
		waiting = append(waiting, until(o.now))
	}
	parts := []part{
		{o.s.records, driver.Pipeline{{{Key: "$match", Value: o.line.keyed(storekit.StageLeased, these, o.notMine())}}, project(blockFields...)}},
		{o.s.records, driver.Pipeline{{{Key: "$match", Value: waiting}}, project(blockFields...)}},
		o.s.marked(foundAside, eachKey(o.line.keyed(storekit.StageAside, these))),
	}
	if o.req.KeyPolicy == outmill.KeyPark {
		parts = append(parts, o.s.marked(foundParked, eachKey(o.line.keyed(storekit.StageDead, these))))
	}
	return parts
}

// eachKey skips from key to key through an index.
func eachKey(filter bson.D) driver.Pipeline {
	return driver.Pipeline{
		{{Key: "$match", Value: filter}}, {{Key: "$group", Value: bson.D{{Key: "_id", Value: "$key"}}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "key", Value: "$_id"}}}},
	}
}

// heldOfEach is how many held records are read of each lane: the more lanes are checked, the
// fewer.
func (o *ordered) heldOfEach() int { return max(1, o.pageSize()/max(1, len(o.lanes))) }

// merged returns the ready and the held records in their order. If one of the two lists was cut
// off, it leaves out the records behind the end of that list, because records that were not read
// may come before them.
func (o *ordered) merged(page, held []candidate) []candidate {
	end := uint64(nowhere)
	if o.goesOn {
		end = place(page[len(page)-1].Seq)
	}
	if o.req.Order == outmill.OrderTopic && len(held) == o.pageSize() {
		end = min(end, place(held[len(held)-1].Seq))
	}
	all := slices.DeleteFunc(slices.Concat(page, held), func(r candidate) bool { return place(r.Seq) > end })
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(place(a.Seq), place(b.Seq)) })
	return all
}

// readLanes reads the lanes to check, if there may be any: opened lanes, lanes that this owner
// blocks itself, lanes of pauses that are gone, and lanes whose next check is due.
func (o *ordered) readLanes(ctx context.Context) error {
	if o.req.Order == outmill.OrderTopic || !o.lanesRead && !o.trail.hasLanes() {
		return nil
	}
	now, err := o.s.now(ctx)
	if err != nil {
		return err
	}
	of := bson.D{{Key: "grp", Value: o.line.Group}, {Key: "topic", Value: o.line.Topic}}
	openings, err := findAll[opening](ctx, o.s.openings, of, first(o.pageSize(), nil))
	if err != nil {
		return err
	}
	o.openings = nil
	ids := bson.A{}
	for _, opened := range openings {
		o.openings = append(o.openings, opened.ID)
		ids = append(ids, lineKey{o.line.Group, o.line.Topic, opened.Key})
	}
	var each []driver.Pipeline
	for _, filter := range []bson.D{
		in("_id", ids),
		append(slices.Clone(of), in("blocked_by",
			bson.A{storekit.BlockedByNothing, o.req.Owner.String(), storekit.IgnoredBlocker(o.req.KeyPolicy)})...),
		append(slices.Clone(of), gone(o.pauses)),
		append(slices.Clone(of), bson.E{Key: "expires", Value: bson.D{{Key: "$lte", Value: now}}}),
		append(slices.Clone(of), bson.E{Key: "until", Value: bson.D{{Key: "$lte", Value: now}}}),
		append(slices.Clone(of), bson.E{Key: "until", Value: bson.D{{Key: "$gt", Value: now.Add(2 * lastLook)}}}),
	} {
		each = append(each, driver.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$limit", Value: o.pageSize()}}})
	}
	lanes, err := aggregateAll[lane](ctx, o.s.lanes, union(o.s.lanes, each...))
	if err != nil {
		return err
	}
	slices.SortFunc(lanes, func(a, b lane) int { return cmp.Compare(a.ID.Key, b.ID.Key) })
	o.lanes, o.lanesRead = slices.CompactFunc(lanes, func(a, b lane) bool { return a.ID == b.ID }), true
	return nil
}

// readOtherLanes reads the lanes of keys that are not checked. No other claim writes lanes while
// this claim has the turn.
func (o *ordered) readOtherLanes(ctx context.Context) error {
	ids := bson.A{}
	for key, state := range o.states {
		if state.lane == nil {
			ids = append(ids, lineKey{o.line.Group, o.line.Topic, key})
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
