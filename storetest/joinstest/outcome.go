package joinstest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// outcome is one of the ways in which a step is settled.
type outcome struct {
	name string
	// numbers are numbers of the functional specification.
	numbers string
	// before runs before the step is appended.
	before func(*env)
	change func(*outmill.Record)
	apply  func(*env, *outmill.Record)
	status roles.StepStatus
	// dead says that the record of the step goes dead, so that it can be requeued.
	dead bool
}

func messageOutcomes() []outcome {
	none := func(*env) {}
	return []outcome{
		{"an ack", "OBX-033 OBX-034 OBX-089 ", none, suite.Plain, endAcked, roles.StepCompleted, false},
		{"an ack after a retry", "", none, suite.Plain, endRetried, roles.StepCompleted, false},
		{"a failure", "OBX-046 OBX-047 OBX-089 ", none, suite.Plain, endFailed, roles.StepFailed, true},
		{"a failure after a retry", "", none, suite.Plain, endRetriedAndFailed, roles.StepFailed, true},
		{"an expiry", "", none, suite.WithTTL(time.Hour), endExpired, roles.StepFailed, true},
		{"a failure with Park", "", none, suite.WithKey("k"), endParked, roles.StepFailed, true},
		{"a failure with Park before it", "", parkable, suite.WithKey("k"), endParkedBehind, roles.StepFailed, true},
		{"a claim that meets it behind a parked record", "", parkedHead, suite.WithKey("k"), endMet, roles.StepFailed, true},
		{"a delete while it is pending", "", none, suite.Plain, endDeleted, roles.StepFailed, false},
		{"a delete while it is leased", "", none, suite.Plain, endDeletedLeased, roles.StepFailed, false},
	}
}

// counts returns the counters of a join that has only this step.
func (x outcome) counts() (completed, failed int) {
	if x.status == roles.StepCompleted {
		return 1, 0
	}
	return 0, 1
}

func endAcked(e *env, r *outmill.Record) { e.completeSteps(r) }

func endFailed(e *env, r *outmill.Record) { e.failSteps(r) }

func endRetried(e *env, r *outmill.Record) {
	for range 2 {
		e.Abandon(0, e.claimThe(r))
	}
	e.completeSteps(r)
}

func endRetriedAndFailed(e *env, r *outmill.Record) {
	e.Abandon(0, e.claimThe(r))
	e.Snooze(0, e.claimThe(r))
	e.failSteps(r)
}

func endExpired(e *env, _ *outmill.Record) {
	e.Elapse(61 * time.Minute)
	require.Equal(e.T, 1, e.Did(e.Store.ExpireDue, 10))
}

func endParked(e *env, r *outmill.Record) { e.Park(e.claimThe(r)) }

func parkable(e *env) { e.Filled(suite.Keyed("k", "head")...) }

func endParkedBehind(e *env, r *outmill.Record) {
	e.Park(e.ClaimOne(outmill.NewOwnerToken(), "head", suite.ParkOrder, suite.From(orders)))
	e.RequireStatus(outmill.StatusDead, r)
}

func parkedHead(e *env) { e.Parked("head") }

func endMet(e *env, r *outmill.Record) {
	for _, other := range e.ClaimAll(suite.ParkOrder, suite.From(orders)) {
		e.Release(other)
	}
	e.RequireStatus(outmill.StatusDead, r)
}

func endDeleted(e *env, r *outmill.Record) { require.Equal(e.T, 1, e.Delete(r)) }

func endDeletedLeased(e *env, r *outmill.Record) { require.Equal(e.T, 1, e.Delete(e.claimThe(r))) }

// member appends a step that can have this outcome, and other records.
func (x outcome) member(e *env, ids []outmill.JoinID, others ...*outmill.Record) *outmill.Record {
	e.T.Helper()
	e.Register(group)
	x.before(e)
	r := suite.Rec(orders, "m1", x.change, withJoins(ids...))
	e.Append(append([]*outmill.Record{r}, others...)...)
	return r
}

// settles checks that the outcome counts once in each of the step's joins, and in no other join.
func (x outcome) settles(e *env) {
	first, second, other := e.startJoin(2), e.startJoin(3), e.startJoin(1)
	beside := suite.Rec(orders, "beside", withJoins(first, second))
	r := x.member(e, []outmill.JoinID{second, first}, beside, suite.Rec("others", "other", withJoins(other)))
	e.requireCounts(first, 0, 0)
	e.requireStep(first, r, roles.StepPending)
	x.apply(e, r)
	completed, failed := x.counts()
	for _, id := range []outmill.JoinID{first, second} {
		e.requireStep(id, r, x.status)
		e.requireStep(id, beside, roles.StepPending)
		e.requireCounts(id, completed, failed)
		e.requireJoin(id, roles.JoinPending)
	}
	e.requireCounts(other, 0, 0)
}

// takenBack checks that a requeue undoes the outcome, and that the step counts when it is
// settled again.
func (x outcome) takenBack(e *env) {
	id := e.startJoin(3)
	r := x.member(e, []outmill.JoinID{id}, suite.Rec(orders, "beside", withJoins(id)))
	x.apply(e, r)
	e.Requeue(r)
	e.requireCounts(id, 0, 0)
	e.requireStep(id, r, roles.StepPending)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

// noLongerTakenBack checks that a requeue does not change a join that has ended.
func (x outcome) noLongerTakenBack(e *env) {
	ended, pending := e.startJoin(1), e.startJoin(1)
	r := x.member(e, []outmill.JoinID{pending, ended})
	x.apply(e, r)
	e.requireFinished(ended, roles.JoinFailed)
	e.Requeue(r)
	e.requireCounts(ended, 0, 1)
	e.requireStep(ended, r, roles.StepFailed)
	e.requireCounts(pending, 0, 0)
	e.completeSteps(r)
	e.requireCounts(pending, 1, 0)
	e.requireCounts(ended, 0, 1)
	e.requireJoin(ended, roles.JoinFailed)
}

// afterReport checks that the outcome does not change a step that was reported before.
func (x outcome) afterReport(e *env) {
	completed, failed := e.startJoin(1), e.startJoin(1)
	r := x.member(e, []outmill.JoinID{completed, failed})
	e.reportCompleted(completed, r)
	e.reportFailed(failed, r)
	x.apply(e, r)
	e.requireCounts(completed, 1, 0)
	e.requireCounts(failed, 0, 1)
	if x.dead {
		e.Requeue(r)
		e.requireCounts(completed, 1, 0)
		e.requireCounts(failed, 0, 1)
	}
}

// beforeReport checks that a later report does not change the step.
func (x outcome) beforeReport(e *env) {
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

// afterTheEnd checks that the outcome does not change joins that have ended.
func (x outcome) afterTheEnd(e *env) {
	cancelled, finished := e.startJoin(2), e.startJoin(2, anyStep)
	beside := suite.Rec("others", "beside", withJoins(finished))
	r := x.member(e, []outmill.JoinID{cancelled, finished}, beside)
	e.reportCompleted(finished, beside)
	e.requireFinished(finished, roles.JoinCompleted)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, cancelled, "enough"))
	pending := e.startJoin(1)
	other := suite.Rec("others", "other", withJoins(pending))
	e.Append(other)
	x.apply(e, r)
	e.requireCounts(cancelled, 0, 0)
	e.requireCounts(finished, 1, 0)
	e.requireCounts(pending, 0, 0)
	e.requireStep(cancelled, r, roles.StepPending)
	e.requireStep(finished, r, roles.StepPending)
	e.requireJoin(cancelled, roles.JoinCancelled)
	e.requireJoin(finished, roles.JoinCompleted)
}

// wakes checks that a record that waits for the join becomes due.
func (x outcome) wakes(e *env) {
	id := e.startJoin(2)
	beside := suite.Rec("others", "beside", withJoins(id))
	r := x.member(e, []outmill.JoinID{id}, beside, waiter(id))
	e.completeSteps(beside)
	e.requireAsleep()
	x.apply(e, r)
	e.requireAwake()
}
