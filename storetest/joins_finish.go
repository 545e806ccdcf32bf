package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinFinishSentences() []sentence {
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
		{"an error of Then leaves a join unsealed that was to be sealed", finishSealFails},
		{"a requeue and a finish at once leave a join that is sound", requeueRacesFinish},
	}...)
}

func thenIsAppended(e *env) {
	e.register("one", done)
	e.register("two", done)
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	want := rec(done, "end", withKey("k"), withDelay(time.Hour), func(r *outmill.Record) {
		r.Metadata = map[string]string{"join": id.String()}
		r.CorrelationID = "conversation"
	})
	require.True(e.t, e.finish(id, func(r *storekit.FinishRequest) {
		r.Then = func(storekit.Join) (*outmill.Record, error) { return want, nil }
	}).Finished)
	records := e.list(outmill.ListQuery{Topic: done})
	require.Len(e.t, records, 3)
	for _, r := range records {
		require.Equal(e.t, want.Payload, r.Payload)
		require.Equal(e.t, want.Metadata, r.Metadata)
		require.Equal(e.t, "end", r.MessageID)
		require.Equal(e.t, "k", r.Key)
		require.Equal(e.t, "conversation", r.CorrelationID)
		e.requireAbout(e.now().Add(time.Hour), r.DueAt, "due at")
	}
}

func thenSees(e *env) {
	metadata := map[string]string{"type": "etl"}
	id := e.startJoin(2, grouped("g"), func(j *storekit.Join) { j.Metadata = metadata })
	e.settleSteps(id, 1, 1)
	var seen storekit.Join
	result := e.finish(id, failIfAny, func(r *storekit.FinishRequest) {
		r.Then = func(join storekit.Join) (*outmill.Record, error) {
			seen = join
			return nil, nil
		}
	})
	for _, got := range []*storekit.Join{&seen, &result.Join, e.getJoin(id)} {
		require.Equal(e.t, id, got.ID)
		require.Equal(e.t, "g", got.GroupingKey)
		require.Equal(e.t, metadata, got.Metadata)
		require.Equal(e.t, 2, got.ExpectedSteps)
		require.Equal(e.t, []int{1, 1}, []int{got.CompletedSteps, got.FailedSteps})
		require.Equal(e.t, storekit.JoinFailed, got.Status)
		require.Equal(e.t, storekit.ReasonStepFailed, got.Reason)
	}
}

func thenOfNothing(e *env) {
	for _, change := range []func(*storekit.FinishRequest){
		func(r *storekit.FinishRequest) { r.Then = nil },
		func(r *storekit.FinishRequest) {
			r.Then = func(storekit.Join) (*outmill.Record, error) { return nil, nil }
		},
	} {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		before := len(e.list(outmill.ListQuery{}))
		require.True(e.t, e.finish(id, change).Finished)
		e.requireJoin(id, storekit.JoinCompleted)
		require.Len(e.t, e.list(outmill.ListQuery{}), before)
	}
}

func finishTimes(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	require.True(e.t, e.getJoin(id).FinishedAt.IsZero(), "finished at, before it is")
	e.elapse(time.Hour)
	result := e.finish(id)
	for _, got := range []*storekit.Join{&result.Join, e.getJoin(id)} {
		e.requireAbout(e.now(), got.FinishedAt, "finished at")
		e.requireAbout(e.now(), got.UpdatedAt, "updated at")
		e.requireAbout(e.now().Add(-time.Hour), got.CreatedAt, "created at")
	}
	e.elapse(time.Hour)
	e.finish(id)
	e.requireAbout(e.now().Add(-time.Hour), e.getJoin(id).FinishedAt, "finished at, after another call")
}

func deadlineIn(e *env) {
	id := e.startJoin(1, inAnHour)
	require.InDelta(e.t, time.Hour, e.finish(id).DeadlineIn, float64(tolerance))
	e.elapse(40 * time.Minute)
	require.InDelta(e.t, 20*time.Minute, e.finish(id).DeadlineIn, float64(tolerance))
	require.Zero(e.t, e.finish(e.startJoin(1)).DeadlineIn, "a join without a deadline")
}

var errThen = errors.New("no record today")

func failing(r *storekit.FinishRequest) {
	r.Then = func(storekit.Join) (*outmill.Record, error) { return rec(done, "never"), errThen }
}

// requireUnfinished checks that the request is an error and changes nothing,
// and that another one finishes the join.
func (e *env) requireUnfinished(id outmill.JoinID, want error, changes ...func(*storekit.FinishRequest)) {
	e.t.Helper()
	before := e.seen()
	result, err := e.joins().FinishJoin(e.ctx, id, finishing(changes...))
	require.ErrorIs(e.t, err, want)
	require.False(e.t, result.Finished)
	require.Equal(e.t, before, e.seen(), "something was written")
	require.True(e.t, e.finish(id, then("end")).Finished)
	e.requireJoin(id, storekit.JoinCompleted)
	e.requireNames([]string{"end"}, e.list(outmill.ListQuery{Topic: done}))
}

func thenFails(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	e.append(waiter(id))
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
	e.append(rec(done, "first", withDedup("k")))
	require.True(e.t, e.finish(id, then("again", withDedup("k"))).Finished)
	e.requireJoin(id, storekit.JoinCompleted)
	e.requireNames([]string{"first"}, e.list(outmill.ListQuery{Topic: done}))
}

func finishCancelled(e *env) {
	id := e.startJoin(1)
	e.settleSteps(id, 1, 0)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, "enough"))
	result := e.finish(id, then("end"))
	require.False(e.t, result.Finished)
	require.Equal(e.t, storekit.JoinCancelled, result.Join.Status)
	require.Equal(e.t, "enough", result.Join.Reason)
	require.Empty(e.t, e.list(outmill.ListQuery{Topic: done}))
}

func finishUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		_, err := e.joins().FinishJoin(e.ctx, id, finishing(then("end")))
		require.ErrorIs(e.t, err, storekit.ErrUnknownJoin)
	}
	require.Empty(e.t, e.list(outmill.ListQuery{}))
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
			result, err := store.FinishJoin(e.ctx, id, finishing(failIfAny, then(id.String())))
			if err != nil {
				return err
			}
			if result.Join.Status != storekit.JoinFailed {
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
		require.Equal(e.t, 1, finished[id], "callers that finished a join")
	}
	e.requireEndsOnce(ids)
}

// requireEndsOnce checks that each of the joins has appended the record that
// has its name.
func (e *env) requireEndsOnce(ids []outmill.JoinID) {
	e.t.Helper()
	want := make([]string, len(ids))
	for i, id := range ids {
		want[i] = id.String()
	}
	require.ElementsMatch(e.t, want, names(e.list(outmill.ListQuery{Topic: done})))
}

func finishCutShort(e *env) {
	const n = 30
	e.register(group)
	ids := make([]outmill.JoinID, n)
	for i := range ids {
		ids[i] = e.startJoin(1)
		e.settleSteps(ids[i], 1, 0)
	}
	longest := time.Millisecond
	for i, id := range ids {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.ctx, longest*time.Duration(i)/20)
		_, err := e.joins().FinishJoin(ctx, id, finishing(then(id.String())))
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
	}
	for _, id := range ids {
		e.finish(id, then(id.String()))
		e.requireJoin(id, storekit.JoinCompleted)
	}
	e.requireEndsOnce(ids)
}

func nestedJoin(e *env) {
	parent, child := e.startJoin(2), e.startJoin(1)
	e.completeSteps(e.members(parent, "beside")...)
	e.completeSteps(e.members(child, "m1")...)
	e.append(waiter(parent))
	require.True(e.t, e.finish(child, then("end of the child", withJoins(parent))).Finished)
	end := e.list(outmill.ListQuery{Topic: done})[0]
	e.requireStep(parent, end, storekit.StepPending)
	e.requireCounts(parent, 1, 0)
	e.requireAsleep()
	e.ack(e.claimOne(outmill.NewOwnerToken(), "end of the child", from(done)))
	e.requireCounts(parent, 2, 0)
	e.requireAwake()
	e.requireFinished(parent, storekit.JoinCompleted)
}

func nestedDeep(e *env) {
	top, middle, bottom := e.startJoin(1), e.startJoin(1), e.startJoin(1)
	e.completeSteps(e.members(bottom, "m1")...)
	e.finish(bottom, then("one", withJoins(middle)))
	e.ack(e.claimOne(outmill.NewOwnerToken(), "one"))
	e.finish(middle, then("two", withJoins(top)))
	e.fail(e.claimOne(outmill.NewOwnerToken(), "two"))
	e.requireFinished(top, storekit.JoinFailed)
}

func nestedLate(e *env) {
	full := e.startJoin(1)
	e.completeSteps(e.members(full, "beside")...)
	parents := e.ended()
	parents["full"], parents["unknown"] = full, outmill.NewJoinID()
	for name, parent := range parents {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		require.True(e.t, e.finish(id, then(name, withJoins(parent))).Finished, name)
		e.requireJoin(id, storekit.JoinCompleted)
	}
	require.Len(e.t, e.list(outmill.ListQuery{Topic: done}), len(parents))
	require.Len(e.t, e.steps(full), 1)
	for _, r := range e.claimAll(from(done)) {
		e.ack(r)
	}
	e.requireCounts(full, 1, 0)
}

func nestedPartly(e *env) {
	full, open, id := e.startJoin(1), e.startJoin(1), e.startJoin(1)
	e.completeSteps(e.members(full, "beside")...)
	e.settleSteps(id, 1, 0)
	require.True(e.t, e.finish(id, then("end", withJoins(full, open))).Finished)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "end", from(done)))
	e.requireCounts(full, 1, 0)
	e.requireCounts(open, 1, 0)
}

func sealing(steps int) func(*storekit.FinishRequest) {
	return func(r *storekit.FinishRequest) { r.Seal, r.ExpectedSteps = true, steps }
}

func finishSeals(e *env) {
	id := e.startJoin(0, unsealed)
	e.settleSteps(id, 1, 1)
	result := e.finish(id, sealing(3), then("end"))
	require.False(e.t, result.Finished)
	for _, got := range []*storekit.Join{&result.Join, e.getJoin(id)} {
		require.False(e.t, got.Unsealed)
		require.Equal(e.t, 3, got.ExpectedSteps)
		require.Equal(e.t, storekit.JoinPending, got.Status)
	}
	e.completeSteps(e.members(id, "last")...)
	require.True(e.t, e.finish(id, sealing(3), then("end")).Finished)

	empty := e.startJoin(0, unsealed)
	result = e.finish(empty, sealing(0), then("end of nothing"))
	require.True(e.t, result.Finished)
	require.Equal(e.t, storekit.JoinCompleted, result.Join.Status)
	e.requireNames([]string{"end", "end of nothing"}, e.list(outmill.ListQuery{Topic: done}))
}

func finishSealsNot(e *env) {
	id := e.startJoin(2)
	e.settleSteps(id, 1, 0)
	require.False(e.t, e.finish(id, sealing(1)).Finished)
	require.Equal(e.t, 2, e.getJoin(id).ExpectedSteps)
	ended := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(ended, 1, 0)
	e.requireFinished(ended, storekit.JoinCompleted)
	require.False(e.t, e.finish(ended, sealing(1)).Finished)
	require.True(e.t, e.getJoin(ended).Unsealed)
}

func finishSealsTooFew(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 2, 0)
	e.requireUnfinished(id, storekit.ErrTooManySteps, sealing(1), then("never"))
}

func finishSealRefused(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 1, 0)
	e.requireUnfinished(id, outmill.ErrInvalidRecord, sealing(storekit.MaxJoinSteps+1), then("never"))
	other := e.startJoin(0, unsealed)
	_, err := e.joins().FinishJoin(e.ctx, other, finishing(sealing(-1)))
	require.ErrorIs(e.t, err, outmill.ErrInvalidRecord)
	require.True(e.t, e.getJoin(other).Unsealed)
}

func finishSealFails(e *env) {
	id := e.startJoin(0, unsealed, anyStep)
	e.settleSteps(id, 1, 0)
	e.requireUnfinished(id, errThen, sealing(1), failing)
	require.True(e.t, e.getJoin(id).Unsealed)
}

// requeueRacesFinish: the step is taken back before the join ends, or not at
// all.
func requeueRacesFinish(e *env) {
	stores := e.twoStores()
	for range large(30) {
		id := e.startJoin(1)
		r := e.members(id, "m1")[0]
		e.failSteps(r)
		e.workersOn(stores, 2, func(i int, store joinStore) error {
			var err error
			if i == 0 {
				_, err = store.Requeue(e.ctx, r.ID)
			} else {
				_, err = store.FinishJoin(e.ctx, id, finishing(failIfAny))
			}
			return err
		})
		e.requireStatus(outmill.StatusPending, r)
		if e.getJoin(id).Status == storekit.JoinPending {
			e.requireCounts(id, 0, 0)
		} else {
			e.requireJoin(id, storekit.JoinFailed)
			e.requireCounts(id, 0, 1)
		}
		e.delete(r)
	}
}
