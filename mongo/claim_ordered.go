package mongo

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Claims in order take turns at a topic of a group (a line). A line has one document in the
// collection locks. A claim takes the turn when it writes its token and an end, by the server's
// clock, into that document. Other claims wait for a moment, and then return nothing. The turn
// keeps two claims from choosing the same records. It cannot keep a process from writing late,
// because a process may stop between any two steps for longer than its turn.
//
//	free       -- take the turn ------------------------------> taken by T
//	taken by T -- T confirms: same token, not over, untouched -> free; T hands out
//	taken by T -- T gives the turn back: same token ----------> free; T hands out nothing
//	taken by T -- its end passes -----------------------------> free to any claim
//	any        -- touch: park, requeue, drop a lane ----------> as before, and T's confirming fails
//	any        -- T ends its turn, which is doubtful ---------> one doubt more; not taken by T
//
// A turn is doubtful if the claim does not know the effect of one of its takes. The server may get
// such a take long after the claim has ended. So the document counts the doubtful turns that have
// ended, and each take has the count that its process knows. A take with a lower count than the
// document's changes nothing, and its claim, if it still waits, tries again with the new count.
//
// A claim has these steps:
//
//	1. It takes the turn.
//	2. It reads the ready records, and then the records that block their keys. The comment
//	   on the look of a claim in order explains the order of these reads.
//	3. It decides.
//	4. It leases the chosen records, outside any transaction. The update checks again, by
//	   $$NOW, that each record is due and unchanged. If another process had changed a
//	   record, the claim gives back the later records of that key.
//	5. It confirms the turn, by one update of the line's document. If it has to write notes
//	   about keys (held records, lanes, openings, parked records), it writes them in one
//	   transaction with that update, so that a process whose turn is over writes no notes.
//	6. It hands out the records.
//
// If a process dies, or stops for longer than its turn, it leaves behind:
//
//	after 1 to 3: the turn, which ends by itself. A process that lives gives its turn back, also
//	   if it got no answer to 1. It tries to for 20 seconds, or until its store is closed.
//	after 4: leases that nobody handles. They block their keys until they end, as leases of
//	   any other owner do, and their expiry is counted. If the process continues, it cannot
//	   confirm, and gives back the records that its token leased. If a claim of another
//	   process read these records before they were leased, its own update does not find
//	   them, so it hands out nothing behind them.
//	after 5: leases that nobody handles, as after any claim. The turn is free.
//
// If another process settles a lease between 2 and 5, this claim still treats the key as blocked.
// The next claims check a lane that is noted then after a short time. Park and Requeue change
// which records of a key may follow, so they touch the line in their transactions: a claim that
// read the earlier state fails to confirm. A touch also conflicts with a claim that confirms at
// the same time, so that the one that repeats its work sees the other's changes.
//
// A failover may roll back the line's document. Then the document has another token or none, and
// the claim fails to confirm; or the turn stays taken until its end. The claim wrote its leases
// with write concern majority before that.

const (
	// admitAtOnce bounds how many records of each stage one update makes ready after their wait,
	// delay or lease has ended. The claim repeats the update until none are left. A due record
	// that is not ready yet blocks no other.
	admitAtOnce = 1000
	minPage     = 32
)

const nowhere = math.MaxUint64

// takeInOrder leases up to want records of the topic, in order: within each key, or in the whole
// topic.
func (c *claim) takeInOrder(ctx context.Context, topic string, want int) error {
	of := line{reader(c.req.Group), topic}
	// Claims of this process wait for each other here. Claims of other processes take turns.
	unlock, err := c.s.inUse.Lock(ctx, of)
	if err != nil {
		return err
	}
	defer unlock()
	over := c.over
	var done *ordered
	err = again(ctx, func() error {
		// First give back the leases of the failed attempt. The owner's own leases do not block a
		// key, so this attempt would hand out the records behind them.
		if err := done.undo(ctx); err != nil {
			return err
		}
		// Forget a suspect that the failed attempt met.
		c.over = over
		done = &ordered{claim: c, line: of, want: want, token: uuid(outmill.NewOwnerToken()), counted: touched{}, trail: c.s.trails.of(of)}
		if c.req.Order == outmill.OrderKey && c.s.ServesTurns(topic) {
			done.turns = &turnsInOrder{rooms: storekit.RoomsOf(c.req, topic, c.records)}
		}
		return done.run(ctx)
	})
	if err != nil {
		_ = done.undo(ctx)
		return err
	}
	c.s.hurry(ctx, done.counted)
	c.again = c.again || done.lookAgain
	if done.metPaused || done.turns != nil && len(done.records) == 0 {
		c.ask = min(max(2*c.ask, 2*done.pageSize()), c.s.asideAtOnce)
	}
	c.add(done.records)
	return nil
}

// admit makes due records ready, so that they are claimed in the order of their appends, and so
// that every record in StageLeased has a lease that has not ended. A record that blocked its key
// until now becomes ready only while this claim has the turn, because the claim with the next
// turn may already have searched for records that block.
func (s *Store) admit(ctx context.Context, of line, turn *turn) error {
	for {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		delayed, others, keys, full, err := s.toAdmit(ctx, of, now)
		if err != nil {
			return err
		}
		admitted, err := s.admitAll(ctx, delayed)
		if err == nil && len(others) > 0 {
			err = s.once(ctx, func(ctx context.Context) error {
				if err := turn.stands(ctx); err != nil {
					return err
				}
				n, err := s.admitAll(ctx, others)
				admitted += n
				return err
			})
		}
		if err != nil {
			return err
		}
		if err := s.openLanes(ctx, keys); err != nil || !full || admitted == 0 {
			return err
		}
	}
}

func (s *Store) admitAll(ctx context.Context, ids bson.A) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", storekit.StageLeased}}}
	result, err := s.records.UpdateMany(ctx, append(in("_id", ids), stillDue()),
		pipeline(append(countEnded(ended), bson.E{Key: "stage", Value: readyAgain}, bson.E{Key: "status", Value: outmill.StatusPending}),
			"owner", "available_at"))
	if err != nil {
		return 0, err
	}
	return int(result.ModifiedCount), nil
}

func (s *Store) toAdmit(ctx context.Context, of line, now time.Time) (delayed, others bson.A, keys map[lineKey]bool, full bool, err error) {
	var each []driver.Pipeline
	for _, filter := range dueNotReady(of, now) {
		each = append(each, some(filter, admitAtOnce, ascending("available_at"), "key", "stage"))
	}
	found, err := aggregateAll[candidate](ctx, s.records, union(s.records, each...))
	keys = map[lineKey]bool{}
	inStage := map[int]int{}
	for _, r := range found {
		if r.Stage == storekit.StageDelayed {
			delayed = append(delayed, r.ID)
		} else {
			others = append(others, r.ID)
		}
		if r.Key != "" {
			keys[lineKey{of.Group, of.Topic, r.Key}] = true
		}
		inStage[r.Stage]++
		full = full || inStage[r.Stage] == admitAtOnce
	}
	return delayed, others, keys, full, err
}

// ordered is a claim in order of one line.
type ordered struct {
	*claim
	line  line
	trail *trail
	want  int
	// turns is set if the claim serves the tenants in turn.
	turns *turnsInOrder
	// token identifies the turn and the leases.
	token uuid
	now   time.Time

	// states holds the state of each key, openings the openings that were read, and lanes the
	// lanes that this claim checks.
	states    map[string]*keyState
	openings  bson.A
	lanes     []lane
	lanesRead bool
	// goesOn means that there are more ready records behind the page.
	goesOn bool
	// For a topic in order: barrierOf is the seq of the first record that waits, and otherHas
	// means that another owner has a lease.
	barrierOf uint64
	otherHas  bool
	// generation is that of the pauses, as the page was read, and pauses are these pauses.
	generation int64
	pauses     *roles.PauseList
	// broughtBack means that the claim has brought back records that were aside, and moved is their
	// number.
	broughtBack bool
	moved       int

	// The decisions.
	chosen                  choice
	expired, parking, holds bson.A
	aside                   []pausedRecord
	decided                 map[uuid]bool
	lookAgain               bool
	// metPaused means that the page had paused records.
	metPaused bool

	// leased means that the chosen records may have been leased, and are not handed out yet.
	leased  bool
	records []*outmill.Record
	counted touched
}

// keyState is the state of a key, as an ordered claim has read it.
type keyState struct {
	// other is another owner that has a lease on the key, and otherEnd the end of that lease.
	other    string
	otherEnd time.Time
	// waiting is the seq of the first record that waits.
	waiting    uint64
	waitingEnd time.Time
	parked     bool
	// pause is the number of the pause of the first paused record that was met, pausedFrom the
	// record's seq, and pauseEnds the time at which it expires.
	pause      int64
	pausedFrom uint64
	pauseEnds  time.Time

	// lane is the lane of the key, or nil. looked means that this claim checks the lane. held are
	// the first held records; there may be more from heldFrom on.
	lane     *lane
	looked   bool
	held     []candidate
	heldFrom uint64
	// newHead is the first of the records that this claim holds.
	newHead *candidate

	// behind is the seq of the first ready record of the key that the claim has not read, if it
	// serves turns. left means that a record of the key is no longer ready.
	behind uint64
	left   bool
}

// run returns an error that can be retried if the claim lost its turn.
func (o *ordered) run(ctx context.Context) error {
	turn, err := o.s.awaitTurn(ctx, o.line, o.token, o.trail)
	if err != nil || turn == nil {
		return err
	}
	began := time.Now()
	err = o.carryOut(ctx, turn)
	o.trail.tookTurn(time.Since(began), o.s.turnFor)
	if !turn.over {
		turn.giveBack(ctx)
	}
	if errors.Is(err, errContended) {
		// Another claim may have the turn and the records, so this claim starts again.
		o.trail.flow(false)
	}
	return err
}

func (o *ordered) carryOut(ctx context.Context, turn *turn) error {
	page, err := o.look(ctx, turn)
	if err != nil {
		return err
	}
	if o.turns != nil {
		o.walkInTurns(page)
	} else {
		o.walk(page)
	}
	return o.write(ctx, turn)
}

// undo gives back records that were leased and not handed out, and opens the lanes of the keys
// that these leases may have blocked.
func (o *ordered) undo(ctx context.Context) error {
	if o == nil || !o.leased {
		return nil
	}
	err := o.handBack(ctx, o.chosen.list)
	o.leased = err != nil
	return err
}

func (o *ordered) pageSize() int { return max(o.want, minPage, o.ask) }

// walk decides about each record, in order.
func (o *ordered) walk(page []candidate) {
	o.decided = map[uuid]bool{}
	for _, r := range page {
		state := o.states[r.Key]
		pause := o.pauseOf(state, r)
		blocking, blocked := o.blocks(state, r)
		switch {
		case r.expired(o.now):
			o.expired = append(o.expired, r.ID)
		case pause != 0 && o.req.Order == outmill.OrderTopic:
			return
		case pause != 0 && state == nil:
			o.aside = append(o.aside, pausedRecord{r, pause})
		case pause != 0:
			o.hold(state, r, block{storekit.BlockedByPause, state.pauseEnds, pause})
			continue
		case state != nil && state.parked && o.req.KeyPolicy == outmill.KeyPark:
			o.parking = append(o.parking, r.ID)
		case blocked:
			o.hold(state, r, blocking)
			continue
		case !o.choose(&o.chosen, r, o.want):
			return
		}
		o.decided[r.ID] = true
	}
	// If records were skipped, there may be more to claim behind them.
	o.lookAgain = len(page) >= o.pageSize() || len(o.expired)+len(o.parking)+len(o.aside)+o.moved > 0 || o.goesOn && len(o.holds) > 0
}

// pauseOf returns the number of the pause of the record, or of an earlier record of its key that
// the claim has met; zero if there is none. A record that has expired pauses nothing.
func (o *ordered) pauseOf(state *keyState, r candidate) int64 {
	if !o.pauses.HasParts() || r.expired(o.now) {
		return 0
	}
	if state != nil && state.pause != 0 {
		return state.pause
	}
	number := o.pauses.Of(o.req.Group, o.line.Topic, r.Key, r.TenantID)
	o.metPaused = o.metPaused || number != 0
	if state != nil && number != 0 {
		state.pause, state.pausedFrom, state.pauseEnds = number, place(r.Seq), r.ExpiresAt
	}
	return number
}

// blocks reports whether the record's key is blocked, and the block to note in its lane.
func (o *ordered) blocks(state *keyState, r candidate) (block, bool) {
	if state == nil {
		return block{}, false
	}
	switch at, barrier := place(r.Seq), state.waiting; {
	case state.other != "":
		return block{by: state.other, until: state.otherEnd}, true
	case at > state.heldFrom && state.heldFrom < barrier:
		return block{by: storekit.BlockedByNothing}, true
	case at > barrier:
		return block{by: storekit.BlockedByWaiting, until: state.waitingEnd}, true
	}
	return block{}, false
}

// hold makes the record held, unless it is held already.
func (o *ordered) hold(state *keyState, r candidate, b block) {
	if r.Stage == storekit.StageHeld {
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
	if place(r.Seq) > place(state.lane.Head) && (b.pause != 0 || o.pauses.Has(state.lane.PausedBy)) {
		// The lane's first record decides what blocks it.
		return
	}
	if place(r.Seq) < place(state.lane.Head) {
		state.lane.Head = r.Seq
	}
	state.lane.note(b, o.now)
}

// unexpired excludes records that have expired, by the estimate of the server's time.
func unexpired(now time.Time) bson.E {
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "expires_at", Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: "expires_at", Value: bson.D{{Key: "$gt", Value: now}}}},
	}}
}

// inTheWay excludes expired records whose lease has ended, because they block no key.
func inTheWay(now time.Time) bson.E {
	either := unexpired(now).Value.(bson.A)
	return bson.E{Key: "$or", Value: append(either, bson.D{{Key: "available_at", Value: bson.D{{Key: "$gt", Value: now}}}})}
}

// write carries out the decisions.
func (o *ordered) write(ctx context.Context, turn *turn) error {
	passed, err := o.s.passExpired(ctx, o.expired)
	if err != nil {
		return err
	}
	aside, err := o.s.setAside(ctx, o.line, o.aside)
	if err != nil {
		return err
	}
	moved := o.moved + passed + aside
	var lanes []driver.WriteModel
	for _, state := range o.states {
		if model := o.writeLane(state); model != nil {
			lanes = append(lanes, model)
		}
	}
	notes := len(o.holds) + len(lanes) + len(o.openings) + len(o.parking)
	// If the claim changed nothing, it would read the same again. Each claim writes the lanes of
	// tenants without room.
	changed := moved + len(o.chosen.list) + len(o.holds) + len(o.parking)
	if o.turns == nil || o.turns.rooms == nil {
		changed += len(lanes)
	}
	o.lookAgain = o.lookAgain && changed > 0
	if len(o.chosen.list)+notes == 0 {
		return nil
	}
	records, err := o.leaseInOrder(ctx)
	if err != nil {
		return err
	}
	if notes == 0 {
		err = turn.confirm(ctx)
	} else {
		err = o.s.once(ctx, func(ctx context.Context) error {
			clear(o.counted)
			if err := turn.confirm(ctx); err != nil {
				return err
			}
			return o.writeNotes(ctx, lanes)
		})
	}
	if err != nil {
		turn.over = false
		return err
	}
	o.records, o.leased = records, false
	return nil
}

// leaseInOrder leases the chosen records. If another process has changed one, it gives back the
// later records of that key.
func (o *ordered) leaseInOrder(ctx context.Context) ([]*outmill.Record, error) {
	if len(o.chosen.list) == 0 {
		return nil, nil
	}
	o.leased = true
	records, err := o.leaseAs(ctx, o.chosen, o.token)
	if err != nil || len(records) == len(o.chosen.list) {
		return records, err
	}
	byID := map[uuid]*outmill.Record{}
	for _, r := range records {
		byID[uuid(r.ID)] = r
	}
	keep := storekit.LeasedInOrder(o.req.Order, len(o.chosen.list),
		func(i int) string { return o.chosen.list[i].Key }, func(i int) bool { return byID[o.chosen.list[i].ID] != nil })
	var kept []*outmill.Record
	var back []candidate
	for i, r := range o.chosen.list {
		switch leased := byID[r.ID]; {
		case keep[i]:
			kept = append(kept, leased)
		case leased != nil:
			back = append(back, r)
		}
	}
	o.lookAgain = true
	return kept, o.handBack(ctx, back)
}

// handBack gives back those of the records that the claim's token has leased.
func (o *ordered) handBack(ctx context.Context, list []candidate) error {
	if err := o.giveBack(ctx, recordIDs(list), o.token); err != nil {
		return err
	}
	keys := map[lineKey]bool{}
	for _, r := range list {
		if r.Key != "" {
			keys[lineKey{o.line.Group, o.line.Topic, r.Key}] = true
		}
	}
	ctx, cancel := context.WithTimeout(alone(context.WithoutCancel(ctx)), abortWithin)
	defer cancel()
	// If no opening is written, a later claim checks the lane anyway.
	_ = o.s.openLanes(ctx, keys)
	return nil
}

// writeNotes writes all decisions except leases, within a transaction.
func (o *ordered) writeNotes(ctx context.Context, lanes []driver.WriteModel) error {
	if len(o.parking) > 0 {
		if err := o.s.park(ctx, o.parking, o.counted); err != nil {
			return err
		}
	}
	if len(o.holds) > 0 {
		if _, err := o.s.records.UpdateMany(ctx, append(in("_id", o.holds), bson.E{Key: "stage", Value: readyStages}),
			set(bson.D{{Key: "stage", Value: storekit.StageHeld}})); err != nil {
			return err
		}
	}
	if len(lanes) > 0 {
		o.trail.mayHaveLanes(true)
		o.s.laneSeen.note(true, time.Now())
		if _, err := o.s.lanes.BulkWrite(ctx, lanes); err != nil {
			return err
		}
	}
	if len(o.openings) > 0 {
		if _, err := o.s.openings.DeleteMany(ctx, in("_id", o.openings)); err != nil {
			return err
		}
	}
	return nil
}

// writeLane writes the block of a lane that was checked or has a new record. It returns nil if
// there is nothing to write.
func (o *ordered) writeLane(state *keyState) driver.WriteModel {
	if !state.looked && state.newHead == nil {
		if state.lane == nil || !state.left {
			return nil
		}
		// Its records may have waited for the one that left.
		state.lane.note(block{by: storekit.BlockedByNothing}, o.now)
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

// blockOf returns the block of the lane's first record.
func (o *ordered) blockOf(state *keyState) block {
	switch {
	case state.pause != 0 && place(state.lane.Head) >= state.pausedFrom:
		return block{storekit.BlockedByPause, state.pauseEnds, state.pause}
	case state.other != "":
		return block{by: state.other, until: state.otherEnd}
	case place(state.lane.Head) > state.waiting:
		return block{by: storekit.BlockedByWaiting, until: state.waitingEnd}
	case place(state.lane.Head) > state.behind:
		return block{by: storekit.BlockedByTurn}
	}
	return block{by: storekit.BlockedByNothing}
}
