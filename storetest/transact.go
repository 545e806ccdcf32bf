package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
	}
}

// transactor is the store as a storekit.Transactor.
func (e *env) transactor() storekit.Transactor {
	e.t.Helper()
	found, ok := outmill.As[storekit.Transactor](e.store)
	require.True(e.t, ok, "the store is no storekit.Transactor")
	return found
}

func transactCommits(e *env) {
	other := e.reopen()
	require.NoError(e.t, e.transactor().Transact(e.ctx, func(ctx context.Context) error {
		tx, err := e.store.TxOf(ctx)
		require.NoError(e.t, err)
		require.NotNil(e.t, tx)
		require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
		require.NoError(e.t, e.store.Append(ctx, rec(orders, "m2")))
		require.Empty(e.t, listAll(e.ctx, e.t, other, outmill.ListQuery{}), "before the commit")
		return nil
	}))
	require.Equal(e.t, []string{"m1", "m2"}, names(e.list(outmill.ListQuery{})))
}

func transactRollsBack(e *env) {
	refused := errors.New("refused")
	calls := 0
	err := e.transactor().Transact(e.ctx, func(ctx context.Context) error {
		calls++
		require.NoError(e.t, e.store.Append(ctx, rec(orders, "never")))
		return refused
	})
	require.ErrorIs(e.t, err, refused)
	require.Equal(e.t, 1, calls, "an error that does not pass is not worth another attempt")
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func transactPanics(e *env) {
	require.PanicsWithValue(e.t, "boom", func() {
		_ = e.transactor().Transact(e.ctx, func(ctx context.Context) error {
			require.NoError(e.t, e.store.Append(ctx, rec(orders, "never")))
			panic("boom")
		})
	})
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	e.append(rec(orders, "m1"))
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})), "nothing of the transaction is in the way")
}

func transactEnds(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	err := e.transactor().Transact(ctx, func(ctx context.Context) error {
		require.NoError(e.t, e.store.Append(ctx, rec(orders, "never")))
		cancel()
		return nil
	})
	require.ErrorIs(e.t, err, context.Canceled)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func transactJoins(e *env) {
	refused := errors.New("refused")
	require.NoError(e.t, e.transactor().Transact(e.ctx, func(outer context.Context) error {
		require.NoError(e.t, e.transactor().Transact(outer, func(inner context.Context) error {
			require.Equal(e.t, txOf(e, outer), txOf(e, inner))
			return e.store.Append(inner, rec(orders, "m1"))
		}))
		require.ErrorIs(e.t, e.transactor().Transact(outer, func(context.Context) error { return refused }), refused)
		return e.store.Append(outer, rec(orders, "m2"))
	}))
	require.Equal(e.t, []string{"m1", "m2"}, names(e.list(outmill.ListQuery{})))

	require.ErrorIs(e.t, e.transactor().Transact(e.ctx, func(outer context.Context) error {
		require.NoError(e.t, e.transactor().Transact(outer, func(inner context.Context) error {
			return e.store.Append(inner, rec(orders, "never"))
		}))
		return refused
	}), refused)
	require.Equal(e.t, []string{"m1", "m2"}, names(e.list(outmill.ListQuery{})))
}

func transactJoinsCallers(e *env) {
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.transactor().Transact(ctx, func(inner context.Context) error {
		require.Equal(e.t, txOf(e, ctx), txOf(e, inner))
		return e.store.Append(inner, rec(orders, "never"))
	}))
	rollback()
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func txOf(e *env, ctx context.Context) any {
	e.t.Helper()
	tx, err := e.store.TxOf(ctx)
	require.NoError(e.t, err)
	return tx
}

func transactBesideForeign(e *env) {
	require.NoError(e.t, e.transactor().Transact(foreign(e.ctx), func(ctx context.Context) error {
		return e.store.Append(ctx, rec(orders, "m1"))
	}))
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})))
}

func transactNil(e *env) {
	require.ErrorIs(e.t, e.transactor().Transact(e.ctx, nil), outmill.ErrInvalidConfig)
}

// RunTransactions checks the sentences about storekit.Transactor and storekit.TxAcker,
// as Run checks those of outmill.Store.
func RunTransactions(t *testing.T, h Harness) {
	runSections(t, h, txSections())
}

func txSections() []section {
	return []section{
		{name: "transact", sentences: transactSentences(), anyMode: true},
		{name: "acks in transactions", sentences: txAckSentences(), bothModes: true},
	}
}

// soon bounds what must not wait for an open transaction.
const soon = 10 * time.Second
