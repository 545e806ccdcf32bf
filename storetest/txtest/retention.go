package txtest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func retentionSentences() []sentence {
	return []sentence{
		{"a finished saga is deleted when its retention has passed, and not before", sagaRetained},
		{"a saga without a retention is kept", sagaWithoutRetention},
		{"DeleteOldSagas deletes sagas of all types, and no more than its limit", oldSagasLimit},
		{"a retention is for the version of a saga that is finished", sagaRetainedConflicts},
		{"a retention takes part in the transaction", sagaRetainedInTx},
		{"an update of a saga ends its retention", sagaRetainedThenUpdated},
		{"a retention that makes no sense is refused with a typed error", sagaRetentionLimits},
	}
}

// finishedSaga returns a saga that has ended.
func (e *env) finishedSaga(correlation string) *roles.Saga {
	e.T.Helper()
	saga := &roles.Saga{Type: sagaKind, Correlation: correlation, Finished: true}
	require.NoError(e.T, e.sagas().InsertSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	return saga
}

func (e *env) retain(saga *roles.Saga, d time.Duration) error {
	e.T.Helper()
	return e.sagas().RetainSaga(e.Ctx, saga, d, roles.SagaOptions{})
}

// deletesOld deletes up to limit sagas, and returns how many that were.
func (e *env) deletesOld(limit int) int {
	e.T.Helper()
	n, err := e.sagas().DeleteOldSagas(e.Ctx, limit)
	require.NoError(e.T, err)
	return n
}

func sagaRetained(e *env) {
	saga := e.finishedSaga("o1")
	require.NoError(e.T, e.retain(saga, 2*time.Hour))
	require.Zero(e.T, e.deletesOld(10))
	e.Elapse(time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	found, state := e.findSaga("o1")
	require.Equal(e.T, saga.Version, found.Version, "a retention leaves the version as it is")
	require.True(e.T, found.Finished)
	require.Equal(e.T, anOrder(), state)
	require.NoError(e.T, e.retain(saga, 3*time.Hour), "a second call sets another retention")
	e.Elapse(2 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	e.findSaga("o1")
	e.Elapse(time.Hour + time.Minute)
	e.deletesOld(10)
	e.requireNoSaga("o1")
	e.startSaga("o1")
}

func sagaWithoutRetention(e *env) {
	e.startSaga("open")
	e.finishedSaga("finished")
	e.Elapse(1000 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	e.findSaga("open")
	e.findSaga("finished")
}

func oldSagasLimit(e *env) {
	kinds := []string{sagaKind, sagaKind + "2"}
	require.NoError(e.T, e.sagas().PrepareSagas(e.Ctx, kinds...))
	const n = 5
	for i := range n {
		saga := &roles.Saga{Type: kinds[i%2], Correlation: fmt.Sprint(i), Finished: true}
		require.NoError(e.T, e.sagas().InsertSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
		// The second type may be none that Harness.Elapse knows.
		d := time.Hour
		if i%2 == 1 {
			d = time.Microsecond
		}
		require.NoError(e.T, e.retain(saga, d))
	}
	e.Elapse(2 * time.Hour)
	left := func() (left int) {
		for i := range n {
			if _, err := e.sagas().FindSaga(e.Ctx, kinds[i%2], fmt.Sprint(i), &sagaState{}, roles.SagaOptions{}); err == nil {
				left++
			}
		}
		return left
	}
	// An index of the engine's may delete some of them, too, and an engine may take a moment to
	// see that a retention has passed.
	deleted := 0
	for until := time.Now().Add(soon); left() > 0; {
		require.True(e.T, time.Now().Before(until), "%d sagas are never deleted", left())
		did := e.deletesOld(2)
		require.LessOrEqual(e.T, did, 2)
		deleted += did
	}
	require.LessOrEqual(e.T, deleted, n)
	require.Zero(e.T, e.deletesOld(2))
}

func sagaRetainedConflicts(e *env) {
	saga := e.startSaga("o1")
	require.ErrorIs(e.T, e.retain(saga, time.Hour), roles.ErrSagaConflict, "it is not finished")
	stale := *saga
	saga.Finished = true
	require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	require.ErrorIs(e.T, e.retain(&stale, time.Hour), roles.ErrSagaConflict, "another version")
	other := *saga
	other.ID = outmill.NewWorkItemID()
	require.ErrorIs(e.T, e.retain(&other, time.Hour), roles.ErrSagaConflict, "another saga")
	e.Elapse(2 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	require.NoError(e.T, e.retain(saga, time.Hour))
	require.NoError(e.T, e.sagas().DeleteSaga(e.Ctx, saga, roles.SagaOptions{}))
	require.ErrorIs(e.T, e.retain(saga, time.Hour), roles.ErrSagaConflict, "it is deleted")
}

func sagaRetainedInTx(e *env) {
	saga := e.finishedSaga("o1")
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.sagas().RetainSaga(ctx, saga, time.Hour, roles.SagaOptions{}))
	rollback()
	e.Elapse(2 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	e.findSaga("o1")
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.sagas().RetainSaga(ctx, saga, time.Hour, roles.SagaOptions{}))
	commit()
	e.Elapse(2 * time.Hour)
	e.deletesOld(10)
	e.requireNoSaga("o1")
}

func sagaRetainedThenUpdated(e *env) {
	for _, correlation := range []string{"finished", "open"} {
		saga := e.finishedSaga(correlation)
		require.NoError(e.T, e.retain(saga, time.Hour))
		saga.Finished = correlation == "finished"
		require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	}
	e.Elapse(2 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
	e.findSaga("finished")
	e.findSaga("open")
}

func sagaRetentionLimits(e *env) {
	saga := e.finishedSaga("o1")
	for _, bad := range []time.Duration{0, -time.Second} {
		require.ErrorIs(e.T, e.retain(saga, bad), outmill.ErrInvalidConfig)
	}
	bad := *saga
	bad.Correlation = ""
	require.ErrorIs(e.T, e.retain(&bad, time.Hour), outmill.ErrInvalidRecord)
	for _, limit := range []int{0, -1} {
		_, err := e.sagas().DeleteOldSagas(e.Ctx, limit)
		require.ErrorIs(e.T, err, outmill.ErrInvalidConfig)
	}
	ended, cancel := context.WithCancel(e.Ctx)
	cancel()
	require.ErrorIs(e.T, e.sagas().RetainSaga(ended, saga, time.Hour, roles.SagaOptions{}), context.Canceled)
	e.Elapse(2 * time.Hour)
	require.Zero(e.T, e.deletesOld(10))
}
