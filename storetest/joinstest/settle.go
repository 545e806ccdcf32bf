package joinstest

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func settleSentences() []sentence {
	var list []sentence
	for _, x := range messageOutcomes() {
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
		{"the round trips to append and settle steps do not depend on the number of their joins", manyJoinsTogether},
		{"OBX-034 OBX-047 a settlement that is cut short by its context counts with its record or not at all", settlementsCutShort},
		{"a step counts for every store of the database at once", countsElsewhere},
		{"a record that expires before any group reads it fails its step", expiresUnrouted},
		{"a record that is deleted before any group reads it fails its step", deletedUnrouted},
		{"a record has its joins, however it is settled", joinsToldAlways},
		{"a record that goes after it was processed leaves its step completed", goneAfterAck},
		{"a dead record that is deleted leaves its step failed, and counts once", deletedDead},
		{"ExpireDue with a limit counts what it did", expireSome},
		{"a parked key brings all its steps back", requeueParkedSteps},
		{"Skip of a parked step leaves it failed, and brings the steps behind it back", skipParkedStep},
		{"a step that fails and is requeued many times counts once", failsManyTimes},
		{"a requeue of records that are not dead changes no step", requeueOfOthers},
		{"a step that ends sets the join's time of update", stepsUpdate},
		{"messages that are not steps are settled together with steps", besideOthers},
	}...)
}

func noLeaseCountsNothing(e *env) {
	id := e.startJoin(1)
	e.members(id, "m1")
	owner := outmill.NewOwnerToken()
	old := e.ClaimOne(owner, "m1")
	e.Release(old)
	r := e.ClaimOne(owner, "m1")
	stranger := r.Lease()
	stranger.Owner = outmill.NewOwnerToken()
	unknown := r.Lease()
	unknown.ID = outmill.NewWorkItemID()
	bad := []outmill.Lease{old.Lease(), stranger, unknown}
	require.NoError(e.T, e.Store.Ack(e.Ctx, "", bad))
	require.NoError(e.T, e.Store.Fail(e.Ctx, suite.Failures(false, "", bad)))
	require.NoError(e.T, e.Store.Fail(e.Ctx, suite.Failures(true, "", bad)))
	e.requireCounts(id, 0, 0)
	require.NoError(e.T, e.Store.Ack(e.Ctx, "", append(bad, r.Lease())))
	e.requireCounts(id, 1, 0)
}

func settledTwiceCountsOnce(e *env) {
	id := e.startJoin(3)
	e.members(id, "acked", "dead", "open")
	found := e.ClaimNamed(outmill.NewOwnerToken())
	for range 2 {
		e.Ack(found["acked"], found["acked"])
		e.Fail(found["dead"], found["dead"])
		e.Ack(found["dead"])
		e.Fail(found["acked"])
	}
	e.requireCounts(id, 1, 1)
}

func failedTwiceTakenBack(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1")
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Fail(r, r)
	e.requireCounts(id, 0, 1)
	require.Equal(e.T, 1, e.Requeue(r, r))
	e.requireCounts(id, 0, 0)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func othersCountNothing(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1", "m2")
	owner := outmill.NewOwnerToken()
	e.Abandon(0, e.ClaimN(owner, 2)...)
	e.Release(e.ClaimN(owner, 2)...)
	e.Snooze(0, e.ClaimN(owner, 2)...)
	_, err := e.Store.Extend(e.Ctx, leaseOf, suite.Leases(e.ClaimN(owner, 2)))
	require.NoError(e.T, err)
	e.Elapse(leaseOf + time.Minute)
	require.Equal(e.T, 2, e.Reap(10))
	e.requireCounts(id, 0, 0)
	e.Ack(e.ClaimN(owner, 2)...)
	e.requireCounts(id, 2, 0)
}

func oneCallManyJoins(e *env) {
	const joins, each = 15, 6
	e.Register(group)
	all := make([]outmill.JoinID, joins)
	var records []*outmill.Record
	for i := range all {
		all[i] = e.startJoin(2 * each)
		for n := range each {
			records = append(records, suite.Rec(orders, fmt.Sprintf("m%d.%d", i, n), withJoins(all[i])))
		}
	}
	for n := range each {
		records = append(records, suite.Rec(orders, fmt.Sprintf("all.%d", n), withJoins(all...)))
	}
	e.Append(records...)
	found := e.ClaimN(outmill.NewOwnerToken(), len(records))
	half := len(found) / 2
	e.Ack(found[:half]...)
	e.Fail(found[half:]...)
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

// manyJoinsTogether has each step decide a join of its own, which a record waits for.
func manyJoinsTogether(e *env) {
	e.Register(group)
	var steps, waiters []*outmill.Record
	for _, name := range suite.Numbered(suite.Few + suite.Many) {
		id := e.startJoin(1)
		steps = append(steps, suite.Rec(orders, "step "+name, withJoins(id)))
		waiters = append(waiters, suite.Rec(waitings, "waiter "+name, suite.WithDelay(later), waitsFor(id)))
	}
	e.Append(waiters...)
	few, many := steps[:suite.Few], steps[suite.Few:]
	e.RequireBounded(func(e *suite.Env) { e.Append(few...) }, func(e *suite.Env) { e.Append(many...) })
	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, len(steps), suite.From(orders))
	e.RequireBounded(func(e *suite.Env) { e.Ack(found[:suite.Few]...) }, func(e *suite.Env) { e.Fail(found[suite.Few:]...) })
}

func oneCallManySteps(e *env) {
	n := suite.Large(2000)
	id := e.startJoin(2 * n)
	e.members(id, suite.Numbered(2*n)...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2*n)
	e.Ack(found[:n]...)
	e.requireCounts(id, n, 0)
	e.Fail(found[n:]...)
	e.requireCounts(id, n, n)
	require.Equal(e.T, n, e.Requeue(found[n:]...))
	e.requireCounts(id, n, 0)
	require.Equal(e.T, n, e.Delete(found[n:]...))
	e.requireCounts(id, n, n)
}

// settlementsCutShort cancels calls at random moments and repeats them until they succeed. A
// settlement that counted before must not count again.
func settlementsCutShort(e *env) {
	const n = 40
	id := e.startJoin(n)
	e.members(id, suite.Numbered(n)...)
	found := e.ClaimN(outmill.NewOwnerToken(), n)
	longest := time.Millisecond
	for i, r := range found {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.Ctx, longest*time.Duration(i)/n)
		one := suite.Leases([]*outmill.Record{r})
		var err error
		if i%2 == 0 {
			err = e.Store.Ack(ctx, "", one)
		} else {
			err = e.Store.Fail(ctx, suite.Failures(false, "poison", one))
		}
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
	}
	// The server may still work on a call whose caller has given up, between any two of these reads.
	require.Eventually(e.T, func() bool {
		failed := len(e.List(outmill.ListQuery{Status: outmill.StatusDead}))
		open := len(e.List(outmill.ListQuery{Status: outmill.StatusLeased}))
		join := e.getJoin(id)
		return join.CompletedSteps == n-open-failed && join.FailedSteps == failed
	}, suite.Soon(), 10*time.Millisecond)
	e.Ack(found...)
	failed := len(e.List(outmill.ListQuery{Status: outmill.StatusDead}))
	e.requireCounts(id, n-failed, failed)
}

func countsElsewhere(e *env) {
	id := e.startJoin(2)
	other := &env{e.On(e.Reopen())}
	other.requireCounts(id, 0, 0)
	r := other.members(id, "m1", "m2")
	e.completeSteps(r[0])
	other.requireCounts(id, 1, 0)
	other.failSteps(r[1])
	e.requireCounts(id, 1, 1)
	e.requireFinished(id, roles.JoinFailed)
	require.Equal(e.T, roles.JoinFailed, other.getJoin(id).Status)
	require.ErrorIs(e.T, other.Store.Append(e.Ctx, suite.Rec(orders, "late", withJoins(id))), roles.ErrJoinFinished)
}

func expiresUnrouted(e *env) {
	id := e.startJoin(2)
	r := suite.Rec(orders, "m1", withJoins(id), suite.WithTTL(time.Hour))
	e.Append(r)
	endExpired(e, r)
	e.requireCounts(id, 0, 1)
	e.Register(group)
	e.Requeue(r)
	e.requireCounts(id, 0, 0)
}

func deletedUnrouted(e *env) {
	id := e.startJoin(2)
	r := suite.Rec(orders, "m1", withJoins(id))
	e.Append(r)
	endDeleted(e, r)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, roles.StepFailed)
}

func goneAfterAck(e *env) {
	id := e.startJoin(3)
	records := e.members(id, "m1", "m2", "m3")
	e.completeSteps(records...)
	e.Delete(records[0])
	e.requireCounts(id, 3, 0)
	e.Elapse(suite.Retention + time.Minute)
	e.Did(e.Store.DeleteProcessed, 10)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	e.requireCounts(id, 3, 0)
	for _, r := range records {
		e.requireStep(id, r, roles.StepCompleted)
	}
}

func deletedDead(e *env) {
	id := e.startJoin(2)
	r := e.members(id, "m1", "m2")[0]
	e.failSteps(r)
	require.Equal(e.T, 1, e.Delete(r))
	require.Zero(e.T, e.Delete(r))
	require.Zero(e.T, e.Requeue(r))
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, roles.StepFailed)
}

func expireSome(e *env) {
	id := e.startJoin(5)
	e.Filled(suite.Recs(orders, func(r *outmill.Record) { r.Joins, r.TimeToLive = []outmill.JoinID{id}, time.Hour }, suite.Numbered(5)...)...)
	e.Elapse(61 * time.Minute)
	for _, want := range []int{2, 4, 5} {
		e.Did(e.Store.ExpireDue, 2)
		e.requireCounts(id, 0, want)
	}
}

func requeueParkedSteps(e *env) {
	id := e.startJoin(4)
	records := suite.Recs(orders, func(r *outmill.Record) { r.Joins, r.Key = []outmill.JoinID{id}, "k" }, "m1", "m2", "m3")
	e.Filled(records...)
	e.Park(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	e.requireCounts(id, 0, 3)
	met := suite.Rec(orders, "m4", suite.WithKey("k"), withJoins(id))
	e.Append(met)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.requireCounts(id, 0, 4)
	require.Equal(e.T, 4, e.Requeue(records[1]))
	e.requireCounts(id, 0, 0)
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAcked(4))
	e.requireCounts(id, 4, 0)
}

func skipParkedStep(e *env) {
	bench, ok := outmill.As[roles.Repairs](e.Store)
	if !ok {
		e.T.Skip("the store is no roles.Repairs")
	}
	id := e.startJoin(3)
	records := suite.Recs(orders, func(r *outmill.Record) { r.Joins, r.Key = []outmill.JoinID{id}, "k" }, "m1", "m2", "m3")
	e.Filled(records...)
	e.Park(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	e.requireCounts(id, 0, 3)
	skipped, err := bench.Skip(e.Ctx, records[0].ID)
	require.NoError(e.T, err)
	require.Equal(e.T, roles.Skipped{Released: 2, Done: true}, skipped)
	e.requireCounts(id, 0, 1)
	e.RequireNames([]string{"m2", "m3"}, e.ClaimAcked(2))
	e.requireCounts(id, 2, 1)
}

func failsManyTimes(e *env) {
	id := e.startJoin(2)
	r := e.members(id, "m1")[0]
	for range 3 {
		e.failSteps(r)
		e.requireCounts(id, 0, 1)
		require.Equal(e.T, 1, e.Requeue(r))
		require.Zero(e.T, e.Requeue(r))
		e.requireCounts(id, 0, 0)
	}
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func requeueOfOthers(e *env) {
	id := e.startJoin(4)
	e.members(id, "acked", "leased", "pending")
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Release(found["pending"])
	require.Zero(e.T, e.Requeue(found["acked"], found["leased"], found["pending"]))
	e.requireCounts(id, 1, 0)
}

func stepsUpdate(e *env) {
	id := e.startJoin(2)
	records := e.members(id, "m1", "m2")
	for i, settle := range []func(...*outmill.Record){e.completeSteps, e.failSteps} {
		e.Elapse(time.Hour)
		settle(records[i])
		got := e.getJoin(id)
		e.RequireAbout(e.Now(), got.UpdatedAt, "updated at")
		e.RequireAbout(e.Now().Add(-time.Duration(i+1)*time.Hour), got.CreatedAt, "created at")
	}
}

func besideOthers(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1", "m2")
	e.Append(suite.Recs(orders, suite.Plain, "none1", "none2")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["none1"], found["m1"])
	e.Fail(found["m2"], found["none2"])
	e.requireCounts(id, 1, 1)
	e.RequireProcessed(found["none1"])
	e.RequireStatus(outmill.StatusDead, found["none2"], found["m2"])
}
