package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Joins = (*Store)(nil)

// joinDocument is a join as stored in the collection.
type joinDocument struct {
	ID          uuid             `bson:"_id"`
	GroupingKey string           `bson:"grouping_key"`
	Status      roles.JoinStatus `bson:"status"`
	Policy      roles.JoinPolicy `bson:"policy"`
	Quorum      int              `bson:"quorum"`
	// ExpectedSteps is absent until the number is known.
	ExpectedSteps *int `bson:"expected_steps,omitempty"`
	// Parts is the largest number of documents with counts. Their sums are stored in the join
	// when it ends.
	Parts              int               `bson:"parts"`
	CompletedSteps     int               `bson:"completed_steps"`
	FailedSteps        int               `bson:"failed_steps"`
	Deadline           time.Time         `bson:"deadline,omitempty"`
	CompleteAtDeadline bool              `bson:"complete_at_deadline"`
	Reason             string            `bson:"reason,omitempty"`
	CreatedAt          time.Time         `bson:"created_at"`
	UpdatedAt          time.Time         `bson:"updated_at"`
	FinishedAt         time.Time         `bson:"finished_at,omitempty"`
	Metadata           map[string]string `bson:"metadata,omitempty"`
	// Now is the server's time when the join was read; it is not stored.
	Now time.Time `bson:"now,omitempty"`
}

func (d *joinDocument) join() *roles.Join {
	j := &roles.Join{
		ID: outmill.JoinID(d.ID), GroupingKey: d.GroupingKey, Status: d.Status, Policy: d.Policy, Quorum: d.Quorum,
		Unsealed:       d.ExpectedSteps == nil,
		CompletedSteps: d.CompletedSteps, FailedSteps: d.FailedSteps, Deadline: utc(d.Deadline), CompleteAtDeadline: d.CompleteAtDeadline,
		Reason: d.Reason, CreatedAt: utc(d.CreatedAt), UpdatedAt: utc(d.UpdatedAt), FinishedAt: utc(d.FinishedAt), Metadata: d.Metadata,
	}
	if d.ExpectedSteps != nil {
		j.ExpectedSteps = *d.ExpectedSteps
	}
	return j
}

// state converts the join for the engine.
func (d *joinDocument) state() *storekit.JoinState {
	state := &storekit.JoinState{Join: *d.join()}
	if !d.Deadline.IsZero() {
		state.DeadlineIn = d.Deadline.Sub(d.Now)
		state.Late = state.DeadlineIn <= 0
	}
	return state
}

// joinsOf reads joins, and the server's time.
func (s *Store) joinsOf(ctx context.Context, ids touched) (map[uuid]*joinDocument, error) {
	found, err := aggregateAll[*joinDocument](ctx, s.joins, s.summed(bson.D{{Key: "$match", Value: in("_id", asList(ids))}}))
	known := map[uuid]*joinDocument{}
	for _, j := range found {
		known[j.ID] = j
	}
	return known, err
}

// joinOf reads a join, and returns ErrUnknownJoin if there is none.
func (s *Store) joinOf(ctx context.Context, id outmill.JoinID) (*joinDocument, error) {
	found, err := s.joinsOf(ctx, touched{uuid(id): true})
	if err != nil {
		return nil, err
	}
	if found[uuid(id)] == nil {
		return nil, fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
	}
	return found[uuid(id)], nil
}

func (s *Store) needsTransactions() error {
	if s.config.WithoutTransactions {
		return storekit.InvalidConfig("joins need transactions, and the store was made with Config.WithoutTransactions")
	}
	return nil
}

// StartJoin inserts a join.
func (j joining) StartJoin(ctx context.Context, operation string, join *roles.Join) error {
	session, err := j.s.sessionOf(ctx)
	if err == nil {
		err = j.s.needsTransactions()
	}
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	start := func(ctx context.Context) error { return j.s.startJoin(ctx, join) }
	if session != nil {
		return j.s.within(ctx, operation, session, start)
	}
	return j.s.transact(ctx, operation, start)
}

// startJoin reads before it writes, because an error of the server would end a caller's
// transaction.
func (s *Store) startJoin(ctx context.Context, join *roles.Join) error {
	state, err := s.loadState(ctx)
	if err != nil {
		return err
	}
	found, err := s.joinsOf(ctx, touched{uuid(join.ID): true})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", roles.ErrJoinExists, join.ID)
	}
	d := joinDocument{
		ID: uuid(join.ID), GroupingKey: join.GroupingKey, Status: roles.JoinPending, Policy: join.Policy, Quorum: join.Quorum,
		Parts: storekit.CountParts(join), CompleteAtDeadline: join.CompleteAtDeadline, CreatedAt: state.Now, UpdatedAt: state.Now,
		Metadata: join.Metadata,
	}
	if !join.Unsealed {
		d.ExpectedSteps = &join.ExpectedSteps
	}
	switch {
	case join.Timeout > 0:
		d.Deadline = state.Now.Add(ceil(join.Timeout))
	case !join.Deadline.IsZero():
		d.Deadline = ceilTime(join.Deadline)
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		return err
	}
	if len(raw) > maxDocument-documentSlack {
		return &outmill.InvalidRecordError{Index: -1, Field: "size",
			Reason: fmt.Sprintf("is %d bytes as a document: MongoDB takes at most %d, of which %d are for fields that are set later",
				len(raw), maxDocument, documentSlack)}
	}
	_, err = s.joins.InsertOne(ctx, bson.Raw(raw))
	return err
}

// joinEngine gives the store the methods of roles.Joins that are the same in all stores.
type joinEngine = storekit.JoinEngine

// joining implements what the engine of joins needs of the store.
type joining struct{ s *Store }

// hurry makes the records that wait for the joins due, if the joins are decided.
func (s *Store) hurry(ctx context.Context, joins touched) {
	ids := make([]outmill.JoinID, 0, len(joins))
	for id := range joins {
		ids = append(ids, outmill.JoinID(id))
	}
	storekit.HurryJoins(alone(ctx), joining{s}, ids, s.logger)
}

// Explain adds the name of the operation to an error.
func (j joining) Explain(ctx context.Context, operation string, err error) error {
	return j.s.explain(ctx, operation, err)
}

// ReadJoins reads joins.
func (j joining) ReadJoins(ctx context.Context, operation string, ids []outmill.JoinID) (found []*storekit.JoinState, err error) {
	err = j.s.do(ctx, operation, func(ctx context.Context) error {
		found, err = j.s.statesOf(ctx, ids)
		return err
	})
	return found, err
}

func (s *Store) statesOf(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	known, err := s.joinsOf(ctx, touchedOf(ids))
	if err != nil {
		return nil, err
	}
	var found []*storekit.JoinState
	for _, id := range ids {
		if join := known[uuid(id)]; join != nil {
			found = append(found, join.state())
		}
	}
	return found, nil
}

func touchedOf(ids []outmill.JoinID) touched {
	joins := touched{}
	for _, id := range ids {
		joins[uuid(id)] = true
	}
	return joins
}

// OnJoin runs work in a transaction.
func (j joining) OnJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, tx storekit.JoinTx, join *storekit.JoinState) error) error {
	return j.s.onJoin(ctx, operation, id, func(ctx context.Context, tx *joinTx) error {
		return work(ctx, tx, tx.join.state())
	})
}

// Appended logs the record that follows a join, and wakes readers.
func (j joining) Appended(records []*outmill.Record) {
	j.s.logger.Appended(false, records...)
	j.s.notifier.Notify()
}

// joinTx is a transaction on one join. counted are the joins whose counts it changed.
type joinTx struct {
	s       *Store
	join    *joinDocument
	counted touched
}

// onJoin runs fn on a join that exists, in a transaction. If the join is then decided, it makes
// the records that wait for it due.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID, fn func(ctx context.Context, tx *joinTx) error) error {
	if err := s.needsTransactions(); err != nil {
		return s.explain(ctx, operation, err)
	}
	var counted touched
	err := s.do(ctx, operation, func(ctx context.Context) error {
		return s.inTurn(ctx, touched{uuid(id): true}, func(ctx context.Context) error {
			counted = touched{uuid(id): true}
			join, err := s.joinOf(ctx, id)
			if err != nil {
				return err
			}
			return fn(ctx, &joinTx{s: s, join: join, counted: counted})
		})
	})
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// JoinsToFill reads joins. For sealed joins it also counts the steps.
func (x *joinTx) JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	return x.s.joinsToFill(ctx, ids)
}

// CountMembers counts the steps of a join.
func (x *joinTx) CountMembers(ctx context.Context, id outmill.JoinID) (int, error) {
	return x.s.countMembers(ctx, id)
}

// Seal writes the number of steps of the join.
func (x *joinTx) Seal(ctx context.Context, join *storekit.JoinState) error {
	_, err := x.s.joins.UpdateOne(ctx, where("_id", uuid(join.ID)), bson.D{
		{Key: "$set", Value: bson.D{{Key: "expected_steps", Value: join.ExpectedSteps}}},
		{Key: "$currentDate", Value: bson.D{{Key: "updated_at", Value: true}}},
	})
	return err
}

// End writes the result of the join, and the sums of its counts.
func (x *joinTx) End(ctx context.Context, join *storekit.JoinState) error {
	if err := x.s.endCounts(ctx, x.join); err != nil {
		return err
	}
	join.FinishedAt, join.UpdatedAt = utc(x.join.Now), utc(x.join.Now)
	_, err := x.s.joins.UpdateOne(ctx, where("_id", x.join.ID), set(bson.D{
		{Key: "status", Value: join.Status}, {Key: "reason", Value: join.Reason},
		{Key: "updated_at", Value: x.join.Now}, {Key: "finished_at", Value: x.join.Now},
		{Key: "completed_steps", Value: join.CompletedSteps}, {Key: "failed_steps", Value: join.FailedSteps},
	}))
	return err
}

// Append appends the record that follows a join.
func (x *joinTx) Append(ctx context.Context, record *outmill.Record) (*storekit.Appending, error) {
	a := newAppending(x.s, []*outmill.Record{record})
	return a.Appending, a.runUnchecked(ctx)
}

// Report settles the step that the message names. If the message was deleted, its id is the id of
// the step.
func (x *joinTx) Report(ctx context.Context, join *storekit.JoinState, message outmill.WorkItemID, as roles.StepStatus) (known bool,
	err error) {
	step, id := uuid(message), uuid(join.ID)
	asked, err := findAll[stepRecord](ctx, x.s.records, append(where("_id", step), exists("step")...), first(1, nil, "step"))
	if err != nil {
		return false, err
	}
	if len(asked) > 0 {
		step = asked[0].Step
	}
	has, err := x.s.members.CountDocuments(ctx, where("_id", memberID(join.ID, step)))
	if err != nil || has == 0 {
		return false, err
	}
	return true, x.s.eachMember(ctx, map[uuid]bool{step: true}, x.counted, func(m *member) bool {
		if m.Join != id || m.State.Status != roles.StepPending {
			return false
		}
		m.State.Status, m.State.Reported = as, true
		return true
	})
}

// AttachStep makes a record a step. See roles.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return s.onJoin(ctx, "attach step", id, func(ctx context.Context, tx *joinTx) error {
		m, records, late, err := s.memberToAttach(ctx, id, message)
		if err != nil {
			return err
		}
		join := tx.join.state()
		if join.Members, err = s.countMembers(ctx, id); err != nil {
			return err
		}
		if attach, err := late.Check(message, join, s.config.Retain); err != nil || !attach {
			return err
		}
		// The update writes all records of the message. So a call that settles one of them at the
		// same time either came first or conflicts, and then finds the new member.
		_, err = s.records.UpdateMany(ctx, in("_id", records), bson.D{
			{Key: "$set", Value: bson.D{{Key: "step", Value: m.Step}, {Key: "joined", Value: m.Step}}},
			{Key: "$inc", Value: bson.D{{Key: "attachments", Value: 1}}},
			{Key: "$push", Value: bson.D{{Key: "joins", Value: m.Join}}},
		})
		if err == nil {
			_, err = s.members.InsertOne(ctx, m)
		}
		if err == nil {
			counts := storekit.StepCounts{}.Moved(roles.StepPending, m.State.Status)
			err = s.addCounts(ctx, map[uuid]storekit.StepCounts{m.Join: counts}, map[uuid]int{m.Join: tx.join.Parts}, tx.counted)
		}
		return err
	})
}

// memberToAttach reads the message that is to become a step, and returns its future member and
// its records.
func (s *Store) memberToAttach(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) (m *member, records bson.A,
	late storekit.LateStep, err error) {
	asked, err := findAll[struct {
		Step     uuid `bson:"step"`
		WaitsFor uuid `bson:"waits_for"`
	}](ctx, s.records, where("_id", uuid(message)), first(1, nil, "step", "waits_for"))
	if err != nil || len(asked) == 0 {
		return nil, nil, late, err
	}
	late.Found, late.Waits = true, !asked[0].WaitsFor.IsZero()
	m = newMember(id, asked[0].Step)
	filter := append(where("joined", m.Step), bson.E{Key: "step", Value: m.Step})
	if m.Step.IsZero() {
		m = newMember(id, uuid(message))
		filter = where("_id", m.Step)
	}
	has, err := s.members.CountDocuments(ctx, where("_id", m.ID))
	if late.Member = has > 0; err != nil || late.Member {
		return m, nil, late, err
	}
	found, err := findAll[stepRecord](ctx, s.records, filter, first(maxClaim, nil, "stage"))
	for _, r := range found {
		records = append(records, r.ID)
		switch r.Stage {
		case storekit.StageProcessed:
			late.Acked++
		case storekit.StageDead:
			late.Dead++
		default:
			late.Open++
		}
	}
	m.State = memberState{Status: storekit.StepOutcome(late.Open, late.Acked, late.Dead), Open: late.Open, Acked: late.Acked, Dead: late.Dead}
	return m, records, late, err
}

// FinishJoin ends the join if it is decided. See roles.Joins.
func (s *Store) FinishJoin(ctx context.Context, id outmill.JoinID, request roles.FinishRequest) (roles.FinishResult, error) {
	if err := s.needsTransactions(); err != nil {
		return roles.FinishResult{}, s.explain(ctx, "finish join", err)
	}
	return s.joinEngine.FinishJoin(ctx, id, request)
}

// ListJoins reads joins by status.
func (j joining) ListJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*storekit.JoinState, error) {
	var all []*storekit.JoinState
	err := j.s.do(ctx, operation, func(ctx context.Context) error {
		all = nil
		// Each status has its own query, so that an index gives the order of the ids.
		for _, status := range query.Statuses() {
			filter := bson.D{{Key: "status", Value: status}, {Key: "_id", Value: bson.D{{Key: "$gt", Value: uuid(query.After)}}}}
			if query.GroupingKey != "" {
				filter = append(filter, bson.E{Key: "grouping_key", Value: query.GroupingKey})
			}
			found, err := aggregateAll[joinDocument](ctx, j.s.joins, j.s.summed(
				bson.D{{Key: "$match", Value: filter}}, bson.D{{Key: "$sort", Value: ascending("_id")}}, bson.D{{Key: "$limit", Value: query.Limit}}))
			if err != nil {
				return err
			}
			for i := range found {
				all = append(all, found[i].state())
			}
		}
		return nil
	})
	return all, err
}

// ListSteps reads steps of a join.
func (j joining) ListSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID,
	limit int) ([]roles.JoinStep, error) {
	var steps []roles.JoinStep
	err := j.s.do(ctx, operation, func(ctx context.Context) error {
		steps = nil
		if _, err := j.s.joinOf(ctx, id); err != nil {
			return err
		}
		filter := bson.D{{Key: "join", Value: uuid(id)}, {Key: "step", Value: bson.D{{Key: "$gt", Value: uuid(after)}}}}
		found, err := findAll[member](ctx, j.s.members, filter, first(limit, ascending("step")))
		for _, m := range found {
			steps = append(steps, roles.JoinStep{ID: outmill.WorkItemID(m.Step), Status: m.State.Status})
		}
		return err
	})
	return steps, err
}

// membersAtOnce bounds one delete of DeleteJoins.
const membersAtOnce = 1000

// DeleteJoins deletes joins that ended long ago. See roles.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete joins", limit, func(ctx context.Context, limit int) (int, int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, 0, err
		}
		old, err := findAll[stepRecord](ctx, s.joins,
			bson.D{{Key: "finished_at", Value: bson.D{{Key: "$lte", Value: now.Add(-s.config.RetainJoins)}}}},
			first(limit, ascending("finished_at"), "_id"))
		if err != nil || len(old) == 0 {
			return 0, 0, err
		}
		ids := make(bson.A, len(old))
		for i, j := range old {
			ids[i] = j.ID
		}
		// The members are deleted first, in batches, because there may be many.
		for {
			found, err := findAll[member](ctx, s.members, in("join", ids), first(membersAtOnce, nil, "_id"))
			if err != nil {
				return 0, 0, err
			}
			if len(found) == 0 {
				break
			}
			members := make(bson.A, len(found))
			for i, m := range found {
				members[i] = m.ID
			}
			if _, err := s.members.DeleteMany(ctx, in("_id", members)); err != nil {
				return 0, 0, err
			}
		}
		if _, err := s.counts.DeleteMany(ctx, in("join", ids)); err != nil {
			return 0, 0, err
		}
		result, err := s.joins.DeleteMany(ctx, in("_id", ids))
		if err != nil {
			return 0, 0, err
		}
		return len(old), int(result.DeletedCount), nil
	})
}
