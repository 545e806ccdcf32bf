package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ending is one of the ways in which a step is settled.
type ending struct {
	name string
	// numbers are those of the functional specification.
	numbers string
	// before comes before the step is appended.
	before func(*env)
	change func(*outmill.Record)
	apply  func(*env, *outmill.Record)
	status storekit.StepStatus
	// dead: its record is dead then, and can be requeued.
	dead bool
}

func endings() []ending {
	none := func(*env) {}
	return []ending{
		{"an ack", "OBX-033 OBX-034 OBX-089 ", none, plain, endAcked, storekit.StepCompleted, false},
		{"an ack after a retry", "", none, plain, endRetried, storekit.StepCompleted, false},
		{"a failure", "OBX-046 OBX-047 OBX-089 ", none, plain, endFailed, storekit.StepFailed, true},
		{"a failure after a retry", "", none, plain, endRetriedAndFailed, storekit.StepFailed, true},
		{"an expiry", "", none, withTTL(time.Hour), endExpired, storekit.StepFailed, true},
		{"a failure with Park", "", none, withKey("k"), endParked, storekit.StepFailed, true},
		{"a failure with Park before it", "", parkable, withKey("k"), endParkedBehind, storekit.StepFailed, true},
		{"a claim that meets it behind a parked record", "", parkedHead, withKey("k"), endMet, storekit.StepFailed, true},
		{"a delete while it is pending", "", none, plain, endDeleted, storekit.StepFailed, false},
		{"a delete while it is leased", "", none, plain, endDeletedLeased, storekit.StepFailed, false},
	}
}

// completed and failed are the counters of a join with that step only.
func (x ending) counts() (completed, failed int) {
	if x.status == storekit.StepCompleted {
		return 1, 0
	}
	return 0, 1
}

func endAcked(e *env, r *outmill.Record) { e.completeSteps(r) }

func endFailed(e *env, r *outmill.Record) { e.failSteps(r) }

func endRetried(e *env, r *outmill.Record) {
	for range 2 {
		e.abandon(0, e.claimThe(r))
	}
	e.completeSteps(r)
}

func endRetriedAndFailed(e *env, r *outmill.Record) {
	e.abandon(0, e.claimThe(r))
	e.snooze(0, e.claimThe(r))
	e.failSteps(r)
}

func endExpired(e *env, _ *outmill.Record) {
	e.elapse(61 * time.Minute)
	require.Equal(e.t, 1, e.did(e.store.ExpireDue, 10))
}

func endParked(e *env, r *outmill.Record) { e.park(e.claimThe(r)) }

func parkable(e *env) { e.filled(keyed("k", "head")...) }

func endParkedBehind(e *env, r *outmill.Record) {
	e.park(e.claimOne(outmill.NewOwnerToken(), "head", parkOrder, from(orders)))
	e.requireStatus(outmill.StatusDead, r)
}

func parkedHead(e *env) { e.parked("head") }

func endMet(e *env, r *outmill.Record) {
	for _, other := range e.claimAll(parkOrder, from(orders)) {
		e.release(other)
	}
	e.requireStatus(outmill.StatusDead, r)
}

func endDeleted(e *env, r *outmill.Record) { require.Equal(e.t, 1, e.delete(r)) }

func endDeletedLeased(e *env, r *outmill.Record) { require.Equal(e.t, 1, e.delete(e.claimThe(r))) }

// member appends a step that can end so, besides others.
func (x ending) member(e *env, ids []outmill.JoinID, others ...*outmill.Record) *outmill.Record {
	e.t.Helper()
	e.register(group)
	x.before(e)
	r := rec(orders, "m1", x.change, withJoins(ids...))
	e.append(append([]*outmill.Record{r}, others...)...)
	return r
}

// settles checks that it counts once in each of the step's joins, and nowhere
// else.
func (x ending) settles(e *env) {
	first, second, other := e.startJoin(2), e.startJoin(3), e.startJoin(1)
	beside := rec(orders, "beside", withJoins(first, second))
	r := x.member(e, []outmill.JoinID{second, first}, beside, rec("others", "other", withJoins(other)))
	e.requireCounts(first, 0, 0)
	e.requireStep(first, r, storekit.StepPending)
	x.apply(e, r)
	completed, failed := x.counts()
	for _, id := range []outmill.JoinID{first, second} {
		e.requireStep(id, r, x.status)
		e.requireStep(id, beside, storekit.StepPending)
		e.requireCounts(id, completed, failed)
		e.requireJoin(id, storekit.JoinPending)
	}
	e.requireCounts(other, 0, 0)
}

// takenBack checks that a requeue takes it back, and that the step counts when
// it is settled again.
func (x ending) takenBack(e *env) {
	id := e.startJoin(3)
	r := x.member(e, []outmill.JoinID{id}, rec(orders, "beside", withJoins(id)))
	x.apply(e, r)
	e.requeue(r)
	e.requireCounts(id, 0, 0)
	e.requireStep(id, r, storekit.StepPending)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

// noLongerTakenBack checks that a requeue leaves a join that has ended.
func (x ending) noLongerTakenBack(e *env) {
	ended, pending := e.startJoin(1), e.startJoin(1)
	r := x.member(e, []outmill.JoinID{pending, ended})
	x.apply(e, r)
	e.requireFinished(ended, storekit.JoinFailed)
	e.requeue(r)
	e.requireCounts(ended, 0, 1)
	e.requireStep(ended, r, storekit.StepFailed)
	e.requireCounts(pending, 0, 0)
	e.completeSteps(r)
	e.requireCounts(pending, 1, 0)
	e.requireCounts(ended, 0, 1)
	e.requireJoin(ended, storekit.JoinFailed)
}

// afterReport checks that it no longer matters for a step that was reported.
func (x ending) afterReport(e *env) {
	completed, failed := e.startJoin(1), e.startJoin(1)
	r := x.member(e, []outmill.JoinID{completed, failed})
	e.reportCompleted(completed, r)
	e.reportFailed(failed, r)
	x.apply(e, r)
	e.requireCounts(completed, 1, 0)
	e.requireCounts(failed, 0, 1)
	if x.dead {
		e.requeue(r)
		e.requireCounts(completed, 1, 0)
		e.requireCounts(failed, 0, 1)
	}
}

// beforeReport checks that a later report does not matter.
func (x ending) beforeReport(e *env) {
	first, second := e.startJoin(1), e.startJoin(1)
	r := x.member(e, []outmill.JoinID{first, second})
	x.apply(e, r)
	e.reportCompleted(first, r)
	e.reportFailed(second, r)
	completed, failed := x.counts()
	for _, id := range []outmill.JoinID{first, second} {
		e.requireCounts(id, completed, failed)
		e.requireStep(id, r, x.status)
	}
}

// afterTheEnd checks that it is not noted any more in joins that have ended.
func (x ending) afterTheEnd(e *env) {
	cancelled, finished := e.startJoin(2), e.startJoin(2, anyStep)
	beside := rec("others", "beside", withJoins(finished))
	r := x.member(e, []outmill.JoinID{cancelled, finished}, beside)
	e.reportCompleted(finished, beside)
	e.requireFinished(finished, storekit.JoinCompleted)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, cancelled, "enough"))
	pending := e.startJoin(1)
	other := rec("others", "other", withJoins(pending))
	e.append(other)
	x.apply(e, r)
	e.requireCounts(cancelled, 0, 0)
	e.requireCounts(finished, 1, 0)
	e.requireCounts(pending, 0, 0)
	e.requireStep(cancelled, r, storekit.StepPending)
	e.requireStep(finished, r, storekit.StepPending)
	e.requireJoin(cancelled, storekit.JoinCancelled)
	e.requireJoin(finished, storekit.JoinCompleted)
}

// wakes checks that a record becomes due that waits for the join.
func (x ending) wakes(e *env) {
	id := e.startJoin(2)
	beside := rec("others", "beside", withJoins(id))
	r := x.member(e, []outmill.JoinID{id}, beside, waiter(id))
	e.completeSteps(beside)
	e.requireAsleep()
	x.apply(e, r)
	e.requireAwake()
}
