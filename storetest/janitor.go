package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// did calls a janitor's method and returns how much it did.
func (e *env) did(method func(context.Context, int) (int, error), limit int) int {
	e.t.Helper()
	n, err := method(e.ctx, limit)
	require.NoError(e.t, err)
	return n
}

func maintain(e *env) {
	e.filled(recs(orders, plain, "acked", "dead", "leased", "pending", "delayed")...)
	owner := outmill.NewOwnerToken()
	found := e.claimNamed(owner)
	e.ack(found["acked"])
	e.fail(found["dead"])
	e.release(found["pending"])
	e.abandon(time.Hour, found["delayed"])
	before, err := e.store.Stats(e.ctx, 0)
	require.NoError(e.t, err)
	listed := e.list(outmill.ListQuery{})
	var fleet sync.WaitGroup
	for range 4 {
		fleet.Go(func() {
			for calls := 1; ; calls++ {
				more, err := e.store.Maintain(e.ctx)
				if err != nil || calls == 1000 {
					e.t.Errorf("Maintain, call %d: more is left: %v, %v", calls, more, err)
				}
				if !more || err != nil || calls == 1000 {
					return
				}
			}
		})
	}
	fleet.Wait()
	after, err := e.store.Stats(e.ctx, 0)
	require.NoError(e.t, err)
	require.Equal(e.t, before, after)
	require.Equal(e.t, listed, e.list(outmill.ListQuery{}))
	e.requireNames([]string{"pending"}, e.claimAll())
	held, err := e.store.Extend(e.ctx, time.Hour, []outmill.Lease{found["leased"].Lease()})
	require.NoError(e.t, err)
	require.Len(e.t, held, 1)
}

func deleteProcessed(e *env) {
	e.filled(rec(orders, "old"))
	e.ack(e.claimAll()...)
	require.Zero(e.t, e.did(e.store.DeleteProcessed, 10))
	if e.options.Retain == 0 {
		return
	}
	e.elapse(e.options.Retain - time.Minute)
	e.append(rec(orders, "young"))
	e.ack(e.claimAll()...)
	require.Zero(e.t, e.did(e.store.DeleteProcessed, 10))
	e.requireNames([]string{"old", "young"}, e.list(outmill.ListQuery{Status: outmill.StatusProcessed}))
	e.elapse(2 * time.Minute)
	require.Equal(e.t, 1, e.did(e.store.DeleteProcessed, 10))
	e.requireNames([]string{"young"}, e.list(outmill.ListQuery{}))
}

func deleteProcessedLeaves(e *env) {
	e.append(rec("nobody's", "waits"))
	e.register(group, orders)
	e.append(recs(orders, plain, "leased", "dead", "pending")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.fail(found["dead"])
	e.release(found["pending"])
	e.elapse(10 * retention)
	require.Zero(e.t, e.did(e.store.DeleteProcessed, 10))
	require.Len(e.t, e.list(outmill.ListQuery{}), 4)
}

func expireDue(e *env) {
	e.register(group, orders)
	past := rec(orders, "past", withExpiry(time.Now().Add(-time.Hour)))
	soon := rec(orders, "soon", withTTL(time.Hour))
	later := rec(orders, "later", withTTL(3*time.Hour))
	never := rec(orders, "never")
	delayed := rec(orders, "delayed", withTTL(time.Hour), withDelay(2*time.Hour))
	waiting := rec("nobody's", "waiting", withTTL(time.Hour))
	e.append(past, soon, later, never, delayed, waiting)
	require.Equal(e.t, 1, e.did(e.store.ExpireDue, 10))
	require.Zero(e.t, e.did(e.store.ExpireDue, 10))
	e.elapse(61 * time.Minute)
	require.Equal(e.t, 3, e.did(e.store.ExpireDue, 10))
	e.requireStatus(outmill.StatusDead, past, soon, delayed, waiting)
	e.requireStatus(outmill.StatusPending, later, never)
	for _, r := range []*outmill.Record{past, soon, delayed, waiting} {
		require.Equal(e.t, "expired", e.get(r).LastError)
	}
	require.ElementsMatch(e.t, []string{"later", "never"}, names(e.claimAll()))
}

func expireDueEndedLease(e *env) {
	e.filled(rec(orders, "m1", withTTL(time.Hour)))
	r := e.claimOne(outmill.NewOwnerToken(), "m1", leased(2*time.Hour))
	e.elapse(61 * time.Minute)
	require.Zero(e.t, e.did(e.store.ExpireDue, 10), "somebody holds it")
	e.elapse(time.Hour)
	require.Equal(e.t, 1, e.did(e.store.ExpireDue, 10))
	got := e.get(r)
	require.Equal(e.t, outmill.StatusDead, got.Status)
	require.Equal(e.t, "expired", got.LastError)
	requireNoLease(e, got)
	e.unchanged(r, func() { e.ack(r) })
}

func expireDueLeaves(e *env) {
	e.filled(recs(orders, withTTL(time.Hour), "acked", "leased", "dead")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	_, err := e.store.Extend(e.ctx, 10*time.Hour, leases([]*outmill.Record{found["leased"]}))
	require.NoError(e.t, err)
	e.elapse(2 * time.Hour)
	e.unchanged(found["leased"], func() {
		e.unchanged(found["dead"], func() { require.Zero(e.t, e.did(e.store.ExpireDue, 10)) })
	})
	e.requireProcessed(found["acked"])
}

func deleteDedupKeys(e *env) {
	e.register(group)
	e.append(rec(orders, "old", withDedup("old")))
	e.elapse(dedupWindow - time.Minute)
	e.append(rec(orders, "young", withDedup("young")))
	require.Zero(e.t, e.did(e.store.DeleteDedupKeys, 10))
	e.elapse(2 * time.Minute)
	require.Equal(e.t, 1, e.did(e.store.DeleteDedupKeys, 10))
	require.Zero(e.t, e.did(e.store.DeleteDedupKeys, 10))
	old, young := rec(orders, "old again", withDedup("old")), rec(orders, "young again", withDedup("young"))
	e.append(old, young)
	require.False(e.t, old.Duplicate)
	require.True(e.t, young.Duplicate)
}

func janitorLimits(e *env) {
	const n = 10
	e.register(group)
	for i := range n {
		e.append(
			rec("processed", fmt.Sprintf("p%d", i), withDedup(fmt.Sprintf("k%d", i))),
			rec("expired", fmt.Sprintf("e%d", i), withTTL(time.Minute)))
	}
	e.ack(e.claimAll(from("processed"))...)
	e.elapse(retention + dedupWindow)
	calls := map[string]func(context.Context, int) (int, error){
		"ExpireDue":       e.store.ExpireDue,
		"DeleteDedupKeys": e.store.DeleteDedupKeys,
	}
	if e.options.Retain > 0 {
		calls["DeleteProcessed"] = e.store.DeleteProcessed
	}
	for name, call := range calls {
		for _, want := range []int{4, 4, 2, 0} {
			require.Equal(e.t, want, e.did(call, 4), name)
		}
	}
	require.Len(e.t, e.list(outmill.ListQuery{}), n, "the expired records")
}

func refuseJanitorLimits(e *env) {
	for name, call := range map[string]func(context.Context, int) (int, error){
		"ExpireDue":       e.store.ExpireDue,
		"DeleteDedupKeys": e.store.DeleteDedupKeys,
		"DeleteProcessed": e.store.DeleteProcessed,
	} {
		for _, limit := range []int{0, -1} {
			_, err := call(e.ctx, limit)
			e.requireRefusal(err, "%s with limit %d", name, limit)
		}
	}
}
