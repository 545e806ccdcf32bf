package storetest

import (
	"time"

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
	e.filled(rec(orders, "m1"), rec(orders, "m2"))
	found := e.claimAll()
	e.elapse(leaseOf + time.Minute)
	require.Equal(e.t, 2, e.reap(10))
	for _, r := range found {
		got := e.get(r)
		requirePending(e, r, got)
		require.Equal(e.t, r.Attempts, got.Attempts)
		require.Equal(e.t, r.LastError, got.LastError)
		require.False(e.t, got.NextAttemptAt.After(e.now()), "next attempt at %s", got.NextAttemptAt)
	}
	require.Zero(e.t, e.reap(10))
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll()))
}

func reapLeavesStanding(e *env) {
	e.filled(rec(orders, "m1"), rec("others", "m2"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1", from(orders))
	e.elapse(leaseOf - time.Minute)
	e.unchanged(r, func() { require.Zero(e.t, e.reap(10)) })
}

func reapLeavesSettled(e *env) {
	e.filled(rec(orders, "acked"), rec(orders, "dead"))
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	e.elapse(leaseOf + time.Minute)
	e.unchanged(found["dead"], func() { require.Zero(e.t, e.reap(10)) })
	e.requireProcessed(found["acked"])
}

func reapLimit(e *env) {
	e.filled(recs(orders, plain, numbered(10)...)...)
	e.claimN(outmill.NewOwnerToken(), 10)
	e.elapse(leaseOf + time.Minute)
	for _, want := range []int{4, 4, 2, 0} {
		require.Equal(e.t, want, e.reap(4))
	}
	require.Len(e.t, e.list(outmill.ListQuery{Status: outmill.StatusPending}), 10)
}

func reapGroups(e *env) {
	e.register("one")
	e.register("two")
	e.append(rec(orders, "m1"))
	e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("one"))
	e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two"))
	e.elapse(leaseOf + time.Minute)
	require.Equal(e.t, 2, e.reap(10))
}

func reapKeepsOrder(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.elapse(leaseOf + time.Minute)
	require.Equal(e.t, 1, e.reap(10))
	e.requireNames([]string{"m1", "m2"}, e.claimAll(byKey))
}

func refuseReap(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	e.unchanged(r, func() {
		for _, limit := range []int{0, -1} {
			_, err := e.store.ReapExpired(e.ctx, limit)
			e.requireRefusal(err, "limit %d", limit)
		}
	})
}
