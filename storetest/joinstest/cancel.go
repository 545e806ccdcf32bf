package joinstest

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func cancelSentences() []sentence {
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
	e.Elapse(time.Hour)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, "no longer wanted"))
	got := e.getJoin(id)
	require.Equal(e.T, roles.JoinCancelled, got.Status)
	require.Equal(e.T, "no longer wanted", got.Reason)
	e.RequireAbout(e.Now(), got.FinishedAt, "finished at")
	e.RequireAbout(e.Now(), got.UpdatedAt, "updated at")
	e.requireCounts(id, 1, 0)
}

func cancelTwice(e *env) {
	id := e.startJoin(1)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, "enough"))
	before := e.getJoin(id)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, "enough"))
	require.Equal(e.T, before, e.getJoin(id))
}

func cancelFinished(e *env) {
	ended := e.ended()
	for _, status := range []string{"completed", "failed"} {
		before := e.getJoin(ended[status])
		require.ErrorIs(e.T, e.joins().CancelJoin(e.Ctx, before.ID, "too late"), roles.ErrJoinFinished)
		require.Equal(e.T, before, e.getJoin(before.ID))
	}
}

func cancelUnknown(e *env) {
	for _, id := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		require.ErrorIs(e.T, e.joins().CancelJoin(e.Ctx, id, ""), roles.ErrUnknownJoin)
	}
}

func cancelLeavesMessages(e *env) {
	id := e.startJoin(3)
	e.members(id, "m1", "m2", "m3")
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, ""))
	found := e.ClaimN(outmill.NewOwnerToken(), 3)
	e.Ack(found[:2]...)
	e.Fail(found[2])
	e.requireCounts(id, 0, 0)
	require.False(e.T, e.finish(id, then("end")).Finished)
	e.requireJoin(id, roles.JoinCancelled)
	require.Len(e.T, e.List(outmill.ListQuery{}), 1, "the dead one")
}

func cancelReasons(e *env) {
	for _, reason := range []string{"", "日本 😀", `'); DROP TABLE joins; --`, " blanks\nkept "} {
		id := e.startJoin(1)
		require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, reason))
		require.Equal(e.T, reason, e.getJoin(id).Reason)
	}
}

func cancelRacesFinish(e *env) {
	stores := e.twoStores()
	for range suite.Large(30) {
		id := e.startJoin(1)
		e.settleSteps(id, 1, 0)
		var finished, cancelled atomic.Int64
		e.workersOn(stores, 4, func(i int, store joinStore) error {
			if i%2 == 0 {
				result, err := store.FinishJoin(e.Ctx, id, finishing(then(id.String())))
				if result.Finished {
					finished.Add(1)
				}
				return err
			}
			if err := store.CancelJoin(e.Ctx, id, ""); err == nil {
				cancelled.Add(1)
			}
			return nil
		})
		appended := 0
		for _, r := range e.List(outmill.ListQuery{Topic: done}) {
			if r.MessageID == id.String() {
				appended++
			}
		}
		switch e.getJoin(id).Status {
		case roles.JoinCompleted:
			require.Equal(e.T, []int64{1, 0}, []int64{finished.Load(), cancelled.Load()})
			require.Equal(e.T, 1, appended)
		case roles.JoinCancelled:
			require.Equal(e.T, []int64{0, 2}, []int64{finished.Load(), cancelled.Load()})
			require.Zero(e.T, appended)
		default:
			require.Fail(e.T, "the join has not ended")
		}
	}
}
