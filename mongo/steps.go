package mongo

import (
	"bytes"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A change of a step's record and its count in the joins are in one transaction. So updates
// outside a transaction skip records of steps, and then a transaction finds and updates the
// records that they skipped.

// noStep selects records that are not steps.
func noStep() bson.E { return bson.E{Key: "step", Value: bson.D{{Key: "$exists", Value: false}}} }

// change is the effect of a record's change on the counts of its step.
type change struct{ open, acked, dead int }

var (
	isAcked    = change{open: -1, acked: +1}
	isDead     = change{open: -1, dead: +1}
	isRequeued = change{open: +1, dead: -1}
	isDropped  = change{open: -1}
)

func (c change) add(other change) change {
	return change{c.open + other.open, c.acked + other.acked, c.dead + other.dead}
}

// member is a document of the members: a step of a join, named by the id of the message's first
// record. Its id is the id of the join followed by the id of the step.
type member struct {
	ID    bson.Binary `bson:"_id"`
	Join  uuid        `bson:"join"`
	Step  uuid        `bson:"step"`
	State memberState `bson:",inline"`
}

// memberState is the state of a step. Open counts the records of the message that are not
// settled, Acked and Dead count the others.
type memberState struct {
	Status roles.StepStatus `bson:"status"`
	Open   int              `bson:"open"`
	Acked  int              `bson:"acked"`
	Dead   int              `bson:"dead"`
	// Reported means that the state of the message no longer matters.
	Reported bool `bson:"reported"`
}

func newMember(join outmill.JoinID, step uuid) *member {
	return &member{ID: memberID(join, step), Join: uuid(join), Step: step, State: memberState{Status: roles.StepPending}}
}

func memberID(join outmill.JoinID, step uuid) bson.Binary {
	return bson.Binary{Data: slices.Concat(join[:], step[:])}
}

// settled returns the status of the step.
func (m memberState) settled() roles.StepStatus {
	if m.Reported {
		return m.Status
	}
	return storekit.StepOutcome(m.Open, m.Acked, m.Dead)
}

// touched are the joins whose counts a transaction has changed.
type touched map[uuid]bool

// stepRecord is a record of a step.
type stepRecord struct {
	ID     uuid `bson:"_id"`
	Step   uuid `bson:"step"`
	Stage  int  `bson:"stage"`
	Owner  uuid `bson:"owner"`
	Claims int  `bson:"claims"`
}

// withSteps updates records of steps, or deletes them if update is nil, and counts the change in
// their joins, in its own transactions of some records each. The filter begins with ids, and must
// not select records that the update has changed. It returns how many records it changed.
func (s *Store) withSteps(ctx context.Context, filter bson.D, update any, how change) (changed int, err error) {
	for {
		found, err := findAll[stepRecord](ctx, s.records, append(slices.Clone(filter), exists("step")...), first(stepsAtOnce, nil, "step"))
		if err != nil || len(found) == 0 {
			return changed, err
		}
		ids := make(bson.A, len(found))
		for i, r := range found {
			ids[i] = r.ID
		}
		some := append(in("_id", ids), filter[1:]...)
		counted, n := touched{}, 0
		err = s.onJoins(ctx, found, func(ctx context.Context) (err error) {
			clear(counted)
			n, err = s.stepsIn(ctx, some, update, how, counted)
			return err
		})
		if err != nil {
			return changed, err
		}
		s.hurry(ctx, counted)
		if changed += n; len(found) < stepsAtOnce || n == 0 {
			return changed, nil
		}
	}
}

// stepsAtOnce bounds a transaction on records of steps.
const stepsAtOnce = 500

// onJoins runs fn in a transaction. No other transaction of this process works on the joins of
// these steps at the same time, because the two would only conflict.
func (s *Store) onJoins(ctx context.Context, records []stepRecord, fn func(ctx context.Context) error) error {
	of := map[uuid]bool{}
	for _, r := range records {
		of[r.Step] = true
	}
	members, err := s.membersOf(ctx, of)
	if err != nil {
		return err
	}
	joins := map[uuid]bool{}
	for _, m := range members {
		joins[m.Join] = true
	}
	return s.inTurn(ctx, joins, fn)
}

// inTurn runs fn in a transaction, one at a time in this process for each join.
func (s *Store) inTurn(ctx context.Context, joins map[uuid]bool, fn func(ctx context.Context) error) error {
	for _, id := range sortedIDs(joins) {
		unlock, err := s.inUse.Lock(ctx, id)
		if err != nil {
			return err
		}
		defer unlock()
	}
	return again(ctx, func() error { return s.once(ctx, fn) })
}

func sortedIDs(ids map[uuid]bool) []uuid {
	list := make([]uuid, 0, len(ids))
	for id := range ids {
		list = append(list, id)
	}
	slices.SortFunc(list, func(a, b uuid) int { return bytes.Compare(a[:], b[:]) })
	return list
}

// stepsIn is withSteps within a transaction.
func (s *Store) stepsIn(ctx context.Context, filter bson.D, update any, how change, counted touched) (int, error) {
	found, err := findAll[stepRecord](ctx, s.records, append(slices.Clone(filter), exists("step")...), first(maxClaim, nil, "step", "stage"))
	if err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make(bson.A, len(found))
	moves := map[uuid]change{}
	for i, r := range found {
		ids[i] = r.ID
		// Records that were settled before are not counted again.
		if how == isRequeued || r.Stage < storekit.StageProcessed {
			moves[r.Step] = moves[r.Step].add(how)
		}
	}
	if update == nil {
		_, err = s.records.DeleteMany(ctx, in("_id", ids))
	} else {
		_, err = s.records.UpdateMany(ctx, in("_id", ids), update)
	}
	if err != nil {
		return 0, err
	}
	return len(found), s.moveSteps(ctx, moves, counted)
}

// moveSteps counts the changes of steps in their pending joins, within a transaction.
func (s *Store) moveSteps(ctx context.Context, moves map[uuid]change, counted touched) error {
	if len(moves) == 0 {
		return nil
	}
	of := map[uuid]bool{}
	for step := range moves {
		of[step] = true
	}
	return s.eachMember(ctx, of, counted, func(m *member) bool {
		move, state := moves[m.Step], &m.State
		state.Open, state.Acked, state.Dead = state.Open+move.open, state.Acked+move.acked, state.Dead+move.dead
		state.Status = state.settled()
		return true
	})
}

func (s *Store) membersOf(ctx context.Context, of map[uuid]bool) ([]member, error) {
	if len(of) == 0 {
		return nil, nil
	}
	return findAll[member](ctx, s.members, in("step", asList(of)))
}

func asList(ids map[uuid]bool) bson.A {
	list := make(bson.A, 0, len(ids))
	for id := range ids {
		list = append(list, id)
	}
	return list
}

// eachMember changes the members of these steps in pending joins, and counts the changes, within
// a transaction.
func (s *Store) eachMember(ctx context.Context, of map[uuid]bool, counted touched, move func(m *member) bool) error {
	members, err := s.membersOf(ctx, of)
	if err != nil || len(members) == 0 {
		return err
	}
	parts, err := s.partsOf(ctx, members)
	if err != nil {
		return err
	}
	all := map[uuid]storekit.StepCounts{}
	// Most members have the same state afterwards.
	same := map[memberState]bson.A{}
	for _, m := range members {
		before := m.State.Status
		if parts[m.Join] == 0 || !move(&m) {
			continue
		}
		same[m.State] = append(same[m.State], m.ID)
		all[m.Join] = all[m.Join].Moved(before, m.State.Status)
	}
	if len(same) == 0 {
		return nil
	}
	var models []driver.WriteModel
	for state, ids := range same {
		models = append(models, driver.NewUpdateManyModel().SetFilter(in("_id", ids)).SetUpdate(bson.D{{Key: "$set", Value: state}}))
	}
	if _, err := s.members.BulkWrite(ctx, models); err != nil {
		return err
	}
	return s.addCounts(ctx, all, parts, counted)
}

// partsOf returns the number of parts of the counts for each pending join of the members.
func (s *Store) partsOf(ctx context.Context, members []member) (map[uuid]int, error) {
	joins := map[uuid]bool{}
	for _, m := range members {
		joins[m.Join] = true
	}
	found, err := findAll[struct {
		ID    uuid `bson:"_id"`
		Parts int  `bson:"parts"`
	}](ctx, s.joins, append(in("_id", asList(joins)), bson.E{Key: "status", Value: roles.JoinPending}), first(len(joins), nil, "parts"))
	parts := map[uuid]int{}
	for _, f := range found {
		parts[f.ID] = f.Parts
	}
	return parts, err
}

// MakeDue makes the records that wait for the joins due.
func (j joining) MakeDue(ctx context.Context, ids []outmill.JoinID) error {
	decided := asList(touchedOf(ids))
	err := again(ctx, func() error {
		_, err := j.s.records.UpdateMany(ctx, append(in("joined", decided), bson.E{Key: "waits_for", Value: bson.D{{Key: "$in", Value: decided}}},
			bson.E{Key: "stage", Value: bson.D{{Key: "$in", Value: bson.A{storekit.StageWaiting, storekit.StageDelayed}}}},
			expr(bson.D{{Key: "$gt", Value: bson.A{"$available_at", "$$NOW"}}})),
			pipeline(bson.D{{Key: "available_at", Value: "$$NOW"}, {Key: "next_at", Value: "$$NOW"}}))
		return err
	})
	if err == nil {
		j.s.cameBack()
	}
	return err
}

// hurryWaiting checks the joins for which records wait that were just given back.
func (s *Store) hurryWaiting(ctx context.Context, ids bson.A) {
	found, err := findAll[struct {
		WaitsFor uuid `bson:"waits_for"`
	}](alone(ctx), s.records, append(in("_id", ids), exists("waits_for")...), first(len(ids), nil, "waits_for"))
	if err != nil {
		return
	}
	joins := touched{}
	for _, f := range found {
		joins[f.WaitsFor] = true
	}
	s.hurry(ctx, joins)
}

// checkSteps refuses steps that a join cannot accept before anything is written, so that a
// caller's transaction stays usable.
func (a *appending) checkSteps(ctx context.Context) error {
	return storekit.CheckSteps(a.Records, func(ids []outmill.JoinID) ([]*storekit.JoinState, error) { return a.s.joinsToFill(ctx, ids) })
}

// joinsToFill reads joins. For joins with an expected number of steps, it also counts the steps.
func (s *Store) joinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	joins, err := s.statesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	var sealed bson.A
	for _, join := range joins {
		if !join.Unsealed {
			sealed = append(sealed, uuid(join.ID))
		}
	}
	if len(sealed) == 0 {
		return joins, nil
	}
	found, err := aggregateAll[struct {
		ID uuid `bson:"_id"`
		N  int  `bson:"n"`
	}](ctx, s.members, driver.Pipeline{
		{{Key: "$match", Value: in("join", sealed)}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$join"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
	})
	members := map[uuid]int{}
	for _, f := range found {
		members[f.ID] = f.N
	}
	for _, join := range joins {
		join.Members = members[uuid(join.ID)]
	}
	return joins, err
}

func (s *Store) countMembers(ctx context.Context, id outmill.JoinID) (int, error) {
	n, err := s.members.CountDocuments(ctx, where("join", uuid(id)))
	return int(n), err
}

// attach inserts members for the steps that were appended.
func (a *appending) attach(ctx context.Context, table *storekit.RoutingTable) error {
	var members []any
	for i, r := range a.Records {
		for _, id := range r.Joins {
			m := newMember(id, uuid(a.IDs[i]))
			m.State.Open = max(1, len(table.Of(r.Topic)))
			members = append(members, m)
		}
	}
	if len(members) == 0 {
		return nil
	}
	_, err := a.s.members.InsertMany(ctx, members)
	return err
}
