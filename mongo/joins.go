package mongo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/steps"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.Joins = (*Store)(nil)

const defaultListLimitOfJoins = 100

// joinDocument is a join as the collection has it.
type joinDocument struct {
	ID          uuid                `bson:"_id"`
	GroupingKey string              `bson:"grouping_key"`
	Status      storekit.JoinStatus `bson:"status"`
	Policy      storekit.JoinPolicy `bson:"policy"`
	Quorum      int                 `bson:"quorum"`
	// ExpectedSteps is absent until somebody knows it.
	ExpectedSteps *int `bson:"expected_steps,omitempty"`
	// Parts is how many documents of the counts there are at most. Their sums are
	// stored when the join ends.
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
	// Now is the server's time as the join was read; it is not stored.
	Now time.Time `bson:"now,omitempty"`
}

func (d *joinDocument) join() *storekit.Join {
	j := &storekit.Join{
		ID: outmill.JoinID(d.ID), GroupingKey: d.GroupingKey, Status: d.Status, Policy: d.Policy, Quorum: d.Quorum, Unsealed: d.ExpectedSteps == nil,
		CompletedSteps: d.CompletedSteps, FailedSteps: d.FailedSteps, Deadline: utc(d.Deadline), CompleteAtDeadline: d.CompleteAtDeadline,
		Reason: d.Reason, CreatedAt: utc(d.CreatedAt), UpdatedAt: utc(d.UpdatedAt), FinishedAt: utc(d.FinishedAt), Metadata: d.Metadata,
	}
	if d.ExpectedSteps != nil {
		j.ExpectedSteps = *d.ExpectedSteps
	}
	return j
}

// late tells whether the deadline had passed as the join was read.
func (d *joinDocument) late() bool { return !d.Deadline.IsZero() && !d.Deadline.After(d.Now) }

// joinsOf reads joins, and the server's time.
func (s *Store) joinsOf(ctx context.Context, ids touched) (map[uuid]*joinDocument, error) {
	found, err := aggregateAll[*joinDocument](ctx, s.joins, s.summed(bson.D{{Key: "$match", Value: in("_id", asList(ids))}}))
	known := map[uuid]*joinDocument{}
	for _, j := range found {
		known[j.ID] = j
	}
	return known, err
}

// joinOf reads a join that must be there.
func (s *Store) joinOf(ctx context.Context, id outmill.JoinID) (*joinDocument, error) {
	found, err := s.joinsOf(ctx, touched{uuid(id): true})
	if err != nil {
		return nil, err
	}
	if found[uuid(id)] == nil {
		return nil, fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
	}
	return found[uuid(id)], nil
}

func (s *Store) needsTransactions() error {
	if s.config.WithoutTransactions {
		return invalid("joins need transactions, and the store was made with Config.WithoutTransactions")
	}
	return nil
}

// StartJoin begins a join. See storekit.Joins.
func (s *Store) StartJoin(ctx context.Context, join *storekit.Join) error {
	const operation = "start join"
	session, err := s.sessionOf(ctx)
	if err == nil {
		err = s.needsTransactions()
	}
	if err == nil {
		err = join.Validate()
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	id := join.ID
	if id.IsZero() {
		id = outmill.NewJoinID()
	}
	start := func(ctx context.Context) error { return s.startJoin(ctx, id, join) }
	if session != nil {
		err = s.within(ctx, operation, session, start)
	} else {
		err = s.transact(ctx, operation, start)
	}
	if err == nil {
		join.ID = id
	}
	return err
}

// startJoin looks before it writes, since an error of the server would end a
// caller's transaction.
func (s *Store) startJoin(ctx context.Context, id outmill.JoinID, join *storekit.Join) error {
	state, err := s.loadState(ctx)
	if err != nil {
		return err
	}
	found, err := s.joinsOf(ctx, touched{uuid(id): true})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", storekit.ErrJoinExists, id)
	}
	d := joinDocument{
		ID: uuid(id), GroupingKey: join.GroupingKey, Status: storekit.JoinPending, Policy: cmp.Or(join.Policy, storekit.JoinAll), Quorum: join.Quorum,
		Parts: steps.Parts(join), CompleteAtDeadline: join.CompleteAtDeadline, CreatedAt: state.Now, UpdatedAt: state.Now, Metadata: join.Metadata,
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
		return &outmill.InvalidRecordError{Index: -1, Field: "size", Reason: fmt.Sprintf("is %d bytes as a document: MongoDB takes at most %d, of which %d are kept for what is noted later",
			len(raw), maxDocument, documentSlack)}
	}
	_, err = s.joins.InsertOne(ctx, bson.Raw(raw))
	return err
}

// onJoin runs fn on a join that exists, in a transaction. What is decided by it
// is made due.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID, fn func(ctx context.Context, join *joinDocument, counted touched) error) error {
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
			return fn(ctx, join, counted)
		})
	})
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// AttachStep makes a record a step. See storekit.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return s.onJoin(ctx, "attach step", id, func(ctx context.Context, join *joinDocument, counted touched) error {
		m, records, err := s.memberToAttach(ctx, id, message)
		if err != nil || m == nil {
			return err
		}
		has, err := s.countMembers(ctx, id)
		if err != nil {
			return err
		}
		if err := takesSteps(id, join, has, 1); err != nil {
			return err
		}
		// All of the message's records are written: whoever settles one of them has
		// done so, or conflicts, and finds the new member.
		_, err = s.records.UpdateMany(ctx, in("_id", records), bson.D{
			{Key: "$set", Value: bson.D{{Key: "step", Value: m.Step}, {Key: "joined", Value: m.Step}}}, {Key: "$inc", Value: bson.D{{Key: "attachments", Value: 1}}},
			{Key: "$push", Value: bson.D{{Key: "joins", Value: m.Join}}},
		})
		if err == nil {
			_, err = s.members.InsertOne(ctx, m)
		}
		if err == nil {
			err = s.addCounts(ctx, map[uuid]steps.Counts{m.Join: steps.Counts{}.Moved(storekit.StepPending, m.State.Status)}, map[uuid]int{m.Join: join.Parts}, counted)
		}
		return err
	})
}

// memberToAttach returns what is to be attached of a record, nil where it is a
// step of the join already, and the records of its message.
func (s *Store) memberToAttach(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) (*member, bson.A, error) {
	asked, err := findAll[struct {
		Step     uuid `bson:"step"`
		WaitsFor uuid `bson:"waits_for"`
	}](ctx, s.records, where("_id", uuid(message)), first(1, nil, "step", "waits_for"))
	if err != nil {
		return nil, nil, err
	}
	if len(asked) == 0 || s.config.Retain <= 0 {
		return nil, nil, fmt.Errorf("%w: %s", storekit.ErrUnknownMessage, message)
	}
	if !asked[0].WaitsFor.IsZero() {
		return nil, nil, storekit.ErrWaitIsNoStep
	}
	m := newMember(id, asked[0].Step)
	filter := append(where("joined", m.Step), bson.E{Key: "step", Value: m.Step})
	if m.Step.IsZero() {
		m = newMember(id, uuid(message))
		filter = where("_id", m.Step)
	}
	has, err := s.members.CountDocuments(ctx, where("_id", m.ID))
	if err != nil || has > 0 {
		return nil, nil, err
	}
	found, err := findAll[stepRecord](ctx, s.records, filter, first(maxClaim, nil, "stage"))
	var records bson.A
	for _, r := range found {
		records = append(records, r.ID)
		switch r.Stage {
		case stageProcessed:
			m.State.Acked++
		case stageDead:
			m.State.Dead++
		default:
			m.State.Open++
		}
	}
	m.State.Status = m.State.settled()
	return m, records, err
}

// ReportCompleted settles a step. See storekit.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report completed", join, step, storekit.StepCompleted)
}

// ReportFailed settles a step. See storekit.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report failed", join, step, storekit.StepFailed)
}

func (s *Store) report(ctx context.Context, operation string, id outmill.JoinID, of outmill.WorkItemID, as storekit.StepStatus) error {
	return s.onJoin(ctx, operation, id, func(ctx context.Context, _ *joinDocument, counted touched) error {
		step := uuid(of)
		// The id may be that of any of the message's records; one that is gone is
		// named by its own.
		asked, err := findAll[stepRecord](ctx, s.records, append(where("_id", step), exists("step")...), first(1, nil, "step"))
		if err != nil {
			return err
		}
		if len(asked) > 0 {
			step = asked[0].Step
		}
		has, err := s.members.CountDocuments(ctx, where("_id", memberID(id, step)))
		if err != nil {
			return err
		}
		if has == 0 {
			return fmt.Errorf("%w: %s of %s", storekit.ErrUnknownStep, of, id)
		}
		return s.eachMember(ctx, map[uuid]bool{step: true}, counted, func(m *member) bool {
			if m.Join != uuid(id) || m.State.Status != storekit.StepPending {
				return false
			}
			m.State.Status, m.State.Reported = as, true
			return true
		})
	})
}

// SealJoin says how many steps the join has. See storekit.Joins.
func (s *Store) SealJoin(ctx context.Context, id outmill.JoinID, expected int) error {
	return s.onJoin(ctx, "seal join", id, func(ctx context.Context, join *joinDocument, _ touched) error {
		return s.seal(ctx, join, expected)
	})
}

func (s *Store) seal(ctx context.Context, d *joinDocument, expected int) error {
	join := d.join()
	if err := join.CheckSeal(expected); err != nil || !join.Unsealed {
		return err
	}
	has, err := s.countMembers(ctx, join.ID)
	if err != nil {
		return err
	}
	if err := steps.Seals(join.ID, has, expected); err != nil {
		return err
	}
	d.ExpectedSteps = &expected
	_, err = s.joins.UpdateOne(ctx, where("_id", d.ID), bson.D{
		{Key: "$set", Value: bson.D{{Key: "expected_steps", Value: expected}}}, {Key: "$currentDate", Value: bson.D{{Key: "updated_at", Value: true}}},
	})
	return err
}

// FinishJoin ends the join if it is decided. See storekit.Joins.
func (s *Store) FinishJoin(ctx context.Context, id outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	const operation = "finish join"
	result, done, err := s.undecided(ctx, operation, id, request)
	if err != nil || done {
		return result, err
	}
	var follow *appending
	err = s.onJoin(ctx, operation, id, func(ctx context.Context, join *joinDocument, _ touched) (err error) {
		result, follow = storekit.FinishResult{}, nil
		if join.Status == storekit.JoinPending && request.Seal && join.ExpectedSteps == nil {
			if err := s.seal(ctx, join, request.ExpectedSteps); err != nil {
				return err
			}
		}
		result, follow, err = s.finish(ctx, join, request)
		return err
	})
	if err != nil {
		return storekit.FinishResult{}, err
	}
	if follow != nil {
		follow.Report()
		s.logger.Appended(false, follow.Records...)
		s.bell.Ring()
	}
	return result, nil
}

// undecided answers without a transaction while there is nothing to do, which is
// what nearly all calls find.
func (s *Store) undecided(ctx context.Context, operation string, id outmill.JoinID, request storekit.FinishRequest) (result storekit.FinishResult, done bool, err error) {
	if err := s.needsTransactions(); err != nil {
		return result, false, s.explain(ctx, operation, err)
	}
	err = s.do(ctx, operation, func(ctx context.Context) error {
		join, err := s.joinOf(ctx, id)
		if err != nil {
			return err
		}
		result = resultOf(join)
		status, _ := join.join().Decide(request.FailIfAnyStepFailed, join.late())
		done = join.Status != storekit.JoinPending || status == storekit.JoinPending && (!request.Seal || join.ExpectedSteps != nil)
		return nil
	})
	return result, done, err
}

// resultOf is the result for a join that this call does not end.
func resultOf(join *joinDocument) storekit.FinishResult {
	result := storekit.FinishResult{Join: *join.join()}
	if join.Status == storekit.JoinPending && !join.Deadline.IsZero() {
		result.DeadlineIn = join.Deadline.Sub(join.Now)
	}
	return result
}

func (s *Store) finish(ctx context.Context, join *joinDocument, request storekit.FinishRequest) (storekit.FinishResult, *appending, error) {
	status, reason := storekit.JoinPending, ""
	if join.Status == storekit.JoinPending {
		status, reason = join.join().Decide(request.FailIfAnyStepFailed, join.late())
	}
	if status == storekit.JoinPending {
		return resultOf(join), nil, nil
	}
	join.Status, join.Reason, join.FinishedAt, join.UpdatedAt = status, reason, join.Now, join.Now
	if err := s.end(ctx, join); err != nil {
		return storekit.FinishResult{}, nil, err
	}
	follow, err := s.follow(ctx, *join.join(), request.Then)
	return storekit.FinishResult{Join: *join.join(), Finished: true}, follow, err
}

func (s *Store) end(ctx context.Context, join *joinDocument) error {
	if err := s.endCounts(ctx, join); err != nil {
		return err
	}
	_, err := s.joins.UpdateOne(ctx, where("_id", join.ID), set(bson.D{
		{Key: "status", Value: join.Status}, {Key: "reason", Value: join.Reason},
		{Key: "updated_at", Value: join.UpdatedAt}, {Key: "finished_at", Value: join.FinishedAt},
		{Key: "completed_steps", Value: join.CompletedSteps}, {Key: "failed_steps", Value: join.FailedSteps},
	}))
	return err
}

// follow appends what is to be published when the join ends, nil where nothing
// is.
func (s *Store) follow(ctx context.Context, join storekit.Join, then func(storekit.Join) (*outmill.Record, error)) (*appending, error) {
	one, err := storekit.Followup(join, then, s.config.MaxPayload, func(ids []outmill.JoinID) ([]outmill.JoinID, error) { return s.thatTake(ctx, ids) })
	if err != nil || one == nil {
		return nil, err
	}
	a := newAppending(s, []*outmill.Record{one})
	return a, a.runUnchecked(ctx)
}

// thatTake returns those of the joins that take a step.
func (s *Store) thatTake(ctx context.Context, ids []outmill.JoinID) ([]outmill.JoinID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	wanted := touched{}
	for _, id := range ids {
		wanted[uuid(id)] = true
	}
	known, has, err := s.joinsAndSizes(ctx, wanted)
	if err != nil {
		return nil, err
	}
	var take []outmill.JoinID
	for _, id := range ids {
		err := takesSteps(id, known[uuid(id)], has[uuid(id)], 1)
		switch {
		case err == nil:
			take = append(take, id)
		case !steps.Refused(err):
			return nil, err
		}
	}
	return take, nil
}

// CancelJoin ends a pending join. See storekit.Joins.
func (s *Store) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return s.onJoin(ctx, "cancel join", id, func(ctx context.Context, join *joinDocument, _ touched) error {
		switch join.Status {
		case storekit.JoinCancelled:
			return nil
		case storekit.JoinPending:
			join.Status, join.Reason, join.FinishedAt, join.UpdatedAt = storekit.JoinCancelled, storekit.CleanError(reason), join.Now, join.Now
			return s.end(ctx, join)
		case storekit.JoinCompleted, storekit.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", storekit.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See storekit.Joins.
func (s *Store) GetJoin(ctx context.Context, id outmill.JoinID) (*storekit.Join, error) {
	var join *storekit.Join
	err := s.do(ctx, "get join", func(ctx context.Context) error {
		found, err := s.joinOf(ctx, id)
		if err == nil {
			join = found.join()
		}
		return err
	})
	return join, err
}

// ListJoins returns joins in the order of their ids. See storekit.Joins.
func (s *Store) ListJoins(ctx context.Context, query storekit.JoinQuery) ([]*storekit.Join, error) {
	const operation = "list joins"
	if err := query.Validate(); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	limit := cmp.Or(query.Limit, defaultListLimitOfJoins)
	var all []joinDocument
	err := s.do(ctx, operation, func(ctx context.Context) error {
		all = nil
		// One status at a time, each by an index in the order of the ids.
		for _, status := range steps.StatusesOf(query) {
			filter := bson.D{{Key: "status", Value: status}, {Key: "_id", Value: bson.D{{Key: "$gt", Value: uuid(query.After)}}}}
			if query.GroupingKey != "" {
				filter = append(filter, bson.E{Key: "grouping_key", Value: query.GroupingKey})
			}
			found, err := aggregateAll[joinDocument](ctx, s.joins, s.summed(
				bson.D{{Key: "$match", Value: filter}}, bson.D{{Key: "$sort", Value: ascending("_id")}}, bson.D{{Key: "$limit", Value: limit}}))
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b joinDocument) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	joins := make([]*storekit.Join, min(len(all), limit))
	for i := range joins {
		joins[i] = all[i].join()
	}
	return joins, nil
}

// ListSteps returns steps of a join. See storekit.Joins.
func (s *Store) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]storekit.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, s.explain(ctx, operation, invalid("ListSteps: limit is %d: want 0 (100) or more", limit))
	}
	var list []storekit.JoinStep
	err := s.do(ctx, operation, func(ctx context.Context) error {
		list = nil
		if _, err := s.joinOf(ctx, id); err != nil {
			return err
		}
		filter := bson.D{{Key: "join", Value: uuid(id)}, {Key: "step", Value: bson.D{{Key: "$gt", Value: uuid(after)}}}}
		found, err := findAll[member](ctx, s.members, filter, first(cmp.Or(limit, defaultListLimitOfJoins), ascending("step")))
		for _, m := range found {
			list = append(list, storekit.JoinStep{ID: outmill.WorkItemID(m.Step), Status: m.State.Status})
		}
		return err
	})
	return list, err
}

// membersAtOnce bounds one delete of DeleteJoins.
const membersAtOnce = 1000

// DeleteJoins deletes joins that ended long ago. See storekit.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete joins", limit, func(ctx context.Context, limit int) (int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, err
		}
		old, err := findAll[stepRecord](ctx, s.joins, bson.D{{Key: "finished_at", Value: bson.D{{Key: "$lte", Value: now.Add(-s.config.RetainJoins)}}}},
			first(limit, ascending("finished_at"), "_id"))
		if err != nil || len(old) == 0 {
			return 0, err
		}
		ids := make(bson.A, len(old))
		for i, j := range old {
			ids[i] = j.ID
		}
		// The members first, some at a time: there may be many.
		for {
			found, err := findAll[member](ctx, s.members, in("join", ids), first(membersAtOnce, nil, "_id"))
			if err != nil {
				return 0, err
			}
			if len(found) == 0 {
				break
			}
			members := make(bson.A, len(found))
			for i, m := range found {
				members[i] = m.ID
			}
			if _, err := s.members.DeleteMany(ctx, in("_id", members)); err != nil {
				return 0, err
			}
		}
		if _, err := s.counts.DeleteMany(ctx, in("join", ids)); err != nil {
			return 0, err
		}
		result, err := s.joins.DeleteMany(ctx, in("_id", ids))
		if err != nil {
			return 0, err
		}
		return int(result.DeletedCount), nil
	})
}
