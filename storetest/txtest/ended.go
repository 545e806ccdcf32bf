package txtest

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// endedSentences are about transactions that have ended without the program: see
// storetest.TxEnder.
func endedSentences() []sentence {
	return []sentence{
		{"Append in a transaction that has ended is ErrInvalidTx, and nothing is written", endedAppend},
		{"PutNote and HasNote in a transaction that has ended are ErrInvalidTx, and nothing is noted", endedNote},
		{"calls about sagas in a transaction that has ended are ErrInvalidTx, and no saga changes", endedSaga},
		{"Transact in a transaction that has ended is ErrInvalidTx, and nothing is written", endedJoined},
		{"Transact fails if its transaction has ended, or runs the function again", endedTransact},
		{"Transact fails if its transaction has ended, also after the last call in it", endedAfterCalls},
		{"Transact fails if its transaction has ended before the call that also commits", endedLast},
	}
}

// ways are the ways in which the engine ends a transaction.
func (e *env) ways() []storetest.TxEnd {
	e.T.Helper()
	harness, ok := e.Harness.(storetest.TxEnder)
	require.True(e.T, ok, "the Harness is no storetest.TxEnder: if the engine cannot end a transaction, say why in Unsupported")
	ways := harness.EndTx(e.Store)
	require.NotEmpty(e.T, ways, "EndTx returned no way")
	return ways
}

// endedTx calls check with transactions that have ended in each way, at once, and after a write
// of the store's. The test must not find what check has written.
func (e *env) endedTx(check func(ctx context.Context, why string)) {
	e.T.Helper()
	for _, way := range e.ways() {
		for _, writes := range []bool{false, true} {
			why := way.Name
			ctx, _, rollback := e.Harness.Begin(e.Store)
			if writes {
				why += ", after an append"
				require.NoError(e.T, e.Store.Append(ctx, suite.Rec("before", "before")), why)
			}
			way.End(ctx)
			check(ctx, why)
			// It may be an error, because there is nothing to roll back.
			_ = rollback()
		}
	}
}

func (e *env) requireNothing(why string) {
	e.T.Helper()
	require.Empty(e.T, e.List(outmill.ListQuery{Topic: orders}), why)
}

func endedAppend(e *env) {
	e.Register(group)
	e.endedTx(func(ctx context.Context, why string) {
		for range 2 {
			require.ErrorIs(e.T, e.Store.Append(ctx, suite.Rec(orders, "never")), outmill.ErrInvalidTx, why)
		}
		require.ErrorIs(e.T, e.Store.Append(ctx, suite.Rec(orders, "never", suite.WithDedup("k"))), outmill.ErrInvalidTx, why)
		many := make([]*outmill.Record, 60)
		for i := range many {
			many[i] = suite.Rec(orders, "never", suite.WithKey("k"))
		}
		require.ErrorIs(e.T, e.Store.Append(ctx, many...), outmill.ErrInvalidTx, why)
	})
	e.requireNothing("after all of them")
	r := suite.Rec(orders, "m1", suite.WithDedup("k"))
	e.Append(r)
	require.False(e.T, r.Duplicate, "the dedup key of an append that was refused is taken")
}

func endedNote(e *env) {
	e.endedTx(func(ctx context.Context, why string) {
		_, err := e.notes().PutNote(ctx, noteOf("m1"), soon)
		require.ErrorIs(e.T, err, outmill.ErrInvalidTx, why)
		_, err = e.notes().HasNote(ctx, "billing", "m1")
		require.ErrorIs(e.T, err, outmill.ErrInvalidTx, why)
	})
	require.False(e.T, e.has(e.Ctx, "billing", "m1"))
}

func endedSaga(e *env) {
	sagas := e.sagas()
	saga := &roles.Saga{Type: sagaKind, Correlation: "kept"}
	require.NoError(e.T, sagas.InsertSaga(e.Ctx, saga, &sagaState{Customer: "Ada"}, roles.SagaOptions{}))
	e.endedTx(func(ctx context.Context, why string) {
		changed, never := *saga, &roles.Saga{Type: sagaKind, Correlation: "never"}
		for name, err := range map[string]error{
			"InsertSaga": sagas.InsertSaga(ctx, never, &sagaState{}, roles.SagaOptions{}),
			"UpdateSaga": sagas.UpdateSaga(ctx, &changed, &sagaState{Customer: "never"}, roles.SagaOptions{}),
			"DeleteSaga": sagas.DeleteSaga(ctx, &changed, roles.SagaOptions{}),
			"FindSaga":   second(sagas.FindSaga(ctx, sagaKind, "kept", &sagaState{}, roles.SagaOptions{})),
		} {
			require.ErrorIs(e.T, err, outmill.ErrInvalidTx, "%s: %s", name, why)
		}
	})
	var state sagaState
	found, err := sagas.FindSaga(e.Ctx, sagaKind, "kept", &state, roles.SagaOptions{})
	require.NoError(e.T, err)
	require.Equal(e.T, saga.Version, found.Version)
	require.Equal(e.T, "Ada", state.Customer)
	_, err = sagas.FindSaga(e.Ctx, sagaKind, "never", &state, roles.SagaOptions{})
	require.ErrorIs(e.T, err, roles.ErrSagaNotFound)
}

func second[T any](_ T, err error) error { return err }

func endedJoin(e *env) {
	join := &roles.Join{ExpectedSteps: 1}
	require.NoError(e.T, e.joins().StartJoin(e.Ctx, join), "StartJoin")
	e.endedTx(func(ctx context.Context, why string) {
		never := &roles.Join{ExpectedSteps: 1}
		require.ErrorIs(e.T, e.joins().StartJoin(ctx, never), outmill.ErrInvalidTx, why)
		_, err := e.joins().GetJoin(e.Ctx, never.ID)
		require.Error(e.T, err, why)
		step := suite.Rec(orders, "never", func(r *outmill.Record) { r.Joins = []outmill.JoinID{join.ID} })
		require.ErrorIs(e.T, e.Store.Append(ctx, step), outmill.ErrInvalidTx, why)
	})
	e.requireNothing("after all of them")
	e.requireCounts(join.ID, 0, 0)
}

func endedJoined(e *env) {
	e.endedTx(func(ctx context.Context, why string) {
		require.ErrorIs(e.T, e.transactor().Transact(ctx, func(ctx context.Context) error {
			return e.Store.Append(ctx, suite.Rec(orders, "never"))
		}), outmill.ErrInvalidTx, why)
	})
	e.requireNothing("after all of them")
}

// transactEnded runs transactions that end in each way, at once or after an append, and then call
// rest. If the store runs the function again, the transaction stays open.
func (e *env) transactEnded(rest func(ctx context.Context) error) {
	e.T.Helper()
	for _, way := range e.ways() {
		for _, writes := range []bool{false, true} {
			runs := 0
			err := e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
				runs++
				if writes {
					if err := e.Store.Append(ctx, suite.Rec(orders, "never")); err != nil {
						return err
					}
				}
				if runs == 1 {
					way.End(ctx)
				}
				return rest(ctx)
			})
			if runs == 1 {
				require.Error(e.T, err, "%s, after a write: %t", way.Name, writes)
			} else {
				require.NoError(e.T, err, "%s, after a write: %t", way.Name, writes)
			}
			e.settleEnded(way, runs > 1)
		}
	}
}

// settleEnded checks what a transaction has left, and takes it away.
func (e *env) settleEnded(way storetest.TxEnd, ranAgain bool) {
	e.T.Helper()
	found := e.List(outmill.ListQuery{Topic: orders})
	if !ranAgain && !way.Commits {
		require.Empty(e.T, found, way.Name)
	}
	if len(found) > 0 {
		e.Delete(found...)
	}
}

func endedTransact(e *env) {
	e.transactEnded(func(ctx context.Context) error { return e.Store.Append(ctx, suite.Rec(orders, "never")) })
}

func endedAfterCalls(e *env) {
	e.transactEnded(func(context.Context) error { return nil })
}

// last is storekit.Last outside of a message's handler.
func (e *env) last(ctx context.Context) context.Context {
	e.T.Helper()
	ctx, err := storekit.Last(ctx)
	require.NoError(e.T, err)
	return ctx
}

func endedLast(e *env) {
	for i, way := range e.ways() {
		never := &roles.Saga{Type: sagaKind, Correlation: fmt.Sprint("never", i)}
		runs := 0
		err := e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
			if runs++; runs > 1 {
				return context.Canceled // It was run again, which is as good as an error.
			}
			if err := e.Store.Append(ctx, suite.Rec(orders, "never")); err != nil {
				return err
			}
			way.End(ctx)
			return e.sagas().InsertSaga(e.last(ctx), never, &sagaState{}, roles.SagaOptions{})
		})
		require.Error(e.T, err, way.Name)
		_, err = e.sagas().FindSaga(e.Ctx, sagaKind, never.Correlation, &sagaState{}, roles.SagaOptions{})
		require.ErrorIs(e.T, err, roles.ErrSagaNotFound, way.Name)
		e.settleEnded(way, false)
	}
}
