package joinstest

import (
	"errors"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func reportSentences() []sentence {
	list := []sentence{
		{"OBX-085 OBX-086 ReportCompleted completes a step, once", reportedCompleted},
		{"OBX-087 OBX-088 ReportFailed fails a step, once", reportedFailed},
		{"OBX-086 OBX-088 the first report of a step wins", firstReportWins},
		{"a report is for its own join only", reportOfOneJoin},
		{"a report settles a step of several groups, by the id of any of its records", reportOfGroups},
		{"a report of a step that a record of another join is, or none, is ErrUnknownStep", reportOfNoStep},
		{"a report to an unknown join is ErrUnknownJoin", reportToUnknown},
		{"a report leaves the message, which is delivered as others are", reportLeavesMessage},
		{"a report to a join that has ended is not an error, and changes nothing", reportToEnded},
		{"DropGroup does not undo a report", reportedThenDropped},
		{"of sixteen callers that report a step both ways one wins", reportsRace},
		{"a report and an ack at once count one step", reportRacesAck},
	}
	for _, x := range messageOutcomes() {
		list = append(list,
			sentence{"after a report " + x.name + " of the step no longer matters", x.afterReport},
			sentence{"after " + x.name + " a report of the step no longer matters", x.beforeReport})
	}
	return list
}

func reportedCompleted(e *env) {
	id := e.startJoin(3)
	records := e.members(id, "m1", "m2", "m3")
	for range 3 {
		e.reportCompleted(id, records[0])
		e.requireCounts(id, 1, 0)
	}
	e.requireStep(id, records[0], roles.StepCompleted)
	e.requireStep(id, records[1], roles.StepPending)
	e.reportCompleted(id, records[1])
	e.requireCounts(id, 2, 0)
}

func reportedFailed(e *env) {
	id := e.startJoin(3)
	records := e.members(id, "m1", "m2", "m3")
	for range 3 {
		e.reportFailed(id, records[0])
		e.requireCounts(id, 0, 1)
	}
	e.requireStep(id, records[0], roles.StepFailed)
	e.reportFailed(id, records[1])
	e.requireCounts(id, 0, 2)
}

func firstReportWins(e *env) {
	id := e.startJoin(2)
	records := e.members(id, "m1", "m2")
	e.reportCompleted(id, records[0])
	e.reportFailed(id, records[1])
	for range 2 {
		e.reportFailed(id, records[0])
		e.reportCompleted(id, records[1])
	}
	e.requireCounts(id, 1, 1)
	e.requireStep(id, records[0], roles.StepCompleted)
	e.requireStep(id, records[1], roles.StepFailed)
}

func reportOfOneJoin(e *env) {
	first, second := e.startJoin(1), e.startJoin(1)
	r := suite.Rec(orders, "m1", withJoins(first, second))
	e.Filled(r)
	e.reportFailed(first, r)
	e.requireCounts(first, 0, 1)
	e.requireCounts(second, 0, 0)
	e.completeSteps(r)
	e.requireCounts(first, 0, 1)
	e.requireCounts(second, 1, 0)
}

func reportOfGroups(e *env) {
	id := e.startJoin(2)
	step, one, two := e.twoGroups(id)
	e.reportFailed(id, two)
	e.requireStep(id, step, roles.StepFailed)
	e.reportCompleted(id, one)
	e.Ack(one, two)
	e.requireCounts(id, 0, 1)

	other := e.startJoin(1)
	step, one, two = e.twoGroups(other)
	e.Ack(one)
	e.reportCompleted(other, step)
	e.requireCounts(other, 1, 0)
	e.Fail(two)
	e.requireCounts(other, 1, 0)
}

func reportOfNoStep(e *env) {
	id, other := e.startJoin(2), e.startJoin(1)
	e.members(id, "m1")
	stranger := e.members(other, "stranger")[0]
	none := suite.Rec(orders, "none")
	e.Append(none)
	for _, r := range []*outmill.Record{stranger, none, {ID: outmill.NewWorkItemID()}, {}} {
		require.ErrorIs(e.T, e.joins().ReportCompleted(e.Ctx, id, r.ID), roles.ErrUnknownStep)
		require.ErrorIs(e.T, e.joins().ReportFailed(e.Ctx, id, r.ID), roles.ErrUnknownStep)
	}
	e.requireCounts(id, 0, 0)
	e.requireCounts(other, 0, 0)
}

func reportToUnknown(e *env) {
	id := e.startJoin(1)
	r := e.members(id, "m1")[0]
	for _, unknown := range []outmill.JoinID{outmill.NewJoinID(), {}} {
		require.ErrorIs(e.T, e.joins().ReportCompleted(e.Ctx, unknown, r.ID), roles.ErrUnknownJoin)
		require.ErrorIs(e.T, e.joins().ReportFailed(e.Ctx, unknown, r.ID), roles.ErrUnknownJoin)
	}
	e.requireCounts(id, 0, 0)
}

func reportLeavesMessage(e *env) {
	id := e.startJoin(2)
	records := e.members(id, "m1", "m2")
	e.Unchanged(records[0], func() { e.reportCompleted(id, records[0]) })
	e.Unchanged(records[1], func() { e.reportFailed(id, records[1]) })
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll()))
}

func reportToEnded(e *env) {
	ended := e.startJoin(3, anyStep)
	records := e.members(ended, "m1", "m2", "m3")
	e.reportCompleted(ended, records[0])
	e.requireFinished(ended, roles.JoinCompleted)
	e.reportCompleted(ended, records[1])
	e.reportFailed(ended, records[2])
	e.reportFailed(ended, records[0])
	e.requireCounts(ended, 1, 0)
	e.requireStep(ended, records[0], roles.StepCompleted)
	e.requireJoin(ended, roles.JoinCompleted)
}

func reportedThenDropped(e *env) {
	id := e.startJoin(1)
	r := e.members(id, "m1")[0]
	e.reportCompleted(id, r)
	e.Drop(group)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, r, roles.StepCompleted)
}

func reportsRace(e *env) {
	const steps = 10
	id := e.startJoin(steps)
	records := e.members(id, suite.Numbered(steps)...)
	e.workers(16, func(i int, store joinStore) error {
		var errs []error
		for n := range records {
			r := records[(n+i)%steps]
			if (n+i)%2 == 0 {
				errs = append(errs, store.ReportCompleted(e.Ctx, id, r.ID))
			} else {
				errs = append(errs, store.ReportFailed(e.Ctx, id, r.ID))
			}
		}
		return errors.Join(errs...)
	})
	requireSound(e.Ctx, e.T, e.joins(), id)
	join := e.getJoin(id)
	require.Equal(e.T, steps, join.CompletedSteps+join.FailedSteps)
}

func reportRacesAck(e *env) {
	const n = 24
	id, beside := e.startJoin(n), e.startJoin(n)
	e.Filled(suite.Recs(orders, withJoins(id, beside), suite.Numbered(n)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), n)
	e.workers(4, func(i int, store joinStore) error {
		for _, r := range found {
			var err error
			switch i {
			case 0:
				err = store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{r}))
			case 1:
				err = store.Fail(e.Ctx, suite.Failures(false, "poison", suite.Leases([]*outmill.Record{r})))
			case 2:
				err = store.ReportCompleted(e.Ctx, id, r.ID)
			default:
				err = store.ReportFailed(e.Ctx, id, r.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	dead := len(e.List(outmill.ListQuery{Status: outmill.StatusDead}))
	e.requireCounts(beside, n-dead, dead)
	requireSound(e.Ctx, e.T, e.joins(), id)
	join := e.getJoin(id)
	require.Equal(e.T, n, join.CompletedSteps+join.FailedSteps)
}
