package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func wakeSentences() []sentence {
	return []sentence{
		{"a hint comes after an append", hintAfter(func(e *env, _ *outmill.Record) { e.append(rec(orders, "m2")) })},
		{"a hint comes after the commit of a caller's transaction, where the engine can tell", hintAfterCommit},
		{"a hint comes after a release", hintAfter(func(e *env, r *outmill.Record) { e.release(r) })},
		{"every channel of a store gets the hint", hintForAll},
		{"nobody has to read the hints", hintsUnread},
		{"a channel is quiet after its context has ended", quietAfterEnd},
	}
}

const hintWithin = 10 * time.Second

func (e *env) waker() outmill.Waker {
	e.t.Helper()
	waker, ok := e.store.(outmill.Waker)
	if !ok {
		e.t.Skip("the store is no outmill.Waker: readers poll")
	}
	return waker
}

func (e *env) requireHint(hints <-chan struct{}) {
	e.t.Helper()
	select {
	case _, open := <-hints:
		require.True(e.t, open, "the channel was closed")
	case <-time.After(hintWithin):
		require.Fail(e.t, "no hint came")
	}
}

func hintAfter(cause func(*env, *outmill.Record)) func(*env) {
	return func(e *env) {
		hints := e.waker().Wake(e.ctx)
		e.filled(rec(orders, "m1"))
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		e.settleDown(hints)
		cause(e, r)
		e.requireHint(hints)
	}
}

func hintAfterCommit(e *env) {
	hints := e.waker().Wake(e.ctx)
	e.register(group)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	e.settleDown(hints)
	commit()
	e.requireHint(hints)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func hintForAll(e *env) {
	waker := e.waker()
	e.register(group)
	first, second := waker.Wake(e.ctx), waker.Wake(e.ctx)
	e.settleDown(first)
	e.settleDown(second)
	e.append(rec(orders, "m1"))
	e.requireHint(first)
	e.requireHint(second)
}

func hintsUnread(e *env) {
	hints := e.waker().Wake(e.ctx)
	e.register(group)
	for range 20 {
		e.append(rec(orders, "m1"))
	}
	e.requireHint(hints)
	require.Len(e.t, e.claimAll(), 20)
}

func quietAfterEnd(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	hints := e.waker().Wake(ctx)
	other := e.waker().Wake(e.ctx)
	e.register(group)
	e.append(rec(orders, "m1"))
	e.requireHint(other)
	cancel()
	e.settleDown(hints)
	e.settleDown(other)
	e.append(rec(orders, "m2"))
	e.requireHint(other)
	select {
	case _, open := <-hints:
		require.Fail(e.t, "a hint came after the context had ended", "channel open: %t", open)
	default:
	}
}

// settleDown reads the hints that are under way.
func (e *env) settleDown(hints <-chan struct{}) {
	e.t.Helper()
	for range 100 {
		select {
		case _, open := <-hints:
			require.True(e.t, open, "the channel was closed: its reader would spin")
		case <-time.After(20 * time.Millisecond):
			return
		}
	}
	require.Fail(e.t, "hints keep coming while nothing happens")
}
