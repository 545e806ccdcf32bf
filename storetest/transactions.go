package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
	e.register(group)
	other := e.reopen()
	ctx, commit, _ := e.begin()
	r := rec(orders, "m1")
	require.NoError(e.t, e.store.Append(ctx, r))
	for _, store := range []outmill.Store{e.store, other} {
		require.Empty(e.t, listAll(e.ctx, e.t, store, outmill.ListQuery{}), "before the commit")
		_, err := store.Get(e.ctx, r.ID)
		require.ErrorIs(e.t, err, outmill.ErrNotFound, "before the commit")
	}
	commit()
	require.Equal(e.t, []string{"m1"}, names(listAll(e.ctx, e.t, other, outmill.ListQuery{})))
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func rolledBackIsGone(e *env) {
	e.register(group)
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	rollback()
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	require.Empty(e.t, e.claimAll())
}

func appendLeavesTheTransaction(e *env) {
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	commit()
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m2")))
	rollback()
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})))
}

func refusalLeavesTheTransaction(e *env) {
	ctx, commit, _ := e.begin()
	require.ErrorIs(e.t, e.store.Append(ctx, rec(orders, "never"), rec("", "bad")), outmill.ErrInvalidRecord)
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	commit()
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})))
}

func idsInTransaction(e *env) {
	ctx, commit, _ := e.begin()
	r := rec(orders, "m1")
	require.NoError(e.t, e.store.Append(ctx, r))
	require.False(e.t, r.ID.IsZero())
	commit()
	require.Equal(e.t, "m1", e.get(r).MessageID)
}

func manyAppendsOneTransaction(e *env) {
	e.register(group)
	ctx, commit, _ := e.begin()
	want := []string{"m1", "m2", "m3", "m4"}
	for _, name := range want {
		require.NoError(e.t, e.store.Append(ctx, rec(orders, name, withKey("k"))))
	}
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	commit()
	require.Equal(e.t, want, names(e.list(outmill.ListQuery{})))
	require.Equal(e.t, want, names(e.claimAll(byKey)))
}

func concurrentAppendsOneTransaction(e *env) {
	ctx, commit, _ := e.begin()
	var appends errgroup.Group
	var want []string
	for i := range 8 {
		name := fmt.Sprintf("m%d", i)
		want = append(want, name)
		appends.Go(func() error { return e.store.Append(ctx, rec(orders, name)) })
	}
	require.NoError(e.t, appends.Wait())
	commit()
	require.ElementsMatch(e.t, want, names(e.list(outmill.ListQuery{})))
}

func transactionReachesGroups(e *env) {
	e.register("one")
	e.register("two")
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	commit()
	require.Equal(e.t, []string{"m1"}, names(e.claimAll(ofGroup("one"))))
	require.Equal(e.t, []string{"m1"}, names(e.claimAll(ofGroup("two"))))
}

// foreign returns a context with a transaction that no real store knows.
func foreign(ctx context.Context) context.Context {
	return storekit.ContextWithTx(ctx, "another store", "its transaction")
}

func foreignTransaction(e *env) {
	require.ErrorIs(e.t, e.store.Append(foreign(e.ctx), rec(orders, "m1")), outmill.ErrForeignTx)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func ownBesideForeign(e *env) {
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(foreign(ctx), rec(orders, "m1")))
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	commit()
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})))
}

func endedTransaction(e *env) {
	ctx, commit, _ := e.begin()
	commit()
	require.Error(e.t, e.store.Append(ctx, rec(orders, "after the commit")))
	ctx, _, rollback := e.begin()
	rollback()
	require.Error(e.t, e.store.Append(ctx, rec(orders, "after the rollback")))
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func txOfNothing(e *env) {
	tx, err := e.store.TxOf(e.ctx)
	require.NoError(e.t, err)
	require.Nil(e.t, tx)
}

func txOfOwn(e *env) {
	ctx, _, rollback := e.begin()
	first, err := e.store.TxOf(ctx)
	require.NoError(e.t, err)
	require.NotNil(e.t, first)
	again, err := e.store.TxOf(foreign(context.WithoutCancel(ctx)))
	require.NoError(e.t, err)
	require.True(e.t, first == again, "two looks at one transaction differ")
	rollback()
	ctx, _, _ = e.begin()
	second, err := e.store.TxOf(ctx)
	require.NoError(e.t, err)
	require.False(e.t, first == second, "two transactions are equal")
}

func txOfForeign(e *env) {
	tx, err := e.store.TxOf(foreign(e.ctx))
	require.ErrorIs(e.t, err, outmill.ErrForeignTx)
	require.Nil(e.t, tx)
}

func failedAppendLeavesNothing(e *env) {
	e.register(group)
	first := rec(orders, "first")
	e.append(first)
	ctx, commit, _ := e.h.Begin(e.t, e.store)
	again := rec(orders, "again", withDedup("k"), func(r *outmill.Record) { r.ID = first.ID })
	require.Error(e.t, e.store.Append(ctx, rec(orders, "before"), again))
	// An engine that has ended the transaction says so.
	_ = commit()
	require.Equal(e.t, []string{"first"}, names(e.list(outmill.ListQuery{})))
	free := rec(orders, "free", withDedup("k"))
	e.append(free)
	require.False(e.t, free.Duplicate, "the dedup key of the Append that failed is still taken")
}

func openAppendStallsNothing(e *env) {
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	quick := *e
	quick.ctx = ctx
	e.register(group)
	tx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(tx, rec(orders, "open", withKey("k")), rec(orders, "open too")))
	quick.append(rec(orders, "beside", withKey("other")))
	quick.register("others")
	quick.ack(quick.claimOne(outmill.NewOwnerToken(), "beside"))
	quick.append(keyed("third", "m1", "m2")...)
	require.Equal(e.t, []string{"m1", "m2"}, names(quick.claimAll(ofGroup("others"), byKey)))
	commit()
	require.ElementsMatch(e.t, []string{"open", "open too", "m1", "m2"}, names(e.claimAll()))
}
