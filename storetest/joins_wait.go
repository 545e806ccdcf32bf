package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinWaitSentences() []sentence {
	var list []sentence
	for _, x := range endings() {
		list = append(list, sentence{x.name + " of the last step makes a record due that waits for the join", x.wakes})
	}
	return append(list, []sentence{
		{"a report of the last step makes a record due that waits for the join", reportWakes},
		{"any and quorum joins make a record due with the step that decides them", policyWakes},
		{"a record that waits for a join is due at its own time too", ownTime},
		{"a record that was appended in a transaction waits for its join", waitsInTransaction},
		{"a record that waits for one join does not mind another", waitsForItsOwn},
		{"every record that waits for a join becomes due, of every group", allWake},
		{"a record that waits for a group and a join is due when it has both", unroutedWakes},
		{"a record that was snoozed becomes due when its join is decided", snoozedWakes},
		{"a record that was abandoned becomes due when its join is decided", abandonedWakes},
		{"a record that is leased when its join is decided is due as soon as it is snoozed", snoozedTooLate},
		{"a record that is leased when its join is finished is due as soon as it is snoozed", snoozedAfterEnd},
		{"a record that is snoozed when its join was decided long before is due at once", snoozedAgain},
		{"a record sleeps as it was told while its join is not decided", sleepsWhilePending},
		{"a record sleeps again when a requeue took back what decided its join", sleepsAfterRequeue},
		{"a record of a key that waits for a join keeps its place in the order", keyedWakes},
		{"a record that waits for a join keeps its place in the order of its topic", topicWakes},
		{"a record that waits for a join is no step, whatever becomes of it", waiterIsNoStep},
		{"an expired or dead record that waits for a join does not come back", deadWaiters},
		{"a leased record stays with its owner when its join is decided", leasedStays},
		{"a reader that dies between the last ack and the end of the join leaves it to another, and one of them ends it", diesBeforeTheEnd},
		{"of steps and snoozes at once none loses the end of the join", noEndIsLost},
	}...)
}

// requireAsleep checks that no record is due that waits for a join.
func (e *env) requireAsleep() {
	e.t.Helper()
	require.Empty(e.t, names(e.claimAll(from(waitings))), "claimed before the join is decided")
}

// requireAwake claims the record that waits for a join.
func (e *env) requireAwake() *outmill.Record {
	e.t.Helper()
	return e.claimOne(outmill.NewOwnerToken(), "waiter", from(waitings))
}

// awaited starts a join of so many steps with a record that waits for it, and
// appends the steps.
func (e *env) awaited(n int) (outmill.JoinID, []*outmill.Record, *outmill.Record) {
	e.t.Helper()
	id := e.startJoin(n)
	steps := e.members(id, numbered(n)...)
	w := waiter(id)
	e.append(w)
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
		policy  func(*storekit.Join)
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
		e.append(waiter(id))
		c.before(e, steps[0])
		e.requireAsleep()
		c.decides(e, steps[1])
		e.ack(e.requireAwake())
		require.True(e.t, e.finish(id).Finished)
	}
}

func ownTime(e *env) {
	id := e.startJoin(1)
	e.filled(waiter(id), rec(waitings, "due", waitsFor(id)))
	e.ack(e.claimOne(outmill.NewOwnerToken(), "due", from(waitings)))
	e.requireAsleep()
	e.elapse(later + time.Minute)
	e.requireAwake()
}

func waitsInTransaction(e *env) {
	ctx, commit, _ := e.begin()
	join := newJoin(1)
	require.NoError(e.t, e.joins().StartJoin(ctx, join))
	r := rec(orders, "m1", withJoins(join.ID))
	require.NoError(e.t, e.store.Append(ctx, r, waiter(join.ID)))
	commit()
	e.register(group)
	e.requireAsleep()
	e.completeSteps(r)
	e.requireAwake()
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
	e.register("others", waitings)
	steps := e.members(id, "m1")
	e.append(waiter(id), rec(waitings, "another", withDelay(later), waitsFor(id)), rec(waitings, "sleeps", withDelay(later)))
	e.completeSteps(steps...)
	for _, name := range []string{group, "others"} {
		require.ElementsMatch(e.t, []string{"waiter", "another"}, names(e.claimAll(from(waitings), ofGroup(name))))
	}
}

func unroutedWakes(e *env) {
	id := e.startJoin(1)
	e.register(group, orders)
	r := rec(orders, "m1", withJoins(id))
	e.append(r, waiter(id))
	e.completeSteps(r)
	e.requireAsleep()
	e.register(group, waitings)
	e.requireAwake()
}

func snoozedWakes(e *env) {
	id, steps, w := e.awaited(2)
	e.elapse(later + time.Minute)
	e.snooze(time.Hour, e.requireAwake())
	e.completeSteps(steps[0])
	e.requireAsleep()
	e.completeSteps(steps[1])
	e.requireAbout(e.now(), e.get(w).NextAttemptAt, "next attempt at")
	require.Zero(e.t, e.requireAwake().Attempts)
	e.requireFinished(id, storekit.JoinCompleted)
}

func abandonedWakes(e *env) {
	_, steps, _ := e.awaited(1)
	e.elapse(later + time.Minute)
	e.abandon(time.Hour, e.requireAwake())
	e.requireAsleep()
	e.completeSteps(steps...)
	require.Equal(e.t, 1, e.requireAwake().Attempts)
}

func snoozedTooLate(e *env) {
	_, steps, _ := e.awaited(1)
	e.elapse(later + time.Minute)
	w := e.requireAwake()
	e.completeSteps(steps...)
	e.requireAsleep()
	e.snooze(time.Hour, w)
	e.ack(e.requireAwake())
	e.requireAsleep()
}

// snoozedAfterEnd: the record of one group ended the join of another's.
func snoozedAfterEnd(e *env) {
	id, steps, _ := e.awaited(1)
	e.elapse(later + time.Minute)
	w := e.requireAwake()
	e.completeSteps(steps...)
	e.requireFinished(id, storekit.JoinCompleted)
	e.snooze(time.Hour, w)
	e.requireAwake()
}

func snoozedAgain(e *env) {
	id, steps, _ := e.awaited(1)
	e.completeSteps(steps...)
	e.elapse(time.Hour)
	e.snooze(time.Hour, e.requireAwake())
	e.snooze(time.Hour, e.requireAwake())
	e.append(rec(waitings, "late", waitsFor(id)))
	e.ack(e.requireAwake())
	e.snooze(time.Hour, e.claimOne(outmill.NewOwnerToken(), "late", from(waitings)))
	e.claimOne(outmill.NewOwnerToken(), "late", from(waitings))
}

func sleepsWhilePending(e *env) {
	id, steps, w := e.awaited(2)
	e.completeSteps(steps[0])
	e.elapse(later + time.Minute)
	e.snooze(time.Hour, e.requireAwake())
	e.requireAbout(e.now().Add(time.Hour), e.get(w).NextAttemptAt, "next attempt at")
	e.requireAsleep()
	e.elapse(61 * time.Minute)
	e.requireAwake()
	require.False(e.t, e.finish(id).Finished)
}

// sleepsAfterRequeue: it would come again and again until the step is settled.
func sleepsAfterRequeue(e *env) {
	id, steps, w := e.awaited(1)
	e.failSteps(steps...)
	claimed := e.requireAwake()
	require.Equal(e.t, 1, e.requeue(steps[0]))
	require.False(e.t, e.finish(id).Finished)
	e.snooze(time.Hour, claimed)
	e.requireAbout(e.now().Add(time.Hour), e.get(w).NextAttemptAt, "next attempt at")
	e.requireAsleep()
	e.completeSteps(steps...)
	e.requireAwake()
	e.requireFinished(id, storekit.JoinCompleted)
}

func keyedWakes(e *env) { e.checkOrderedWake(byKey, withKey("k")) }

func topicWakes(e *env) { e.checkOrderedWake(byTopic, plain) }

func (e *env) checkOrderedWake(order func(*outmill.ClaimRequest), change func(*outmill.Record)) {
	id := e.startJoin(1)
	steps := e.members(id, "m1")
	e.append(rec(waitings, "waiter", waitsFor(id), change), rec(waitings, "second", change))
	e.snooze(time.Hour, e.claimOne(outmill.NewOwnerToken(), "waiter", order, from(waitings)))
	require.Empty(e.t, e.claimAll(order, from(waitings)), "the snoozed record holds the order")
	e.completeSteps(steps...)
	e.requireNames([]string{"waiter", "second"}, e.claimAll(order, from(waitings)))
}

func waiterIsNoStep(e *env) {
	id := e.startJoin(3)
	e.filled(recs(waitings, waitsFor(id), "acked", "dead", "deleted")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	require.Equal(e.t, 1, e.delete(found["deleted"]))
	require.Empty(e.t, e.steps(id))
	e.requireCounts(id, 0, 0)
}

func deadWaiters(e *env) {
	id := e.startJoin(1)
	steps := e.members(id, "m1")
	dead, acked := rec(waitings, "dead", waitsFor(id)), rec(waitings, "acked", waitsFor(id))
	expired := rec(waitings, "expired", withDelay(later), withTTL(time.Minute), waitsFor(id))
	e.append(dead, acked, expired)
	e.failSteps(dead)
	e.completeSteps(acked)
	e.elapse(time.Hour)
	e.completeSteps(steps...)
	e.requireAsleep()
	e.requireStatus(outmill.StatusDead, dead)
	e.requireProcessed(acked)
	require.Equal(e.t, 1, e.did(e.store.ExpireDue, 10))
	e.requireStatus(outmill.StatusDead, expired)
}

func leasedStays(e *env) {
	_, steps, _ := e.awaited(1)
	e.elapse(later + time.Minute)
	w := e.requireAwake()
	e.unchanged(w, func() { e.completeSteps(steps...) })
	e.requireAsleep()
	e.ack(w)
	e.requireProcessed(w)
}

func diesBeforeTheEnd(e *env) {
	id, steps, _ := e.awaited(1)
	e.elapse(later + time.Minute)
	first := e.requireAwake()
	e.completeSteps(steps...)
	e.elapse(leaseOf + time.Minute)
	second := e.requireAwake()
	require.True(e.t, e.finish(id).Finished)
	require.False(e.t, e.finish(id).Finished, "the first comes back to life")
	e.unchanged(second, func() { e.ack(first) })
	e.ack(second)
	e.requireProcessed(second)
}

// noEndIsLost: a handler that finds the join pending snoozes for longer than
// anybody waits.
func noEndIsLost(e *env) {
	e.register(group)
	stores, ends := e.twoStores(), joinEnds()
	for round := range large(60) {
		end := ends[round%len(ends)]
		id := e.startJoin(2, end.join)
		e.append(append(recs(orders, withJoins(id), "m1", "m2"), rec(waitings, "waiter", waitsFor(id)))...)
		steps := e.claimN(outmill.NewOwnerToken(), 2, from(orders))
		w := e.requireAwake()
		e.workersOn(stores, 3, func(i int, store joinStore) error {
			switch i {
			case 0:
				return store.Ack(e.ctx, "", leases(steps[:1]))
			case 1:
				return end.decide(e, store, id, steps[1])
			}
			result, err := store.FinishJoin(e.ctx, id, finishing(then("end")))
			if err != nil || result.Finished {
				return err
			}
			return store.Snooze(e.ctx, delayedBy(later, "", leases([]*outmill.Record{w})))
		})
		if e.getJoin(id).Status == storekit.JoinPending {
			w = e.requireAwake()
			require.True(e.t, e.finish(id).Finished, "after %s", end.name)
		}
		e.ack(w)
		e.ack(steps...)
		requireSound(e.ctx, e.t, e.joins(), id)
		e.requireAsleep()
	}
}

// joinEnd is what the last step of a join may do while others look.
type joinEnd struct {
	name   string
	join   func(*storekit.Join)
	decide func(*env, joinStore, outmill.JoinID, *outmill.Record) error
}

func joinEnds() []joinEnd {
	return []joinEnd{
		{"an ack", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			return store.Ack(e.ctx, "", leases([]*outmill.Record{step}))
		}},
		{"a failure", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			return store.Fail(e.ctx, failures(false, "poison", leases([]*outmill.Record{step})))
		}},
		{"a report", plainJoin, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			return store.ReportFailed(e.ctx, id, step.ID)
		}},
		{"a delete", plainJoin, func(e *env, store joinStore, _ outmill.JoinID, step *outmill.Record) error {
			_, err := store.Delete(e.ctx, step.ID)
			return err
		}},
		{"a seal", unsealed, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			if err := store.SealJoin(e.ctx, id, 2); err != nil {
				return err
			}
			return store.Ack(e.ctx, "", leases([]*outmill.Record{step}))
		}},
		{"a seal at the end", unsealed, func(e *env, store joinStore, id outmill.JoinID, step *outmill.Record) error {
			if err := store.Ack(e.ctx, "", leases([]*outmill.Record{step})); err != nil {
				return err
			}
			return store.SealJoin(e.ctx, id, 2)
		}},
	}
}
