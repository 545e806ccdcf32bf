package joinstest

import (
	"math"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func sealSentences() []sentence {
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
	e.T.Helper()
	require.NoError(e.T, e.joins().SealJoin(e.Ctx, id, steps), "SealJoin")
}

func sealDecides(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	require.False(e.T, e.finish(id).Finished)
	e.Elapse(time.Hour)
	e.seal(id, 2)
	got := e.getJoin(id)
	require.False(e.T, got.Unsealed)
	require.Equal(e.T, 2, got.ExpectedSteps)
	require.Equal(e.T, roles.JoinPending, got.Status)
	e.RequireAbout(e.Now(), got.UpdatedAt, "updated at")
	e.requireFinished(id, roles.JoinCompleted)
}

func sealedWaits(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1")...)
	e.seal(id, 2)
	require.False(e.T, e.finish(id).Finished)
	last := e.members(id, "m2")
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m3", withJoins(id))), roles.ErrTooManySteps)
	e.failSteps(last...)
	e.requireFinished(id, roles.JoinFailed)
}

func sealFails(e *env) {
	for _, policy := range []func(*roles.Join){anyStep, quorumOf(2)} {
		id := e.startJoin(0, unsealed, policy)
		e.settleSteps(id, 0, 2)
		require.False(e.T, e.finish(id).Finished)
		e.seal(id, 2)
		result := e.finish(id)
		require.True(e.T, result.Finished)
		require.Equal(e.T, roles.JoinFailed, result.Join.Status)
		require.Equal(e.T, roles.ReasonNoQuorum, result.Join.Reason)
	}
}

func sealWakes(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	e.Append(waiter(id))
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
	require.Equal(e.T, 2, e.getJoin(id).ExpectedSteps)
}

func sealOtherwise(e *env) {
	id, begun := e.startJoin(0, unsealed), e.startJoin(2)
	e.members(id, "m1")
	e.seal(id, 2)
	e.seal(begun, 2)
	for _, id := range []outmill.JoinID{id, begun} {
		for _, steps := range []int{0, 1, 3} {
			require.ErrorIs(e.T, e.joins().SealJoin(e.Ctx, id, steps), outmill.ErrInvalidRecord)
		}
		require.Equal(e.T, 2, e.getJoin(id).ExpectedSteps)
	}
}

func sealEmpty(e *env) {
	for _, c := range []struct {
		policy func(*roles.Join)
		want   roles.JoinStatus
	}{{plainJoin, roles.JoinCompleted}, {anyStep, roles.JoinFailed}, {quorumOf(2), roles.JoinFailed}} {
		id := e.startJoin(0, unsealed, c.policy)
		e.Filled(waiter(id))
		e.requireAsleep()
		e.seal(id, 0)
		e.Ack(e.requireAwake())
		require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m1", withJoins(id))), roles.ErrTooManySteps)
		e.requireFinished(id, c.want)
	}
}

func sealTooFew(e *env) {
	id := e.startJoin(0, unsealed)
	e.completeSteps(e.members(id, "m1", "m2")...)
	e.members(id, "m3")
	before := e.getJoin(id)
	require.ErrorIs(e.T, e.joins().SealJoin(e.Ctx, id, 2), roles.ErrTooManySteps)
	require.Equal(e.T, before, e.getJoin(id))
	e.seal(id, 3)
}

func sealRefused(e *env) {
	id := e.startJoin(0, unsealed)
	before := e.getJoin(id)
	for _, steps := range []int{-1, math.MinInt, roles.MaxJoinSteps + 1, math.MaxInt} {
		require.ErrorIs(e.T, e.joins().SealJoin(e.Ctx, id, steps), outmill.ErrInvalidRecord, "%d steps", steps)
	}
	require.Equal(e.T, before, e.getJoin(id))
	e.seal(id, roles.MaxJoinSteps)
}

func sealUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		require.ErrorIs(e.T, e.joins().SealJoin(e.Ctx, id, 1), roles.ErrUnknownJoin)
	}
}

func sealEnded(e *env) {
	finished, cancelled := e.startJoin(0, unsealed, anyStep), e.startJoin(0, unsealed)
	e.settleSteps(finished, 1, 0)
	e.requireFinished(finished, roles.JoinCompleted)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, cancelled, ""))
	for _, id := range []outmill.JoinID{finished, cancelled} {
		require.ErrorIs(e.T, e.joins().SealJoin(e.Ctx, id, 3), roles.ErrJoinFinished)
	}
}
