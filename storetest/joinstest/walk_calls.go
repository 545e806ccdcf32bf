package joinstest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// attachLate attaches a message that one group reads.
func (w *joinWalk) attachLate(t *rapid.T) {
	var candidates []*modelMessage
	for _, msg := range w.joins.messages {
		if len(msg.parts) == 1 && msg.parts[0].fate == stored && !msg.arguable {
			candidates = append(candidates, msg)
		}
	}
	if len(candidates) == 0 {
		t.Skip("no records")
	}
	msg := suite.Pick(t, "message", candidates...)
	j := w.pickJoin(t, func(*modelJoin) bool { return true })
	err := w.api().AttachStep(w.Ctx(), j.ID, msg.id)
	member := j.step(msg.id) != nil
	var allowed []error
	if w.Queue.Retain == 0 {
		allowed = append(allowed, roles.ErrUnknownMessage)
	}
	if !j.pending() {
		allowed = append(allowed, roles.ErrJoinFinished)
	}
	if !member && j.room() <= 0 {
		allowed = append(allowed, roles.ErrTooManySteps)
	}
	if len(allowed) == 0 || member && err == nil {
		w.NoError(err, "AttachStep")
		if !member {
			w.joins.attach(j, msg)
		}
		w.follow()
		return
	}
	require.True(w.T, slices.ContainsFunc(allowed, func(want error) bool { return errors.Is(err, want) }), "AttachStep: %v, and not one of %v",
		err, allowed)
}

func (w *joinWalk) report(t *rapid.T) {
	j := w.pickJoin(t, func(j *modelJoin) bool { return len(j.steps) > 0 })
	step := suite.Pick(t, "step", j.steps...)
	status := suite.Pick(t, "report", roles.StepCompleted, roles.StepFailed)
	if status == roles.StepCompleted {
		w.NoError(w.api().ReportCompleted(w.Ctx(), j.ID, step.message.id), "ReportCompleted")
	} else {
		w.NoError(w.api().ReportFailed(w.Ctx(), j.ID, step.message.id), "ReportFailed")
	}
	if j.pending() && step.status == roles.StepPending {
		step.reported, step.status = true, status
	}
	w.follow()
}

func (w *joinWalk) seal(t *rapid.T) {
	j := w.pickJoin(t, func(*modelJoin) bool { return true })
	steps := max(0, len(j.steps)+rapid.IntRange(-1, 2).Draw(t, "steps beyond those that there are"))
	err := w.api().SealJoin(w.Ctx(), j.ID, steps)
	switch {
	case !j.pending():
		require.ErrorIs(w.T, err, roles.ErrJoinFinished)
	case !j.Unsealed && steps != j.ExpectedSteps:
		require.ErrorIs(w.T, err, outmill.ErrInvalidRecord)
	case steps < len(j.steps):
		require.ErrorIs(w.T, err, roles.ErrTooManySteps)
	default:
		w.NoError(err, "SealJoin")
		j.Unsealed, j.ExpectedSteps = false, steps
	}
	w.follow()
}

// finish may append the end of a join as a step of another.
func (w *joinWalk) finish(t *rapid.T) {
	j := w.pickJoin(t, func(*modelJoin) bool { return true })
	request := roles.FinishRequest{FailIfAnyStepFailed: rapid.Bool().Draw(t, "fail if any step failed")}
	id, topic := outmill.NewWorkItemID(), w.Topic(t)
	then := suite.Pick(t, "then", "record", "record", "nothing", "error")
	parents, late := w.parents(t, j)
	w.Messages++
	var end *outmill.Record
	request.Then = func(join roles.Join) (*outmill.Record, error) {
		switch then {
		case "nothing":
			return nil, nil
		case "error":
			return nil, errThen
		}
		end = suite.Rec(topic, fmt.Sprintf("m%d", w.Messages), withJoins(parents...), func(r *outmill.Record) { r.ID = id })
		return end, nil
	}
	status, reason := j.Status, j.Reason
	ends := false
	if j.pending() {
		status, reason = j.verdict(request.FailIfAnyStepFailed, w.Queue.Now)
		ends = status != roles.JoinPending
	}
	result, err := w.api().FinishJoin(w.Ctx(), j.ID, request)
	if ends && then == "error" {
		require.ErrorIs(w.T, err, errThen)
		return
	}
	w.NoError(err, "FinishJoin")
	require.Equal(w.T, ends, result.Finished, "finished: %s", j)
	require.Equal(w.T, []any{status, reason}, []any{result.Join.Status, result.Join.Reason}, "%s", j)
	if j.hasDeadline && status == roles.JoinPending {
		require.InDelta(w.T, j.deadline-w.Queue.Now, result.DeadlineIn, float64(suite.Tick/2), "deadline of %s", j)
	} else {
		require.Zero(w.T, result.DeadlineIn, "deadline of %s", j)
	}
	if !ends {
		require.Nil(w.T, end, "Then was called")
		return
	}
	j.end(status, reason, w.Queue.Now)
	j.decided = true
	if end != nil {
		if late {
			end.Joins = nil
		}
		w.attached([]*outmill.Record{end})
	}
}

// parents are joins that take a step, or one that does not, which is late.
func (w *joinWalk) parents(t *rapid.T, child *modelJoin) (ids []outmill.JoinID, late bool) {
	for _, parent := range w.joins.joins {
		takes := parent.pending() && parent.room() > 0
		switch {
		case parent == child || rapid.IntRange(0, 3).Draw(t, "parent at 0") > 0:
		case takes:
			ids = append(ids, parent.ID)
		default:
			return []outmill.JoinID{parent.ID}, true
		}
	}
	return ids, false
}

func (w *joinWalk) cancel(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "cancel at 0") > 0 {
		t.Skip("cancelling often leaves little to see")
	}
	j := w.pickJoin(t, func(*modelJoin) bool { return true })
	err := w.api().CancelJoin(w.Ctx(), j.ID, "enough")
	switch {
	case j.pending():
		w.NoError(err, "CancelJoin")
		j.end(roles.JoinCancelled, "enough", w.Queue.Now)
		j.decided = true
		w.before = nil
		w.snoozed()
	case j.Status == roles.JoinCancelled:
		w.NoError(err, "CancelJoin again")
	default:
		require.ErrorIs(w.T, err, roles.ErrJoinFinished)
	}
}

func (w *joinWalk) deleteJoins(t *rapid.T) {
	limit := suite.Pick(t, "limit", 1, 100)
	old := func(j *modelJoin) bool { return !j.pending() && j.ended+joinRetention <= w.Queue.Now }
	candidates := 0
	for _, j := range w.joins.joins {
		if old(j) {
			candidates++
		}
	}
	n, err := w.api().DeleteJoins(w.Ctx(), limit)
	w.NoError(err, "DeleteJoins")
	require.Equal(w.T, min(limit, candidates), n, "joins deleted with limit %d", limit)
	w.joins.joins = slices.DeleteFunc(w.joins.joins, func(j *modelJoin) bool {
		_, err := w.api().GetJoin(w.Ctx(), j.ID)
		return old(j) && errors.Is(err, roles.ErrUnknownJoin)
	})
}

func (w *joinWalk) elapseDay(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "at 0") > 0 {
		t.Skip("a day often leaves little to see")
	}
	w.Pass(joinRetention + time.Second)
}

// checkJoins compares all joins and their steps with the model.
func (w *joinWalk) checkJoins() {
	listed := listAllJoins(w.Ctx(), w.T, w.api(), roles.JoinQuery{})
	require.Len(w.T, listed, len(w.joins.joins), "joins\n%s", &w.joins)
	for _, got := range listed {
		j := w.join(got.ID)
		require.NotNil(w.T, j, "the join %s is in the store, but not in the model", got.ID)
		w.checkSteps(j)
		w.requireSameJoin(j, got)
	}
}

// checkSteps follows the store where the contract does not say what becomes of
// a step.
func (w *joinWalk) checkSteps(j *modelJoin) {
	steps := listAllSteps(w.Ctx(), w.T, w.api(), j.ID)
	require.Len(w.T, steps, len(j.steps), "steps of %s", j)
	for _, s := range j.steps {
		got := steps[s.message.id]
		if s.message.arguable && !s.reported && j.pending() {
			s.status = got
		}
		require.Equal(w.T, s.status, got, "step %s of %s", s, j)
	}
	j.count()
}

func (w *joinWalk) requireSameJoin(j *modelJoin, got *roles.Join) {
	type visible struct {
		GroupingKey                              string
		ExpectedSteps, CompletedSteps, Failed, K int
		Unsealed, CompleteAtDeadline             bool
		Policy                                   roles.JoinPolicy
		Status                                   roles.JoinStatus
		Reason                                   string
	}
	see := func(j *roles.Join) visible {
		return visible{j.GroupingKey, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum, j.Unsealed, j.CompleteAtDeadline, j.Policy,
			j.Status, j.Reason}
	}
	require.Equal(w.T, see(&j.Join), see(got), "model, store: %s", j)
	if j.hasDeadline {
		w.RequireTime(j.deadline, got.Deadline, "deadline")
	} else {
		require.True(w.T, got.Deadline.IsZero(), "deadline of %s", j)
	}
	if j.pending() {
		require.True(w.T, got.FinishedAt.IsZero(), "end of %s", j)
	} else {
		w.RequireTime(j.ended, got.FinishedAt, "end of "+j.ID.String())
	}
}
