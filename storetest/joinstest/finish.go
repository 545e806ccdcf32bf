package joinstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func finishSentences() []sentence {
	var list []sentence
	for _, v := range verdicts() {
		list = append(list, v.sentence())
	}
	return append(list, []sentence{
		{"OBX-093 what Then returns is appended whole, and reaches the groups of its topic", thenIsAppended},
		{"Then sees the join as it ends", thenSees},
		{"FinishJoin without Then, or with one that returns nothing, appends nothing", thenOfNothing},
		{"FinishJoin sets the times of update and of the end", finishTimes},
		{"FinishJoin says how long it is until the deadline of a pending join", deadlineIn},
		{"an error of Then leaves everything as it was", thenFails},
		{"a record of Then that is refused leaves everything as it was", thenIsRefused},
		{"a record of Then that is a duplicate is left out, and the join ends", thenIsDuplicate},
		{"FinishJoin of a cancelled join finishes nothing and is no error", finishCancelled},
		{"FinishJoin of an unknown join is ErrUnknownJoin", finishUnknown},
		{"of sixteen callers that finish a join one does, and one record is appended", finishRace},
		{"FinishJoin that is cut short by its context ends the join with its record or not at all", finishCutShort},
		{"the record that ends a join is a step of another", nestedJoin},
		{"joins nest three deep", nestedDeep},
		{"a record of Then that is to be a step of a join that takes none is appended, and is none", nestedLate},
		{"a record of Then that is to be a step of several joins is one of those that take it", nestedPartly},
		{"FinishJoin with Seal seals an unsealed join, and finishes it where that decides it", finishSeals},
		{"FinishJoin with Seal leaves a join that is sealed or has ended", finishSealsNot},
		{"FinishJoin with Seal and fewer steps than there are is ErrTooManySteps", finishSealsTooFew},
		{"FinishJoin with Seal and a number that is no number of steps is refused", finishSealRefused},
		{"an error of Then leaves the join of a sealing request unsealed", finishSealFails},
		{"a requeue and a finish at once leave a join that is sound", requeueRacesFinish},
	}...)
}

func thenIsAppended(e *env) {
	e.Register("one", done)
	e.Register("two", done)
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	want := suite.Rec(done, "end", suite.WithKey("k"), suite.WithDelay(time.Hour), func(r *outmill.Record) {
		r.Metadata = map[string]string{"join": id.String()}
		r.CorrelationID = "conversation"
	})
	require.True(e.T, e.finish(id, func(r *roles.FinishRequest) {
		r.Then = func(roles.Join) (*outmill.Record, error) { return want, nil }
	}).Finished)
	records := e.List(outmill.ListQuery{Topic: done})
	require.Len(e.T, records, 3)
	for _, r := range records {
		require.Equal(e.T, want.Payload, r.Payload)
		require.Equal(e.T, want.Metadata, r.Metadata)
		require.Equal(e.T, "end", r.MessageID)
		require.Equal(e.T, "k", r.Key)
		require.Equal(e.T, "conversation", r.CorrelationID)
		e.RequireAbout(e.Now().Add(time.Hour), r.DueAt, "due at")
	}
}

func thenSees(e *env) {
	metadata := map[string]string{"type": "etl"}
	id := e.startJoin(2, grouped("g"), func(j *roles.Join) { j.Metadata = metadata })
	e.settleSteps(id, 1, 1)
	var seen roles.Join
	result := e.finish(id, failIfAny, func(r *roles.FinishRequest) {
		r.Then = func(join roles.Join) (*outmill.Record, error) {
			seen = join
			return nil, nil
		}
	})
	for _, got := range []*roles.Join{&seen, &result.Join, e.getJoin(id)} {
		require.Equal(e.T, id, got.ID)
		require.Equal(e.T, "g", got.GroupingKey)
		require.Equal(e.T, metadata, got.Metadata)
		require.Equal(e.T, 2, got.ExpectedSteps)
		require.Equal(e.T, []int{1, 1}, []int{got.CompletedSteps, got.FailedSteps})
		require.Equal(e.T, roles.JoinFailed, got.Status)
		require.Equal(e.T, roles.ReasonStepFailed, got.Reason)
	}
}

func thenOfNothing(e *env) {
	for _, change := range []func(*roles.FinishRequest){
		func(r *roles.FinishRequest) { r.Then = nil },
		func(r *roles.FinishRequest) {
			r.Then = func(roles.Join) (*outmill.Record, error) { return nil, nil }
		},
	} {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		before := len(e.List(outmill.ListQuery{}))
		require.True(e.T, e.finish(id, change).Finished)
		e.requireJoin(id, roles.JoinCompleted)
		require.Len(e.T, e.List(outmill.ListQuery{}), before)
	}
}

func finishTimes(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	require.True(e.T, e.getJoin(id).FinishedAt.IsZero(), "finished at, before it is")
	e.Elapse(time.Hour)
	result := e.finish(id)
	for _, got := range []*roles.Join{&result.Join, e.getJoin(id)} {
		e.RequireAbout(e.Now(), got.FinishedAt, "finished at")
		e.RequireAbout(e.Now(), got.UpdatedAt, "updated at")
		e.RequireAbout(e.Now().Add(-time.Hour), got.CreatedAt, "created at")
	}
	e.Elapse(time.Hour)
	e.finish(id)
	e.RequireAbout(e.Now().Add(-time.Hour), e.getJoin(id).FinishedAt, "finished at, after another call")
}

func deadlineIn(e *env) {
	id := e.startJoin(1, inAnHour)
	require.InDelta(e.T, time.Hour, e.finish(id).DeadlineIn, float64(suite.Tolerance))
	e.Elapse(40 * time.Minute)
	require.InDelta(e.T, 20*time.Minute, e.finish(id).DeadlineIn, float64(suite.Tolerance))
	require.Zero(e.T, e.finish(e.startJoin(1)).DeadlineIn, "a join without a deadline")
}

var errThen = errors.New("no record today")

func failing(r *roles.FinishRequest) {
	r.Then = func(roles.Join) (*outmill.Record, error) { return suite.Rec(done, "never"), errThen }
}

// requireUnfinished checks that the request returns an error and changes nothing, and that
// another request finishes the join.
func (e *env) requireUnfinished(id outmill.JoinID, want error, changes ...func(*roles.FinishRequest)) {
	e.T.Helper()
	before := e.seen()
	result, err := e.joins().FinishJoin(e.Ctx, id, finishing(changes...))
	require.ErrorIs(e.T, err, want)
	require.False(e.T, result.Finished)
	require.Equal(e.T, before, e.seen(), "something was written")
	require.True(e.T, e.finish(id, then("end")).Finished)
	e.requireJoin(id, roles.JoinCompleted)
	e.RequireNames([]string{"end"}, e.List(outmill.ListQuery{Topic: done}))
}

func thenFails(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	e.Append(waiter(id))
	e.requireUnfinished(id, errThen, failing)
}

func thenIsRefused(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	e.requireUnfinished(id, outmill.ErrInvalidRecord, then("bad", func(r *outmill.Record) { r.Topic = "" }))
}

func thenIsDuplicate(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	e.Append(suite.Rec(done, "first", suite.WithDedup("k")))
	require.True(e.T, e.finish(id, then("again", suite.WithDedup("k"))).Finished)
	e.requireJoin(id, roles.JoinCompleted)
	e.RequireNames([]string{"first"}, e.List(outmill.ListQuery{Topic: done}))
}

func finishCancelled(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, "enough"))
	result := e.finish(id, then("end"))
	require.False(e.T, result.Finished)
	require.Equal(e.T, roles.JoinCancelled, result.Join.Status)
	require.Equal(e.T, "enough", result.Join.Reason)
	require.Empty(e.T, e.List(outmill.ListQuery{Topic: done}))
}

func finishUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		_, err := e.joins().FinishJoin(e.Ctx, id, finishing(then("end")))
		require.ErrorIs(e.T, err, roles.ErrUnknownJoin)
	}
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func finishRace(e *env) {
	const joins = 5
	ids := make([]outmill.JoinID, joins)
	for i := range ids {
		ids[i] = e.startJoin(2)
		e.settleSteps(ids[i], 1, 1)
	}
	var mu sync.Mutex
	finished := map[outmill.JoinID]int{}
	e.workers(16, func(i int, store joinStore) error {
		order := slices.Clone(ids)
		if i%2 > 0 {
			slices.Reverse(order)
		}
		for _, id := range order {
			result, err := store.FinishJoin(e.Ctx, id, finishing(failIfAny, then(id.String())))
			if err != nil {
				return err
			}
			if result.Join.Status != roles.JoinFailed {
				return errors.New("a caller sees the join as " + string(result.Join.Status))
			}
			if result.Finished {
				mu.Lock()
				finished[id]++
				mu.Unlock()
			}
		}
		return nil
	})
	for _, id := range ids {
		require.Equal(e.T, 1, finished[id], "callers that finished a join")
	}
	e.requireEndsOnce(ids)
}

// requireEndsOnce checks that each of the joins has appended the record that
// has its name.
func (e *env) requireEndsOnce(ids []outmill.JoinID) {
	e.T.Helper()
	want := make([]string, len(ids))
	for i, id := range ids {
		want[i] = id.String()
	}
	require.ElementsMatch(e.T, want, suite.Names(e.List(outmill.ListQuery{Topic: done})))
}

func finishCutShort(e *env) {
	const n = 30
	e.Register(group)
	ids := make([]outmill.JoinID, n)
	for i := range ids {
		ids[i] = e.startJoin(1)
		e.settleSteps(ids[i], 1, 0)
	}
	longest := time.Millisecond
	for i, id := range ids {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.Ctx, longest*time.Duration(i)/20)
		_, err := e.joins().FinishJoin(ctx, id, finishing(then(id.String())))
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
	}
	for _, id := range ids {
		e.finish(id, then(id.String()))
		e.requireJoin(id, roles.JoinCompleted)
	}
	e.requireEndsOnce(ids)
}

func nestedJoin(e *env) {
	parent, child := e.startJoin(2), e.startJoin(1)
	e.completeSteps(e.members(parent, "beside")...)
	e.completeSteps(e.members(child, "m1")...)
	e.Append(waiter(parent))
	require.True(e.T, e.finish(child, then("end of the child", withJoins(parent))).Finished)
	end := e.List(outmill.ListQuery{Topic: done})[0]
	e.requireStep(parent, end, roles.StepPending)
	e.requireCounts(parent, 1, 0)
	e.requireAsleep()
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "end of the child", suite.From(done)))
	e.requireCounts(parent, 2, 0)
	e.requireAwake()
	e.requireFinished(parent, roles.JoinCompleted)
}

func nestedDeep(e *env) {
	top, middle, bottom := e.startJoin(1), e.startJoin(1), e.startJoin(1)
	e.completeSteps(e.members(bottom, "m1")...)
	e.finish(bottom, then("one", withJoins(middle)))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "one"))
	e.finish(middle, then("two", withJoins(top)))
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "two"))
	e.requireFinished(top, roles.JoinFailed)
}

func nestedLate(e *env) {
	full := e.startJoin(1)
	e.completeSteps(e.members(full, "beside")...)
	parents := e.ended()
	parents["full"], parents["unknown"] = full, outmill.NewJoinID()
	for name, parent := range parents {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		require.True(e.T, e.finish(id, then(name, withJoins(parent))).Finished, name)
		e.requireJoin(id, roles.JoinCompleted)
	}
	require.Len(e.T, e.List(outmill.ListQuery{Topic: done}), len(parents))
	require.Len(e.T, e.steps(full), 1)
	for _, r := range e.ClaimAll(suite.From(done)) {
		e.Ack(r)
	}
	e.requireCounts(full, 1, 0)
}

func nestedPartly(e *env) {
	full, open, id := e.startJoin(1), e.startJoin(1), e.startJoin(1)
	e.completeSteps(e.members(full, "beside")...)
	e.settleSteps(id, 1, 0)
	require.True(e.T, e.finish(id, then("end", withJoins(full, open))).Finished)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "end", suite.From(done)))
	e.requireCounts(full, 1, 0)
	e.requireCounts(open, 1, 0)
}

func sealing(steps int) func(*roles.FinishRequest) {
	return func(r *roles.FinishRequest) { r.Seal, r.ExpectedSteps = true, steps }
}

func finishSeals(e *env) {
	id := e.startJoin(0, unsealed)
	e.settleSteps(id, 1, 1)
	result := e.finish(id, sealing(3), then("end"))
	require.False(e.T, result.Finished)
	for _, got := range []*roles.Join{&result.Join, e.getJoin(id)} {
		require.False(e.T, got.Unsealed)
		require.Equal(e.T, 3, got.ExpectedSteps)
		require.Equal(e.T, roles.JoinPending, got.Status)
	}
	e.completeSteps(e.members(id, "last")...)
	require.True(e.T, e.finish(id, sealing(3), then("end")).Finished)

	empty := e.startJoin(0, unsealed)
	result = e.finish(empty, sealing(0), then("end of nothing"))
	require.True(e.T, result.Finished)
	require.Equal(e.T, roles.JoinCompleted, result.Join.Status)
	e.RequireNames([]string{"end", "end of nothing"}, e.List(outmill.ListQuery{Topic: done}))
}

func finishSealsNot(e *env) {
	id := e.startJoin(2)
	e.settleSteps(id, 1, 0)
	require.False(e.T, e.finish(id, sealing(1)).Finished)
	require.Equal(e.T, 2, e.getJoin(id).ExpectedSteps)
	ended := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(ended, 1, 0)
	e.requireFinished(ended, roles.JoinCompleted)
	require.False(e.T, e.finish(ended, sealing(1)).Finished)
	require.True(e.T, e.getJoin(ended).Unsealed)
}

func finishSealsTooFew(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 2, 0)
	e.requireUnfinished(id, roles.ErrTooManySteps, sealing(1), then("never"))
}

func finishSealRefused(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 1, 0)
	e.requireUnfinished(id, outmill.ErrInvalidRecord, sealing(roles.MaxJoinSteps+1), then("never"))
	other := e.startJoin(0, unsealed)
	_, err := e.joins().FinishJoin(e.Ctx, other, finishing(sealing(-1)))
	require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
	require.True(e.T, e.getJoin(other).Unsealed)
}

func finishSealFails(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 1, 0)
	e.requireUnfinished(id, errThen, sealing(1), failing)
	require.True(e.T, e.getJoin(id).Unsealed)
}

// requeueRacesFinish requires that a requeue makes the step pending before the join ends, or
// does not change it.
func requeueRacesFinish(e *env) {
	stores := e.twoStores()
	for range suite.Large(30) {
		id := e.startJoin(1)
		r := e.members(id, "m1")[0]
		e.failSteps(r)
		e.workersOn(stores, 2, func(i int, store joinStore) error {
			var err error
			if i == 0 {
				_, err = store.Requeue(e.Ctx, r.ID)
			} else {
				_, err = store.FinishJoin(e.Ctx, id, finishing(failIfAny))
			}
			return err
		})
		e.RequireStatus(outmill.StatusPending, r)
		if e.getJoin(id).Status == roles.JoinPending {
			e.requireCounts(id, 0, 0)
		} else {
			e.requireJoin(id, roles.JoinFailed)
			e.requireCounts(id, 0, 1)
		}
		e.Delete(r)
	}
}
