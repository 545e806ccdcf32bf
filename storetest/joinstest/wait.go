package joinstest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func waitSentences() []sentence {
	var list []sentence
	for _, x := range messageOutcomes() {
		list = append(list, sentence{x.name + " of the last step makes a record due that waits for the join", x.wakes})
	}
	return append(list, []sentence{
		{"a report of the last step makes a record due that waits for the join", reportWakes},
		{"any and quorum joins make a record due with the step that decides them", policyWakes},
		{"a record that waits for a join is due at its own time too", ownTime},
		{"a record that was appended in a transaction waits for its join", waitsInTransaction},
		{"a record that was appended in a transaction that was open while its join was decided is due at its own time at the latest",
			waitsInOpenTransaction},
		{"a record that waits for one join does not mind another", waitsForItsOwn},
		{"all records that wait for a join become due, in every group", allWake},
		{"a record that waits for a group and a join is due when it has both", unroutedWakes},
		{"a record that was snoozed becomes due when its join is decided", snoozedWakes},
		{"a record that was abandoned becomes due when its join is decided", abandonedWakes},
		{"a record that is leased when its join is decided is due as soon as it is snoozed", snoozedTooLate},
		{"a record that is leased when its join is finished is due as soon as it is snoozed", snoozedAfterEnd},
		{"a record that is snoozed when its join was decided long before is due at once", snoozedAgain},
		{"a record sleeps for its delay while its join is not decided", sleepsWhilePending},
		{"a record sleeps again when a requeue undoes the outcome that decided its join", sleepsAfterRequeue},
		{"a record of a key that waits for a join keeps its place in the order", keyedWakes},
		{"a record that waits for a join keeps its place in the order of its topic", topicWakes},
		{"a record that waits for a join is not a step, however it is settled", waiterIsNoStep},
		{"an expired or dead record that waits for a join does not come back", deadWaiters},
		{"a leased record stays with its owner when its join is decided", leasedStays},
		{"a reader that dies between the last ack and the end of the join leaves it to another, and one of them ends it", diesBeforeTheEnd},
		{"of steps and snoozes at once none loses the end of the join", noEndIsLost},
	}...)
}

// requireAsleep checks that no record that waits for a join is due.
func (e *env) requireAsleep() {
	e.T.Helper()
	require.Empty(e.T, suite.Names(e.ClaimAll(suite.From(waitings))), "claimed before the join is decided")
}

// requireAwake claims the record that waits for a join.
func (e *env) requireAwake() *outmill.Record {
	e.T.Helper()
	return e.ClaimOne(outmill.NewOwnerToken(), "waiter", suite.From(waitings))
}

// awaited starts a join with this number of steps, appends a record that waits for it, and
// appends the steps.
func (e *env) awaited(n int) (outmill.JoinID, []*outmill.Record, *outmill.Record) {
	e.T.Helper()
	id := e.startJoin(n)
	steps := e.members(id, suite.Numbered(n)...)
	w := waiter(id)
	e.Append(w)
	return id, steps, w
}

func reportWakes(e *env) {
	id, steps, _ := e.awaited(2)
	e.reportFailed(id, steps[0])
	e.requireAsleep()
	e.reportCompleted(id, steps[1])
	e.requireAwake()
}

func policyWakes(e *env) {
	for _, c := range []struct {
		policy  func(*roles.Join)
		before  func(*env, *outmill.Record)
		decides func(*env, *outmill.Record)
	}{
		{anyStep, endFailed, endAcked},
		{anyStep, endFailed, endFailed},
		{quorumOf(2), endAcked, endAcked},
		{quorumOf(1), endFailed, endFailed},
		{quorumOf(2), endAcked, endFailed},
	} {
		id := e.startJoin(2, c.policy)
		steps := e.members(id, "m1", "m2")
		e.Append(waiter(id))
		c.before(e, steps[0])
		e.requireAsleep()
		c.decides(e, steps[1])
		e.Ack(e.requireAwake())
		require.True(e.T, e.finish(id).Finished)
	}
}

func ownTime(e *env) {
	id := e.startJoin(1)
	e.Filled(waiter(id), suite.Rec(waitings, "due", waitsFor(id)))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "due", suite.From(waitings)))
	e.requireAsleep()
	e.Elapse(later + time.Minute)
	e.requireAwake()
}

func waitsInTransaction(e *env) {
	ctx, commit, _ := e.Begin()
	join := newJoin(1)
	require.NoError(e.T, e.joins().StartJoin(ctx, join))
	r := suite.Rec(orders, "m1", withJoins(join.ID))
	require.NoError(e.T, e.Store.Append(ctx, r, waiter(join.ID)))
	commit()
	e.Register(group)
	e.requireAsleep()
	e.completeSteps(r)
	e.requireAwake()
}

// waitsInOpenTransaction allows two ways. If the store decides the join while the transaction is
// open, its record is due at its own time. If it decides the join afterwards, the record is due at
// once.
func waitsInOpenTransaction(e *env) {
	id := e.startJoin(1)
	step := e.claimThe(e.members(id, "m1")[0])
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, waiter(id)))
	acked := make(chan error, 1)
	go func() { acked <- e.Store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{step})) }()
	select {
	case err := <-acked:
		acked <- err
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.T, <-acked)
	if found := e.ClaimAll(suite.From(waitings)); len(found) > 0 {
		e.Ack(found...)
		return
	}
	e.Elapse(later + time.Minute)
	e.Snooze(time.Hour, e.requireAwake())
	e.Ack(e.requireAwake())
}

func waitsForItsOwn(e *env) {
	_, steps, _ := e.awaited(1)
	other := e.startJoin(1)
	e.completeSteps(e.members(other, "other")...)
	e.requireAsleep()
	e.completeSteps(steps...)
	e.requireAwake()
}

func allWake(e *env) {
	id := e.startJoin(1)
	e.Register("others", waitings)
	steps := e.members(id, "m1")
	e.Append(waiter(id), suite.Rec(waitings, "another", suite.WithDelay(later), waitsFor(id)),
		suite.Rec(waitings, "sleeps", suite.WithDelay(later)))
	e.completeSteps(steps...)
	for _, name := range []string{group, "others"} {
		require.ElementsMatch(e.T, []string{"waiter", "another"}, suite.Names(e.ClaimAll(suite.From(waitings), suite.OfGroup(name))))
	}
}

func unroutedWakes(e *env) {
	id := e.startJoin(1)
	e.Register(group, orders)
	r := suite.Rec(orders, "m1", withJoins(id))
	e.Append(r, waiter(id))
	e.completeSteps(r)
	e.requireAsleep()
	e.Register(group, waitings)
	e.requireAwake()
}

func snoozedWakes(e *env) {
	id, steps, w := e.awaited(2)
	e.Elapse(later + time.Minute)
	e.Snooze(time.Hour, e.requireAwake())
	e.completeSteps(steps[0])
	e.requireAsleep()
	e.completeSteps(steps[1])
	e.RequireAbout(e.Now(), e.Get(w).NextAttemptAt, "next attempt at")
	require.Zero(e.T, e.requireAwake().Attempts)
	e.requireFinished(id, roles.JoinCompleted)
}

func abandonedWakes(e *env) {
	_, steps, _ := e.awaited(1)
	e.Elapse(later + time.Minute)
	e.Abandon(time.Hour, e.requireAwake())
	e.requireAsleep()
	e.completeSteps(steps...)
	require.Equal(e.T, 1, e.requireAwake().Attempts)
}

func snoozedTooLate(e *env) {
	_, steps, _ := e.awaited(1)
	e.Elapse(later + time.Minute)
	w := e.requireAwake()
	e.completeSteps(steps...)
	e.requireAsleep()
	e.Snooze(time.Hour, w)
	e.Ack(e.requireAwake())
	e.requireAsleep()
}

// snoozedAfterEnd snoozes a record after the record of another group has ended the join.
func snoozedAfterEnd(e *env) {
	id, steps, _ := e.awaited(1)
	e.Elapse(later + time.Minute)
	w := e.requireAwake()
	e.completeSteps(steps...)
	e.requireFinished(id, roles.JoinCompleted)
	e.Snooze(time.Hour, w)
	e.requireAwake()
}

func snoozedAgain(e *env) {
	id, steps, _ := e.awaited(1)
	e.completeSteps(steps...)
	e.Elapse(time.Hour)
	e.Snooze(time.Hour, e.requireAwake())
	e.Snooze(time.Hour, e.requireAwake())
	e.Append(suite.Rec(waitings, "late", waitsFor(id)))
	e.Ack(e.requireAwake())
	e.Snooze(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "late", suite.From(waitings)))
	e.ClaimOne(outmill.NewOwnerToken(), "late", suite.From(waitings))
}

func sleepsWhilePending(e *env) {
	id, steps, w := e.awaited(2)
	e.completeSteps(steps[0])
	e.Elapse(later + time.Minute)
	e.Snooze(time.Hour, e.requireAwake())
	e.RequireAbout(e.Now().Add(time.Hour), e.Get(w).NextAttemptAt, "next attempt at")
	e.requireAsleep()
	e.Elapse(61 * time.Minute)
	e.requireAwake()
	require.False(e.T, e.finish(id).Finished)
}

// sleepsAfterRequeue requires that the record sleeps, because otherwise it would be delivered
// repeatedly until the step is settled.
func sleepsAfterRequeue(e *env) {
	id, steps, w := e.awaited(1)
	e.failSteps(steps...)
	claimed := e.requireAwake()
	require.Equal(e.T, 1, e.Requeue(steps[0]))
	require.False(e.T, e.finish(id).Finished)
	e.Snooze(time.Hour, claimed)
	e.RequireAbout(e.Now().Add(time.Hour), e.Get(w).NextAttemptAt, "next attempt at")
	e.requireAsleep()
	e.completeSteps(steps...)
	e.requireAwake()
	e.requireFinished(id, roles.JoinCompleted)
}

func keyedWakes(e *env) { e.checkOrderedWake(suite.ByKey, suite.WithKey("k")) }

func topicWakes(e *env) { e.checkOrderedWake(suite.ByTopic, suite.Plain) }

func (e *env) checkOrderedWake(order func(*outmill.ClaimRequest), change func(*outmill.Record)) {
	id := e.startJoin(1)
	steps := e.members(id, "m1")
	e.Append(suite.Rec(waitings, "waiter", waitsFor(id), change), suite.Rec(waitings, "second", change))
	e.Snooze(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "waiter", order, suite.From(waitings)))
	require.Empty(e.T, e.ClaimAll(order, suite.From(waitings)), "the snoozed record holds the order")
	e.completeSteps(steps...)
	e.RequireNames([]string{"waiter", "second"}, e.ClaimAll(order, suite.From(waitings)))
}

func waiterIsNoStep(e *env) {
	id := e.startJoin(3)
	e.Filled(suite.Recs(waitings, waitsFor(id), "acked", "dead", "deleted")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	require.Equal(e.T, 1, e.Delete(found["deleted"]))
	require.Empty(e.T, e.steps(id))
	e.requireCounts(id, 0, 0)
}

func deadWaiters(e *env) {
	id := e.startJoin(1)
	steps := e.members(id, "m1")
	dead, acked := suite.Rec(waitings, "dead", waitsFor(id)), suite.Rec(waitings, "acked", waitsFor(id))
	expired := suite.Rec(waitings, "expired", suite.WithDelay(later), suite.WithTTL(time.Minute), waitsFor(id))
	e.Append(dead, acked, expired)
	e.failSteps(dead)
	e.completeSteps(acked)
	e.Elapse(time.Hour)
	e.completeSteps(steps...)
	e.requireAsleep()
	e.RequireStatus(outmill.StatusDead, dead)
	e.RequireProcessed(acked)
	// A claim may have met it before.
	e.Did(e.Store.ExpireDue, 10)
	e.RequireStatus(outmill.StatusDead, expired)
}

func leasedStays(e *env) {
	_, steps, _ := e.awaited(1)
	e.Elapse(later + time.Minute)
	w := e.requireAwake()
	e.Unchanged(w, func() { e.completeSteps(steps...) })
	e.requireAsleep()
	e.Ack(w)
	e.RequireProcessed(w)
}

func diesBeforeTheEnd(e *env) {
	id, steps, _ := e.awaited(1)
	e.Elapse(later + time.Minute)
	first := e.requireAwake()
	e.completeSteps(steps...)
	e.Elapse(leaseOf + time.Minute)
	second := e.requireAwake()
	require.True(e.T, e.finish(id).Finished)
	require.False(e.T, e.finish(id).Finished, "the first comes back to life")
	e.Unchanged(second, func() { e.Ack(first) })
	e.Ack(second)
	e.RequireProcessed(second)
}

// noEndIsLost has a handler that finds the join pending and then snoozes for longer than the test
// waits.
func noEndIsLost(e *env) {
	e.Register(group)
	stores, ends := e.twoStores(), joinEnds()
	for round := range suite.Large(60) {
		end := ends[round%len(ends)]
		id := e.startJoin(2, end.join)
		e.Append(append(suite.Recs(orders, withJoins(id), "m1", "m2"), suite.Rec(waitings, "waiter", waitsFor(id)))...)
		steps := e.ClaimN(outmill.NewOwnerToken(), 2, suite.From(orders))
		w := e.requireAwake()
		e.workersOn(stores, 3, func(i int, store joinStore) error {
			switch i {
			case 0:
				return store.Ack(e.Ctx, "", suite.Leases(steps[:1]))
			case 1:
				return end.decide(e, store, id, steps[1])
			}
			result, err := store.FinishJoin(e.Ctx, id, finishing(then("end")))
			if err != nil || result.Finished {
				return err
			}
			return store.Snooze(e.Ctx, suite.DelayedBy(later, "", suite.Leases([]*outmill.Record{w})))
		})
		if e.getJoin(id).Status == roles.JoinPending {
			w = e.requireAwake()
			require.True(e.T, e.finish(id).Finished, "after %s", end.name)
		}
		e.Ack(w)
		e.Ack(steps...)
		requireSound(e.Ctx, e.T, e.joins(), id)
		e.requireAsleep()
	}
}

// joinEnd is one way to decide a join by its last step while others read the join.
type joinEnd struct {
	name   string
	join   func(*roles.Join)
	decide func(*env, joinStore, outmill.JoinID, *outmill.Record) error
}

func joinEnds() []joinEnd {
	return []joinEnd{
		{"an ack", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			return store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{step}))
		}},
		{"a failure", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			return store.Fail(e.Ctx, suite.Failures(false, "poison", suite.Leases([]*outmill.Record{step})))
		}},
		{"a report", plainJoin, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			return store.ReportFailed(e.Ctx, id, step.ID)
		}},
		{"a delete", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			_, err := store.Delete(e.Ctx, step.ID)
			return err
		}},
		{"a seal", unsealed, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			if err := store.SealJoin(e.Ctx, id, 2); err != nil {
				return err
			}
			return store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{step}))
		}},
		{"a seal at the end", unsealed, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			if err := store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{step})); err != nil {
				return err
			}
			return store.SealJoin(e.Ctx, id, 2)
		}},
	}
}
