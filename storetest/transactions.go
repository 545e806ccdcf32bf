package storetest

import (
	"context"
	"fmt"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
)

func transactionSentences() []sentence {
	return []sentence{
		{"OBX-003 what is appended in a transaction is there when it commits, and not before", committedIsThere},
		{"OBX-003 what is appended in a transaction is gone when it rolls back", rolledBackIsGone},
		{"OBX-003 Append neither commits nor rolls back a caller's transaction", appendLeavesTheTransaction},
		{"a refused record leaves a caller's transaction usable", refusalLeavesTheTransaction},
		{"an Append that fails in a caller's transaction leaves nothing there if the caller commits", failedAppendLeavesNothing},
		{"a transaction that has appended and is open stalls no append, claim or registration", openAppendStallsNothing},
		{"Append fills ids in a caller's transaction", idsInTransaction},
		{"many appends of one transaction commit together and in their order", manyAppendsOneTransaction},
		{"appends may be called concurrently in one transaction", concurrentAppendsOneTransaction},
		{"a record appended in a transaction reaches the groups registered for its topic", transactionReachesGroups},
		{"Append in a transaction of another store is ErrForeignTx and nothing is written", foreignTransaction},
		{"Append finds its own transaction beside those of other stores", ownBesideForeign},
		{"Append in a transaction that has ended is an error and nothing is written", endedTransaction},
		{"TxOf is nil where the context carries no transaction", txOfNothing},
		{"TxOf is equal for equal transactions and differs for others", txOfOwn},
		{"TxOf is ErrForeignTx where the context carries transactions of other stores only", txOfForeign},
	}
}

func committedIsThere(e *env) {
	e.Register(group)
	other := e.Reopen()
	ctx, commit, _ := e.Begin()
	r := suite.Rec(orders, "m1")
	require.NoError(e.T, e.Store.Append(ctx, r))
	for _, store := range []outmill.Store{e.Store, other} {
		require.Empty(e.T, suite.ListAll(e.Ctx, e.T, store, outmill.ListQuery{}), "before the commit")
		_, err := store.Get(e.Ctx, r.ID)
		require.ErrorIs(e.T, err, outmill.ErrNotFound, "before the commit")
	}
	commit()
	require.Equal(e.T, []string{"m1"}, suite.Names(suite.ListAll(e.Ctx, e.T, other, outmill.ListQuery{})))
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func rolledBackIsGone(e *env) {
	e.Register(group)
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	rollback()
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	require.Empty(e.T, e.ClaimAll())
}

func appendLeavesTheTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	commit()
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m2")))
	rollback()
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func refusalLeavesTheTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	require.ErrorIs(e.T, e.Store.Append(ctx, suite.Rec(orders, "never"), suite.Rec("", "bad")), outmill.ErrInvalidRecord)
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	commit()
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func idsInTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	r := suite.Rec(orders, "m1")
	require.NoError(e.T, e.Store.Append(ctx, r))
	require.False(e.T, r.ID.IsZero())
	commit()
	require.Equal(e.T, "m1", e.Get(r).MessageID)
}

func manyAppendsOneTransaction(e *env) {
	e.Register(group)
	ctx, commit, _ := e.Begin()
	want := []string{"m1", "m2", "m3", "m4"}
	for _, name := range want {
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, name, suite.WithKey("k"))))
	}
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	commit()
	require.Equal(e.T, want, suite.Names(e.List(outmill.ListQuery{})))
	require.Equal(e.T, want, suite.Names(e.ClaimAll(suite.ByKey)))
}

func concurrentAppendsOneTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	var appends errgroup.Group
	var want []string
	for i := range 8 {
		name := fmt.Sprintf("m%d", i)
		want = append(want, name)
		appends.Go(func() error { return e.Store.Append(ctx, suite.Rec(orders, name)) })
	}
	require.NoError(e.T, appends.Wait())
	commit()
	require.ElementsMatch(e.T, want, suite.Names(e.List(outmill.ListQuery{})))
}

func transactionReachesGroups(e *env) {
	e.Register("one")
	e.Register("two")
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	commit()
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("one"))))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("two"))))
}

func foreignTransaction(e *env) {
	require.ErrorIs(e.T, e.Store.Append(suite.Foreign(e.Ctx), suite.Rec(orders, "m1")), outmill.ErrForeignTx)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func ownBesideForeign(e *env) {
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(suite.Foreign(ctx), suite.Rec(orders, "m1")))
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	commit()
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func endedTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	commit()
	require.Error(e.T, e.Store.Append(ctx, suite.Rec(orders, "after the commit")))
	ctx, _, rollback := e.Begin()
	rollback()
	require.Error(e.T, e.Store.Append(ctx, suite.Rec(orders, "after the rollback")))
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func txOfNothing(e *env) {
	tx, err := e.Store.TxOf(e.Ctx)
	require.NoError(e.T, err)
	require.Nil(e.T, tx)
}

func txOfOwn(e *env) {
	ctx, _, rollback := e.Begin()
	first, err := e.Store.TxOf(ctx)
	require.NoError(e.T, err)
	require.NotNil(e.T, first)
	again, err := e.Store.TxOf(suite.Foreign(context.WithoutCancel(ctx)))
	require.NoError(e.T, err)
	require.True(e.T, first == again, "two looks at one transaction differ")
	rollback()
	ctx, _, _ = e.Begin()
	second, err := e.Store.TxOf(ctx)
	require.NoError(e.T, err)
	require.False(e.T, first == second, "two transactions are equal")
}

func txOfForeign(e *env) {
	tx, err := e.Store.TxOf(suite.Foreign(e.Ctx))
	require.ErrorIs(e.T, err, outmill.ErrForeignTx)
	require.Nil(e.T, tx)
}

func failedAppendLeavesNothing(e *env) {
	e.Register(group)
	first := suite.Rec(orders, "first")
	e.Append(first)
	ctx, commit, _ := e.Harness.Begin(e.Store)
	again := suite.Rec(orders, "again", suite.WithDedup("k"), func(r *outmill.Record) { r.ID = first.ID })
	require.Error(e.T, e.Store.Append(ctx, suite.Rec(orders, "before"), again))
	// An engine that has ended the transaction returns an error for the commit.
	_ = commit()
	require.Equal(e.T, []string{"first"}, suite.Names(e.List(outmill.ListQuery{})))
	free := suite.Rec(orders, "free", suite.WithDedup("k"))
	e.Append(free)
	require.False(e.T, free.Duplicate, "the dedup key of the Append that failed is still taken")
}

func openAppendStallsNothing(e *env) {
	ctx, cancel := context.WithTimeout(e.Ctx, suite.Soon())
	defer cancel()
	quick := &env{e.Under(ctx)}
	e.Register(group)
	tx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(tx, suite.Rec(orders, "open", suite.WithKey("k")), suite.Rec(orders, "open too")))
	quick.Append(suite.Rec(orders, "beside", suite.WithKey("other")))
	quick.Register("others")
	quick.Ack(quick.ClaimOne(outmill.NewOwnerToken(), "beside"))
	quick.Append(suite.Keyed("third", "m1", "m2")...)
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(quick.ClaimAll(suite.OfGroup("others"), suite.ByKey)))
	commit()
	require.ElementsMatch(e.T, []string{"open", "open too", "m1", "m2"}, suite.Names(e.ClaimAll()))
}
