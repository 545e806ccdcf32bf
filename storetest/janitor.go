package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func janitorSentences() []sentence {
	return []sentence{
		{"DeleteProcessed deletes processed records older than the retention, and counts them", deleteProcessed},
		{"DeleteProcessed leaves everything else, however old", deleteProcessedLeaves},
		{"ExpireDue makes records dead whose expiry has passed, those that wait for a group too, and counts them", expireDue},
		{"ExpireDue makes records dead whose lease has ended", expireDueEndedLease},
		{"ExpireDue leaves held, processed and dead records alone", expireDueLeaves},
		{"DeleteDedupKeys deletes keys whose window has ended, and leaves the others", deleteDedupKeys},
		{"each call of the janitor does no more than its limit", janitorLimits},
		{"the janitor with a limit below 1 is refused", refuseJanitorLimits},
		{"Maintain ends, in each process of a fleet, and changes nothing that a reader sees", maintain},
	}
}

func maintain(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "dead", "leased", "pending", "delayed")...)
	owner := outmill.NewOwnerToken()
	found := e.ClaimNamed(owner)
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Release(found["pending"])
	e.Abandon(time.Hour, found["delayed"])
	before, err := e.Store.Stats(e.Ctx, 0)
	require.NoError(e.T, err)
	listed := e.List(outmill.ListQuery{})
	var fleet sync.WaitGroup
	for range 4 {
		fleet.Go(func() {
			for calls := 1; ; calls++ {
				more, err := e.Store.Maintain(e.Ctx)
				if err != nil || calls == 1000 {
					e.T.Errorf("Maintain, call %d: more is left: %v, %v", calls, more, err)
				}
				if !more || err != nil || calls == 1000 {
					return
				}
			}
		})
	}
	fleet.Wait()
	after, err := e.Store.Stats(e.Ctx, 0)
	require.NoError(e.T, err)
	require.Equal(e.T, before, after)
	require.Equal(e.T, listed, e.List(outmill.ListQuery{}))
	e.RequireNames([]string{"pending"}, e.ClaimAll())
	held, err := e.Store.Extend(e.Ctx, time.Hour, []outmill.Lease{found["leased"].Lease()})
	require.NoError(e.T, err)
	require.Len(e.T, held, 1)
}

func deleteProcessed(e *env) {
	e.Filled(suite.Rec(orders, "old"))
	e.Ack(e.ClaimAll()...)
	require.Zero(e.T, e.Did(e.Store.DeleteProcessed, 10))
	if e.Options.Retain == 0 {
		return
	}
	e.Elapse(e.Options.Retain - time.Minute)
	e.Append(suite.Rec(orders, "young"))
	e.Ack(e.ClaimAll()...)
	require.Zero(e.T, e.Did(e.Store.DeleteProcessed, 10))
	e.RequireNames([]string{"old", "young"}, e.List(outmill.ListQuery{Status: outmill.StatusProcessed}))
	e.Elapse(2 * time.Minute)
	require.Equal(e.T, 1, e.Did(e.Store.DeleteProcessed, 10))
	e.RequireNames([]string{"young"}, e.List(outmill.ListQuery{}))
}

func deleteProcessedLeaves(e *env) {
	e.Append(suite.Rec("nobody's", "waits"))
	e.Register(group, orders)
	e.Append(suite.Recs(orders, suite.Plain, "leased", "dead", "pending")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Fail(found["dead"])
	e.Release(found["pending"])
	e.Elapse(10 * suite.Retention)
	require.Zero(e.T, e.Did(e.Store.DeleteProcessed, 10))
	require.Len(e.T, e.List(outmill.ListQuery{}), 4)
}

func expireDue(e *env) {
	e.Register(group, orders)
	past := suite.Rec(orders, "past", withExpiry(time.Now().Add(-time.Hour)))
	soon := suite.Rec(orders, "soon", suite.WithTTL(time.Hour))
	later := suite.Rec(orders, "later", suite.WithTTL(3*time.Hour))
	never := suite.Rec(orders, "never")
	delayed := suite.Rec(orders, "delayed", suite.WithTTL(time.Hour), suite.WithDelay(2*time.Hour))
	waiting := suite.Rec("nobody's", "waiting", suite.WithTTL(time.Hour))
	e.Append(past, soon, later, never, delayed, waiting)
	require.Equal(e.T, 1, e.Did(e.Store.ExpireDue, 10))
	require.Zero(e.T, e.Did(e.Store.ExpireDue, 10))
	e.Elapse(61 * time.Minute)
	require.Equal(e.T, 3, e.Did(e.Store.ExpireDue, 10))
	e.RequireStatus(outmill.StatusDead, past, soon, delayed, waiting)
	e.RequireStatus(outmill.StatusPending, later, never)
	for _, r := range []*outmill.Record{past, soon, delayed, waiting} {
		require.Equal(e.T, "expired", e.Get(r).LastError)
	}
	require.ElementsMatch(e.T, []string{"later", "never"}, suite.Names(e.ClaimAll()))
}

func expireDueEndedLease(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(time.Hour)))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", leased(2*time.Hour))
	e.Elapse(61 * time.Minute)
	require.Zero(e.T, e.Did(e.Store.ExpireDue, 10), "somebody holds it")
	e.Elapse(time.Hour)
	require.Equal(e.T, 1, e.Did(e.Store.ExpireDue, 10))
	got := e.Get(r)
	require.Equal(e.T, outmill.StatusDead, got.Status)
	require.Equal(e.T, "expired", got.LastError)
	requireNoLease(e, got)
	e.Unchanged(r, func() { e.Ack(r) })
}

func expireDueLeaves(e *env) {
	e.Filled(suite.Recs(orders, suite.WithTTL(time.Hour), "acked", "leased", "dead")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	_, err := e.Store.Extend(e.Ctx, 10*time.Hour, suite.Leases([]*outmill.Record{found["leased"]}))
	require.NoError(e.T, err)
	e.Elapse(2 * time.Hour)
	e.Unchanged(found["leased"], func() {
		e.Unchanged(found["dead"], func() { require.Zero(e.T, e.Did(e.Store.ExpireDue, 10)) })
	})
	e.RequireProcessed(found["acked"])
}

func deleteDedupKeys(e *env) {
	e.Register(group)
	e.Append(suite.Rec(orders, "old", suite.WithDedup("old")))
	e.Elapse(suite.DedupWindow - time.Minute)
	e.Append(suite.Rec(orders, "young", suite.WithDedup("young")))
	require.Zero(e.T, e.Did(e.Store.DeleteDedupKeys, 10))
	e.Elapse(2 * time.Minute)
	require.Equal(e.T, 1, e.Did(e.Store.DeleteDedupKeys, 10))
	require.Zero(e.T, e.Did(e.Store.DeleteDedupKeys, 10))
	old, young := suite.Rec(orders, "old again", suite.WithDedup("old")), suite.Rec(orders, "young again", suite.WithDedup("young"))
	e.Append(old, young)
	require.False(e.T, old.Duplicate)
	require.True(e.T, young.Duplicate)
}

func janitorLimits(e *env) {
	const n = 10
	e.Register(group)
	for i := range n {
		e.Append(
			suite.Rec("processed", fmt.Sprintf("p%d", i), suite.WithDedup(fmt.Sprintf("k%d", i))),
			suite.Rec("expired", fmt.Sprintf("e%d", i), suite.WithTTL(time.Minute)))
	}
	e.Ack(e.ClaimAll(suite.From("processed"))...)
	e.Elapse(suite.Retention + suite.DedupWindow)
	calls := map[string]func(context.Context, int) (int, error){
		"ExpireDue":       e.Store.ExpireDue,
		"DeleteDedupKeys": e.Store.DeleteDedupKeys,
	}
	if e.Options.Retain > 0 {
		calls["DeleteProcessed"] = e.Store.DeleteProcessed
	}
	for name, call := range calls {
		for _, want := range []int{4, 4, 2, 0} {
			require.Equal(e.T, want, e.Did(call, 4), name)
		}
	}
	require.Len(e.T, e.List(outmill.ListQuery{}), n, "the expired records")
}

func refuseJanitorLimits(e *env) {
	for name, call := range map[string]func(context.Context, int) (int, error){
		"ExpireDue":       e.Store.ExpireDue,
		"DeleteDedupKeys": e.Store.DeleteDedupKeys,
		"DeleteProcessed": e.Store.DeleteProcessed,
	} {
		for _, limit := range []int{0, -1} {
			_, err := call(e.Ctx, limit)
			e.RequireRefusal(err, "%s with limit %d", name, limit)
		}
	}
}
