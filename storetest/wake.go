package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func wakeSentences() []sentence {
	return []sentence{
		{"a hint comes after an append", hintAfter(func(e *env, _ *outmill.Record) { e.Append(suite.Rec(orders, "m2")) })},
		{"a hint comes after the commit of a caller's transaction, where the engine can tell", hintAfterCommit},
		{"a hint comes after a release", hintAfter(func(e *env, r *outmill.Record) { e.Release(r) })},
		{"a hint after an append names its topics, or none", hintNamesTopics},
		{"every reader of a store gets the hint", hintForAll},
		{"hints come while claims and appends go on", hintsUnread},
		{"a reader gets no hint after its context has ended", quietAfterEnd},
	}
}

// hintWithin is the longest wait for a hint, even on a busy machine.
var hintWithin = time.Minute

func (e *env) waker() roles.Waker {
	e.T.Helper()
	waker, ok := outmill.As[roles.Waker](e.Store)
	if !ok {
		e.T.Skip("the store is no roles.Waker: readers poll")
	}
	return waker
}

// hints returns a channel with the hints of all topics.
func (e *env) hints(ctx context.Context) <-chan struct{} {
	e.T.Helper()
	hints := make(chan struct{}, 1)
	e.waker().Wake(ctx, func(string) {
		select {
		case hints <- struct{}{}:
		default:
		}
	})
	return hints
}

func (e *env) requireHint(hints <-chan struct{}) {
	e.T.Helper()
	select {
	case _, open := <-hints:
		require.True(e.T, open, "the channel was closed")
	case <-time.After(hintWithin):
		require.Fail(e.T, "no hint came")
	}
}

func hintAfter(cause func(*env, *outmill.Record)) func(*env) {
	return func(e *env) {
		hints := e.hints(e.Ctx)
		e.Filled(suite.Rec(orders, "m1"))
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		e.settleDown(hints)
		cause(e, r)
		e.requireHint(hints)
	}
}

func hintAfterCommit(e *env) {
	hints := e.hints(e.Ctx)
	e.Register(group)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	e.settleDown(hints)
	commit()
	e.requireHint(hints)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func hintNamesTopics(e *env) {
	hints := e.hints(e.Ctx)
	e.Register(group)
	e.settleDown(hints)
	named := make(chan string, 100)
	e.waker().Wake(e.Ctx, func(topic string) { named <- topic })
	const bills = "bills"
	e.Append(suite.Rec(orders, "m1"), suite.Rec(bills, "m2"))
	missing := map[string]bool{orders: true, bills: true}
	for len(missing) > 0 {
		select {
		case topic := <-named:
			require.Contains(e.T, []string{"", orders, bills}, topic, "the hint names a topic of which nothing was appended")
			if delete(missing, topic); topic == "" {
				return
			}
		case <-time.After(hintWithin):
			require.Fail(e.T, "no hint came", "for %v", missing)
		}
	}
}

func hintForAll(e *env) {
	e.Register(group)
	first, second := e.hints(e.Ctx), e.hints(e.Ctx)
	e.settleDown(first)
	e.settleDown(second)
	e.Append(suite.Rec(orders, "m1"))
	e.requireHint(first)
	e.requireHint(second)
}

func hintsUnread(e *env) {
	hints := e.hints(e.Ctx)
	e.Register(group)
	for range 20 {
		e.Append(suite.Rec(orders, "m1"))
	}
	e.requireHint(hints)
	require.Len(e.T, e.ClaimAll(), 20)
}

func quietAfterEnd(e *env) {
	ctx, cancel := context.WithCancel(e.Ctx)
	hints := e.hints(ctx)
	other := e.hints(e.Ctx)
	e.Register(group)
	e.Append(suite.Rec(orders, "m1"))
	e.requireHint(other)
	cancel()
	// On a busy machine a hint of m1 may still be under way. It comes before the hints of later appends.
	for i := range 3 {
		e.settleDown(hints)
		e.settleDown(other)
		e.Append(suite.Rec(orders, fmt.Sprint("later", i)))
		e.requireHint(other)
	}
	select {
	case _, open := <-hints:
		require.Fail(e.T, "a hint came after the context had ended", "channel open: %t", open)
	default:
	}
}

// settleDown reads the hints that arrive late.
func (e *env) settleDown(hints <-chan struct{}) {
	e.T.Helper()
	for range 100 {
		select {
		case _, open := <-hints:
			require.True(e.T, open, "the channel was closed: its reader would spin")
		case <-time.After(20 * time.Millisecond):
			return
		}
	}
	require.Fail(e.T, "hints keep coming while nothing happens")
}
