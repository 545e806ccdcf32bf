package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinSettleSentences() []sentence {
	var list []sentence
	for _, x := range endings() {
		list = append(list, sentence{x.numbers + x.name + " settles the step once in each of its joins", x.settles})
		list = append(list, sentence{x.name + " of a step is not noted in joins that have ended", x.afterTheEnd})
		if x.dead {
			list = append(list,
				sentence{"a requeue takes the step back that failed by " + x.name, x.takenBack},
				sentence{"a requeue takes the step back that failed by " + x.name + " in joins that are pending only", x.noLongerTakenBack})
		}
	}
	return append(list, []sentence{
		{"Ack and Fail of a lease that does not stand count nothing", noLeaseCountsNothing},
		{"a record that is acked or failed twice, or twice in one call, counts once", settledTwiceCountsOnce},
		{"a record that is failed twice in one call is taken back by one requeue", failedTwiceTakenBack},
		{"Abandon, Release, Snooze, Extend and ReapExpired count nothing", othersCountNothing},
		{"one call of Ack or Fail counts the steps of many joins", oneCallManyJoins},
		{"one call of Ack or Fail counts thousands of steps", oneCallManySteps},
		{"OBX-034 OBX-047 a settlement that is cut short by its context counts with its record or not at all", settlementsCutShort},
		{"a step counts for every store of the database at once", countsElsewhere},
		{"a record that expires before any group reads it fails its step", expiresUnrouted},
		{"a record that is deleted before any group reads it fails its step", deletedUnrouted},
		{"a record tells of its joins whatever becomes of it", joinsToldAlways},
		{"a record that goes after it was processed leaves its step completed", goneAfterAck},
		{"a dead record that is deleted leaves its step failed, and counts once", deletedDead},
		{"ExpireDue with a limit counts what it did", expireSome},
		{"a parked key brings all its steps back", requeueParkedSteps},
		{"a step that fails and is requeued many times counts once", failsManyTimes},
		{"a requeue of what is not dead changes no step", requeueOfOthers},
		{"a step that ends sets the join's time of update", stepsUpdate},
		{"messages that are no steps are settled beside those that are", besideOthers},
	}...)
}

func noLeaseCountsNothing(e *env) {
	id := e.startJoin(1)
	e.members(id, "m1")
	owner := outmill.NewOwnerToken()
	old := e.claimOne(owner, "m1")
	e.release(old)
	r := e.claimOne(owner, "m1")
	stranger := r.Lease()
	stranger.Owner = outmill.NewOwnerToken()
	unknown := r.Lease()
	unknown.ID = outmill.NewWorkItemID()
	bad := []outmill.Lease{old.Lease(), stranger, unknown}
	require.NoError(e.t, e.store.Ack(e.ctx, "", bad))
	require.NoError(e.t, e.store.Fail(e.ctx, failures(false, "", bad)))
	require.NoError(e.t, e.store.Fail(e.ctx, failures(true, "", bad)))
	e.requireCounts(id, 0, 0)
	require.NoError(e.t, e.store.Ack(e.ctx, "", append(bad, r.Lease())))
	e.requireCounts(id, 1, 0)
}

func settledTwiceCountsOnce(e *env) {
	id := e.startJoin(3)
	e.members(id, "acked", "dead", "open")
	found := e.claimNamed(outmill.NewOwnerToken())
	for range 2 {
		e.ack(found["acked"], found["acked"])
		e.fail(found["dead"], found["dead"])
		e.ack(found["dead"])
		e.fail(found["acked"])
	}
	e.requireCounts(id, 1, 1)
}

func failedTwiceTakenBack(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1")
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.fail(r, r)
	e.requireCounts(id, 0, 1)
	require.Equal(e.t, 1, e.requeue(r, r))
	e.requireCounts(id, 0, 0)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func othersCountNothing(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1", "m2")
	owner := outmill.NewOwnerToken()
	e.abandon(0, e.claimN(owner, 2)...)
	e.release(e.claimN(owner, 2)...)
	e.snooze(0, e.claimN(owner, 2)...)
	_, err := e.store.Extend(e.ctx, leaseOf, leases(e.claimN(owner, 2)))
	require.NoError(e.t, err)
	e.elapse(leaseOf + time.Minute)
	require.Equal(e.t, 2, e.reap(10))
	e.requireCounts(id, 0, 0)
	e.ack(e.claimN(owner, 2)...)
	e.requireCounts(id, 2, 0)
}

func oneCallManyJoins(e *env) {
	const joins, each = 15, 6
	e.register(group)
	all := make([]outmill.JoinID, joins)
	var records []*outmill.Record
	for i := range all {
		all[i] = e.startJoin(2 * each)
		for n := range each {
			records = append(records, rec(orders, fmt.Sprintf("m%d.%d", i, n), withJoins(all[i])))
		}
	}
	for n := range each {
		records = append(records, rec(orders, fmt.Sprintf("all.%d", n), withJoins(all...)))
	}
	e.append(records...)
	found := e.claimN(outmill.NewOwnerToken(), len(records))
	half := len(found) / 2
	e.ack(found[:half]...)
	e.fail(found[half:]...)
	acked := map[string]bool{}
	for _, r := range found[:half] {
		acked[r.MessageID] = true
	}
	for i, id := range all {
		completed := 0
		for n := range each {
			for _, name := range []string{fmt.Sprintf("m%d.%d", i, n), fmt.Sprintf("all.%d", n)} {
				if acked[name] {
					completed++
				}
			}
		}
		e.requireCounts(id, completed, 2*each-completed)
	}
}

func oneCallManySteps(e *env) {
	n := large(2000)
	id := e.startJoin(2 * n)
	e.members(id, numbered(2*n)...)
	found := e.claimN(outmill.NewOwnerToken(), 2*n)
	e.ack(found[:n]...)
	e.requireCounts(id, n, 0)
	e.fail(found[n:]...)
	e.requireCounts(id, n, n)
	require.Equal(e.t, n, e.requeue(found[n:]...))
	e.requireCounts(id, n, 0)
	require.Equal(e.t, n, e.delete(found[n:]...))
	e.requireCounts(id, n, n)
}

// settlementsCutShort ends calls at any moment, and lets them go through in the
// end: what counted before must not count again.
func settlementsCutShort(e *env) {
	const n = 40
	id := e.startJoin(n)
	e.members(id, numbered(n)...)
	found := e.claimN(outmill.NewOwnerToken(), n)
	longest := time.Millisecond
	for i, r := range found {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.ctx, longest*time.Duration(i)/n)
		one := leases([]*outmill.Record{r})
		var err error
		if i%2 == 0 {
			err = e.store.Ack(ctx, "", one)
		} else {
			err = e.store.Fail(ctx, failures(false, "poison", one))
		}
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
	}
	e.ack(found...)
	failed := len(e.list(outmill.ListQuery{Status: outmill.StatusDead}))
	e.requireCounts(id, n-failed, failed)
}

func countsElsewhere(e *env) {
	id := e.startJoin(2)
	other := e.on(e.reopen())
	other.requireCounts(id, 0, 0)
	r := other.members(id, "m1", "m2")
	e.completeSteps(r[0])
	other.requireCounts(id, 1, 0)
	other.failSteps(r[1])
	e.requireCounts(id, 1, 1)
	e.requireFinished(id, storekit.JoinFailed)
	require.Equal(e.t, storekit.JoinFailed, other.getJoin(id).Status)
	require.ErrorIs(e.t, other.store.Append(e.ctx, rec(orders, "late", withJoins(id))), storekit.ErrJoinFinished)
}

func expiresUnrouted(e *env) {
	id := e.startJoin(2)
	r := rec(orders, "m1", withJoins(id), withTTL(time.Hour))
	e.append(r)
	endExpired(e, r)
	e.requireCounts(id, 0, 1)
	e.register(group)
	e.requeue(r)
	e.requireCounts(id, 0, 0)
}

func deletedUnrouted(e *env) {
	id := e.startJoin(2)
	r := rec(orders, "m1", withJoins(id))
	e.append(r)
	endDeleted(e, r)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, storekit.StepFailed)
}

func goneAfterAck(e *env) {
	id := e.startJoin(3)
	records := e.members(id, "m1", "m2", "m3")
	e.completeSteps(records...)
	e.delete(records[0])
	e.requireCounts(id, 3, 0)
	e.elapse(retention + time.Minute)
	e.did(e.store.DeleteProcessed, 10)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	e.requireCounts(id, 3, 0)
	for _, r := range records {
		e.requireStep(id, r, storekit.StepCompleted)
	}
}

func deletedDead(e *env) {
	id := e.startJoin(2)
	r := e.members(id, "m1", "m2")[0]
	e.failSteps(r)
	require.Equal(e.t, 1, e.delete(r))
	require.Zero(e.t, e.delete(r))
	require.Zero(e.t, e.requeue(r))
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, storekit.StepFailed)
}

func expireSome(e *env) {
	id := e.startJoin(5)
	e.filled(recs(orders, func(r *outmill.Record) { r.Joins, r.TimeToLive = []outmill.JoinID{id}, time.Hour }, numbered(5)...)...)
	e.elapse(61 * time.Minute)
	for _, want := range []int{2, 4, 5} {
		e.did(e.store.ExpireDue, 2)
		e.requireCounts(id, 0, want)
	}
}

func requeueParkedSteps(e *env) {
	id := e.startJoin(4)
	records := recs(orders, func(r *outmill.Record) { r.Joins, r.Key = []outmill.JoinID{id}, "k" }, "m1", "m2", "m3")
	e.filled(records...)
	e.park(e.claimOne(outmill.NewOwnerToken(), "m1", parkOrder))
	e.requireCounts(id, 0, 3)
	met := rec(orders, "m4", withKey("k"), withJoins(id))
	e.append(met)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireCounts(id, 0, 4)
	require.Equal(e.t, 4, e.requeue(records[1]))
	e.requireCounts(id, 0, 0)
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAcked(4))
	e.requireCounts(id, 4, 0)
}

func failsManyTimes(e *env) {
	id := e.startJoin(2)
	r := e.members(id, "m1")[0]
	for range 3 {
		e.failSteps(r)
		e.requireCounts(id, 0, 1)
		require.Equal(e.t, 1, e.requeue(r))
		require.Zero(e.t, e.requeue(r))
		e.requireCounts(id, 0, 0)
	}
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func requeueOfOthers(e *env) {
	id := e.startJoin(4)
	e.members(id, "acked", "leased", "pending")
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.release(found["pending"])
	require.Zero(e.t, e.requeue(found["acked"], found["leased"], found["pending"]))
	e.requireCounts(id, 1, 0)
}

func stepsUpdate(e *env) {
	id := e.startJoin(2)
	records := e.members(id, "m1", "m2")
	for i, settle := range []func(...*outmill.Record){e.completeSteps, e.failSteps} {
		e.elapse(time.Hour)
		settle(records[i])
		got := e.getJoin(id)
		e.requireAbout(e.now(), got.UpdatedAt, "updated at")
		e.requireAbout(e.now().Add(-time.Duration(i+1)*time.Hour), got.CreatedAt, "created at")
	}
}

func besideOthers(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1", "m2")
	e.append(recs(orders, plain, "none1", "none2")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["none1"], found["m1"])
	e.fail(found["m2"], found["none2"])
	e.requireCounts(id, 1, 1)
	e.requireProcessed(found["none1"])
	e.requireStatus(outmill.StatusDead, found["none2"], found["m2"])
}
