package txtest

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func transactSentences() []sentence {
	return []sentence{
		{"Transact commits what the function appended, when it returns nil", transactCommits},
		{"Transact rolls back and returns the function's error", transactRollsBack},
		{"a panic of the function rolls back and goes on", transactPanics},
		{"Transact does not commit after its context has ended", transactEnds},
		{"Transact takes part in the transaction of its context", transactJoins},
		{"Transact takes part in a transaction that the caller began", transactJoinsCallers},
		{"Transact begins a transaction where the context carries one of another store", transactBesideForeign},
		{"Transact refuses a nil function", transactNil},
		{"Transact runs the function again after an error that passes, in a new transaction", transactRepeats},
		{"Transact in a transaction leaves repeats to the one who began it", transactLeavesRepeats},
		{"Transact does not run the function again after a commit whose answer was lost", transactInDoubt},
	}
}

// transactor returns the store as a roles.Transactor.
func (e *env) transactor() roles.Transactor {
	e.T.Helper()
	found, ok := outmill.As[roles.Transactor](e.Store)
	require.True(e.T, ok, "the store is no roles.Transactor")
	return found
}

func transactCommits(e *env) {
	other := e.Reopen()
	require.NoError(e.T, e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		tx, err := e.Store.TxOf(ctx)
		require.NoError(e.T, err)
		require.NotNil(e.T, tx)
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m2")))
		require.Empty(e.T, suite.ListAll(e.Ctx, e.T, other, outmill.ListQuery{}), "before the commit")
		return nil
	}))
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.List(outmill.ListQuery{})))
}

func transactRollsBack(e *env) {
	refused := errors.New("refused")
	calls := 0
	err := e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		calls++
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "never")))
		return refused
	})
	require.ErrorIs(e.T, err, refused)
	require.Equal(e.T, 1, calls, "an error that does not pass is not worth another attempt")
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func transactPanics(e *env) {
	require.PanicsWithValue(e.T, "boom", func() {
		_ = e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
			require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "never")))
			panic("boom")
		})
	})
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	e.Append(suite.Rec(orders, "m1"))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})), "nothing of the transaction is in the way")
}

func transactEnds(e *env) {
	ctx, cancel := context.WithCancel(e.Ctx)
	err := e.transactor().Transact(ctx, func(ctx context.Context) error {
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "never")))
		cancel()
		return nil
	})
	require.ErrorIs(e.T, err, context.Canceled)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func transactJoins(e *env) {
	refused := errors.New("refused")
	require.NoError(e.T, e.transactor().Transact(e.Ctx, func(outer context.Context) error {
		require.NoError(e.T, e.transactor().Transact(outer, func(inner context.Context) error {
			require.Equal(e.T, e.txOf(outer), e.txOf(inner))
			return e.Store.Append(inner, suite.Rec(orders, "m1"))
		}))
		require.ErrorIs(e.T, e.transactor().Transact(outer, func(context.Context) error { return refused }), refused)
		return e.Store.Append(outer, suite.Rec(orders, "m2"))
	}))
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.List(outmill.ListQuery{})))

	require.ErrorIs(e.T, e.transactor().Transact(e.Ctx, func(outer context.Context) error {
		require.NoError(e.T, e.transactor().Transact(outer, func(inner context.Context) error {
			return e.Store.Append(inner, suite.Rec(orders, "never"))
		}))
		return refused
	}), refused)
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.List(outmill.ListQuery{})))
}

func transactJoinsCallers(e *env) {
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.transactor().Transact(ctx, func(inner context.Context) error {
		require.Equal(e.T, e.txOf(ctx), e.txOf(inner))
		return e.Store.Append(inner, suite.Rec(orders, "never"))
	}))
	rollback()
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func (e *env) txOf(ctx context.Context) any {
	e.T.Helper()
	tx, err := e.Store.TxOf(ctx)
	require.NoError(e.T, err)
	return tx
}

func transactBesideForeign(e *env) {
	require.NoError(e.T, e.transactor().Transact(suite.Foreign(e.Ctx), func(ctx context.Context) error {
		return e.Store.Append(ctx, suite.Rec(orders, "m1"))
	}))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func transactNil(e *env) {
	require.ErrorIs(e.T, e.transactor().Transact(e.Ctx, nil), outmill.ErrInvalidConfig)
}

// passing skips the sentence if the Harness has no temporary error.
func (e *env) passing() func(ctx context.Context) error {
	e.T.Helper()
	harness, ok := e.Harness.(storetest.Repeater)
	if !ok {
		e.T.Skip("skipped: a function that is run again; the Harness is no storetest.Repeater")
	}
	return func(ctx context.Context) error { return harness.Passing(ctx, e.Store) }
}

func transactRepeats(e *env) {
	passing := e.passing()
	calls := 0
	require.NoError(e.T, e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		require.NotNil(e.T, e.txOf(ctx))
		if err := e.Store.Append(ctx, suite.Rec(orders, "m1")); err != nil {
			return err
		}
		if calls++; calls == 1 {
			return passing(ctx)
		}
		return nil
	}))
	require.Equal(e.T, 2, calls)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})), "what the first attempt appended is gone")
}

func transactLeavesRepeats(e *env) {
	passing := e.passing()
	calls := 0
	ctx, _, rollback := e.Begin()
	require.Error(e.T, e.transactor().Transact(ctx, func(ctx context.Context) error {
		calls++
		return passing(ctx)
	}))
	rollback()
	require.Equal(e.T, 1, calls)

	var outer, inner int
	require.NoError(e.T, e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		outer++
		return e.transactor().Transact(ctx, func(ctx context.Context) error {
			if inner++; inner == 1 {
				return passing(ctx)
			}
			return e.Store.Append(ctx, suite.Rec(orders, "m1"))
		})
	}))
	require.Equal(e.T, []int{2, 2}, []int{outer, inner})
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func transactInDoubt(e *env) {
	harness, ok := e.Harness.(storetest.Doubtful)
	if !ok {
		e.T.Skip("skipped: a commit whose answer is lost; the Harness is no storetest.Doubtful")
	}
	e = e.on(harness.Doubtful())
	calls := 0
	err := e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		calls++
		return e.Store.Append(ctx, suite.Rec(orders, "m1"))
	})
	require.Equal(e.T, 1, calls, "the answer was %v", err)
	if err != nil {
		require.ErrorIs(e.T, err, storekit.ErrCommitInDoubt)
	}
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}
