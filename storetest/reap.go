package storetest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func reapSentences() []sentence {
	return []sentence{
		{"OBX-049 OBX-050 OBX-051 ReapExpired makes records whose lease has ended pending again, and counts them", reapMakesPending},
		{"OBX-049 ReapExpired leaves leases alone that have not ended", reapLeavesStanding},
		{"OBX-052 ReapExpired leaves processed and dead records alone", reapLeavesSettled},
		{"ReapExpired does no more than its limit", reapLimit},
		{"ReapExpired reaps the records of every group", reapGroups},
		{"a reaped record is due at once and keeps its place in the order", reapKeepsOrder},
		{"ReapExpired with a limit below 1 is refused", refuseReap},
	}
}

func reapMakesPending(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"))
	found := e.ClaimAll()
	e.Elapse(leaseOf + time.Minute)
	require.Equal(e.T, 2, e.Reap(10))
	for _, r := range found {
		got := e.Get(r)
		requirePending(e, r, got)
		require.Equal(e.T, r.Attempts, got.Attempts)
		require.Equal(e.T, r.LastError, got.LastError)
		require.False(e.T, got.NextAttemptAt.After(e.Now()), "next attempt at %s", got.NextAttemptAt)
	}
	require.Zero(e.T, e.Reap(10))
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll()))
}

func reapLeavesStanding(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.From(orders))
	e.Elapse(leaseOf - time.Minute)
	e.Unchanged(r, func() { require.Zero(e.T, e.Reap(10)) })
}

func reapLeavesSettled(e *env) {
	e.Filled(suite.Rec(orders, "acked"), suite.Rec(orders, "dead"))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Elapse(leaseOf + time.Minute)
	e.Unchanged(found["dead"], func() { require.Zero(e.T, e.Reap(10)) })
	e.RequireProcessed(found["acked"])
}

func reapLimit(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(10)...)...)
	owner := outmill.NewOwnerToken()
	// A store may keep what was claimed before elsewhere than what is claimed for the first time.
	e.Abandon(0, e.ClaimN(owner, 10)[:5]...)
	e.ClaimN(owner, 5)
	e.Elapse(leaseOf + time.Minute)
	for _, want := range []int{4, 4, 2, 0} {
		require.Equal(e.T, want, e.Reap(4))
	}
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusPending}), 10)
}

func reapGroups(e *env) {
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec(orders, "m1"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("one"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two"))
	e.Elapse(leaseOf + time.Minute)
	require.Equal(e.T, 2, e.Reap(10))
}

func reapKeepsOrder(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.Elapse(leaseOf + time.Minute)
	require.Equal(e.T, 1, e.Reap(10))
	e.RequireNames([]string{"m1", "m2"}, e.ClaimAll(suite.ByKey))
}

func refuseReap(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	e.Unchanged(r, func() {
		for _, limit := range []int{0, -1} {
			_, err := e.Store.ReapExpired(e.Ctx, limit)
			e.RequireRefusal(err, "limit %d", limit)
		}
	})
}
