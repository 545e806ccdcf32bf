package storetest

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinSealSentences() []sentence {
	return []sentence{
		{"SealJoin says how many steps a join has, which decides it when they are settled", sealDecides},
		{"a sealed join waits for the steps that are not there yet, and takes no more", sealedWaits},
		{"SealJoin decides any and quorum joins that cannot succeed any more", sealFails},
		{"SealJoin wakes a record that waits for a join that is decided by it", sealWakes},
		{"SealJoin again with the same number is no error", sealTwice},
		{"SealJoin of a sealed join with another number is refused", sealOtherwise},
		{"SealJoin with no steps decides a join that has none", sealEmpty},
		{"SealJoin with fewer steps than there are is ErrTooManySteps", sealTooFew},
		{"SealJoin with a number that is no number of steps is refused", sealRefused},
		{"SealJoin of an unknown join is ErrUnknownJoin", sealUnknown},
		{"SealJoin of a join that has ended is ErrJoinFinished", sealEnded},
	}
}

func (e *env) seal(id outmill.JoinID, steps int) {
	e.t.Helper()
	require.NoError(e.t, e.joins().SealJoin(e.ctx, id, steps), "SealJoin")
}

func sealDecides(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	require.False(e.t, e.finish(id).Finished)
	e.elapse(time.Hour)
	e.seal(id, 2)
	got := e.getJoin(id)
	require.False(e.t, got.Unsealed)
	require.Equal(e.t, 2, got.ExpectedSteps)
	require.Equal(e.t, storekit.JoinPending, got.Status)
	e.requireAbout(e.now(), got.UpdatedAt, "updated at")
	e.requireFinished(id, storekit.JoinCompleted)
}

func sealedWaits(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1")...)
	e.seal(id, 2)
	require.False(e.t, e.finish(id).Finished)
	last := e.members(id, "m2")
	require.ErrorIs(e.t, e.store.Append(e.ctx, rec(orders, "m3", withJoins(id))), storekit.ErrTooManySteps)
	e.failSteps(last...)
	e.requireFinished(id, storekit.JoinFailed)
}

func sealFails(e *env) {
	for _, policy := range []func(*storekit.Join){anyStep, quorumOf(2)} {
		id := e.startJoin(0, unsealed, policy)
		e.settleSteps(id, 0, 2)
		require.False(e.t, e.finish(id).Finished)
		e.seal(id, 2)
		result := e.finish(id)
		require.True(e.t, result.Finished)
		require.Equal(e.t, storekit.JoinFailed, result.Join.Status)
		require.Equal(e.t, storekit.ReasonNoQuorum, result.Join.Reason)
	}
}

func sealWakes(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	e.append(waiter(id))
	e.requireAsleep()
	e.seal(id, 2)
	e.requireAwake()
}

func sealTwice(e *env) {
	id := e.startJoin(0, unsealed)
	e.members(id, "m1")
	for range 3 {
		e.seal(id, 2)
	}
	require.Equal(e.t, 2, e.getJoin(id).ExpectedSteps)
}

func sealOtherwise(e *env) {
	id, begun := e.startJoin(0, unsealed), e.startJoin(2)
	e.members(id, "m1")
	e.seal(id, 2)
	e.seal(begun, 2)
	for _, id := range []outmill.JoinID{id, begun} {
		for _, steps := range []int{0, 1, 3} {
			require.ErrorIs(e.t, e.joins().SealJoin(e.ctx, id, steps), outmill.ErrInvalidRecord)
		}
		require.Equal(e.t, 2, e.getJoin(id).ExpectedSteps)
	}
}

func sealEmpty(e *env) {
	for _, c := range []struct {
		policy func(*storekit.Join)
		want   storekit.JoinStatus
	}{{plainJoin, storekit.JoinCompleted}, {anyStep, storekit.JoinFailed}, {quorumOf(2), storekit.JoinFailed}} {
		id := e.startJoin(0, unsealed, c.policy)
		e.filled(waiter(id))
		e.requireAsleep()
		e.seal(id, 0)
		e.ack(e.requireAwake())
		require.ErrorIs(e.t, e.store.Append(e.ctx, rec(orders, "m1", withJoins(id))), storekit.ErrTooManySteps)
		e.requireFinished(id, c.want)
	}
}

func sealTooFew(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	e.members(id, "m3")
	before := e.getJoin(id)
	require.ErrorIs(e.t, e.joins().SealJoin(e.ctx, id, 2), storekit.ErrTooManySteps)
	require.Equal(e.t, before, e.getJoin(id))
	e.seal(id, 3)
}

func sealRefused(e *env) {
	id := e.startJoin(0, unsealed)
	before := e.getJoin(id)
	for _, steps := range []int{-1, math.MinInt, storekit.MaxJoinSteps + 1, math.MaxInt} {
		require.ErrorIs(e.t, e.joins().SealJoin(e.ctx, id, steps), outmill.ErrInvalidRecord, "%d steps", steps)
	}
	require.Equal(e.t, before, e.getJoin(id))
	e.seal(id, storekit.MaxJoinSteps)
}

func sealUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		require.ErrorIs(e.t, e.joins().SealJoin(e.ctx, id, 1), storekit.ErrUnknownJoin)
	}
}

func sealEnded(e *env) {
	finished, cancelled := e.startJoin(0, unsealed, anyStep), e.startJoin(0, unsealed)
	e.settleSteps(finished, 1, 0)
	e.requireFinished(finished, storekit.JoinCompleted)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, cancelled, ""))
	for _, id := range []outmill.JoinID{finished, cancelled} {
		require.ErrorIs(e.t, e.joins().SealJoin(e.ctx, id, 3), storekit.ErrJoinFinished)
	}
}

func joinCancelSentences() []sentence {
	return []sentence{
		{"CancelJoin ends a pending join, with its reason", cancelEnds},
		{"CancelJoin again is no error and changes nothing", cancelTwice},
		{"CancelJoin of a finished join is ErrJoinFinished and leaves it", cancelFinished},
		{"CancelJoin of an unknown join is ErrUnknownJoin", cancelUnknown},
		{"a cancelled join is never finished, and its messages are delivered", cancelLeavesMessages},
		{"a reason of any text is kept", cancelReasons},
		{"a join that is cancelled and finished at once ends once", cancelRacesFinish},
	}
}

func cancelEnds(e *env) {
	id := e.startJoin(2)
	e.settleSteps(id, 1, 0)
	e.elapse(time.Hour)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, "no longer wanted"))
	got := e.getJoin(id)
	require.Equal(e.t, storekit.JoinCancelled, got.Status)
	require.Equal(e.t, "no longer wanted", got.Reason)
	e.requireAbout(e.now(), got.FinishedAt, "finished at")
	e.requireAbout(e.now(), got.UpdatedAt, "updated at")
	e.requireCounts(id, 1, 0)
}

func cancelTwice(e *env) {
	id := e.startJoin(1)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, "enough"))
	before := e.getJoin(id)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, "enough"))
	require.Equal(e.t, before, e.getJoin(id))
}

func cancelFinished(e *env) {
	ended := e.ended()
	for _, status := range []string{"completed", "failed"} {
		before := e.getJoin(ended[status])
		require.ErrorIs(e.t, e.joins().CancelJoin(e.ctx, before.ID, "too late"), storekit.ErrJoinFinished)
		require.Equal(e.t, before, e.getJoin(before.ID))
	}
}

func cancelUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		require.ErrorIs(e.t, e.joins().CancelJoin(e.ctx, id, ""), storekit.ErrUnknownJoin)
	}
}

func cancelLeavesMessages(e *env) {
	id := e.startJoin(3)
	e.members(id, "m1", "m2", "m3")
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, ""))
	found := e.claimN(outmill.NewOwnerToken(), 3)
	e.ack(found[:2]...)
	e.fail(found[2])
	e.requireCounts(id, 0, 0)
	require.False(e.t, e.finish(id, then("end")).Finished)
	e.requireJoin(id, storekit.JoinCancelled)
	require.Len(e.t, e.list(outmill.ListQuery{}), 1, "the dead one")
}

func cancelReasons(e *env) {
	for _, reason := range []string{"", "日本 😀", `'); DROP TABLE joins; --`, " blanks\nkept "} {
		id := e.startJoin(1)
		require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, reason))
		require.Equal(e.t, reason, e.getJoin(id).Reason)
	}
}

func cancelRacesFinish(e *env) {
	stores := e.twoStores()
	for range large(30) {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		var finished, cancelled atomic.Int64
		e.workersOn(stores, 4, func(i int, store joinStore) error {
			if i%2 == 0 {
				result, err := store.FinishJoin(e.ctx, id, finishing(then(id.String())))
				if result.Finished {
					finished.Add(1)
				}
				return err
			}
			if err := store.CancelJoin(e.ctx, id, ""); err == nil {
				cancelled.Add(1)
			}
			return nil
		})
		appended := 0
		for _, r := range e.list(outmill.ListQuery{Topic: done}) {
			if r.MessageID == id.String() {
				appended++
			}
		}
		switch e.getJoin(id).Status {
		case storekit.JoinCompleted:
			require.Equal(e.t, []int64{1, 0}, []int64{finished.Load(), cancelled.Load()})
			require.Equal(e.t, 1, appended)
		case storekit.JoinCancelled:
			require.Equal(e.t, []int64{0, 2}, []int64{finished.Load(), cancelled.Load()})
			require.Zero(e.t, appended)
		default:
			require.Fail(e.t, "the join has not ended")
		}
	}
}
