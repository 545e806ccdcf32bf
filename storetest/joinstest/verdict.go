package joinstest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// verdict is the expected end of a join with these numbers of settled steps, if it ends.
type verdict struct {
	name              string
	join              func(*roles.Join)
	completed, failed int
	failIfAny         bool
	late              bool
	want              roles.JoinStatus
	reason            string
}

// verdictSteps is the number of steps that each of these joins expects, unless it is unsealed.
const verdictSteps = 3

func verdicts() []verdict {
	const pending, completed, failed = roles.JoinPending, roles.JoinCompleted, roles.JoinFailed
	open := func(policy func(*roles.Join)) func(*roles.Join) {
		return func(j *roles.Join) {
			policy(j)
			unsealed(j)
		}
	}
	late := func(changes ...func(*roles.Join)) func(*roles.Join) {
		return func(j *roles.Join) {
			for _, change := range changes {
				change(j)
			}
		}
	}
	return []verdict{
		{"OBX-090 OBX-091 all, of which none is settled", plainJoin, 0, 0, true, false, pending, ""},
		{"OBX-090 OBX-091 all, of which one is not settled", plainJoin, 1, 1, true, false, pending, ""},
		{"OBX-090 OBX-093 all, which are completed", plainJoin, 3, 0, true, false, completed, ""},
		{"OBX-090 OBX-092 OBX-094 all, of which one failed where that matters", plainJoin, 2, 1, true, false, failed, roles.ReasonStepFailed},
		{"OBX-090 OBX-092 all, of which one failed where that does not matter", plainJoin, 2, 1, false, false, completed, ""},
		{"OBX-090 OBX-092 all, which failed where that does not matter", plainJoin, 0, 3, false, false, completed, ""},
		{"OBX-090 OBX-092 all, which failed", plainJoin, 0, 3, true, false, failed, roles.ReasonStepFailed},

		{"any, of which none is settled", anyStep, 0, 0, false, false, pending, ""},
		{"any, of which two failed", anyStep, 0, 2, true, false, pending, ""},
		{"any, of which one is completed", anyStep, 1, 0, true, false, completed, ""},
		{"any, of which one is completed and the others failed", anyStep, 1, 2, true, false, completed, ""},
		{"any, of which all failed", anyStep, 0, 3, false, false, failed, roles.ReasonNoQuorum},

		{"a quorum that is not there yet", quorumOf(2), 1, 1, true, false, pending, ""},
		{"a quorum", quorumOf(2), 2, 0, true, false, completed, ""},
		{"a quorum beside a failed step", quorumOf(2), 2, 1, true, false, completed, ""},
		{"a quorum that cannot be had any more", quorumOf(2), 0, 2, false, false, failed, roles.ReasonNoQuorum},
		{"a quorum that cannot be had any more, with a completed step", quorumOf(2), 1, 2, false, false, failed, roles.ReasonNoQuorum},
		{"a quorum of all", quorumOf(3), 2, 1, false, false, failed, roles.ReasonNoQuorum},

		{"all of an unsealed join", open(plainJoin), 3, 0, true, false, pending, ""},
		{"any of an unsealed join", open(anyStep), 1, 2, true, false, completed, ""},
		{"any of an unsealed join, of which all failed so far", open(anyStep), 0, 3, false, false, pending, ""},
		{"a quorum of an unsealed join", open(quorumOf(2)), 2, 1, true, false, completed, ""},
		{"a quorum of an unsealed join that is not there yet", open(quorumOf(2)), 1, 2, true, false, pending, ""},

		{"all before the deadline", inAnHour, 2, 0, true, false, pending, ""},
		{"all at the deadline", inAnHour, 2, 0, false, true, failed, roles.ReasonDeadline},
		{"all at a deadline that completes", completeLate, 1, 1, true, true, completed, roles.ReasonDeadline},
		{"all before a deadline that completes", completeLate, 2, 0, true, false, pending, ""},
		{"all at the deadline, which were settled", inAnHour, 3, 0, true, true, completed, ""},
		{"all at a deadline that completes, of which one failed", completeLate, 2, 1, true, true, failed, roles.ReasonStepFailed},
		{"any at the deadline", late(anyStep, inAnHour), 0, 1, false, true, failed, roles.ReasonDeadline},
		{"any at a deadline that completes", late(anyStep, completeLate), 0, 2, true, true, completed, roles.ReasonDeadline},
		{"any at the deadline, of which one is completed", late(anyStep, inAnHour), 1, 0, true, true, completed, ""},
		{"a quorum at the deadline", late(quorumOf(2), inAnHour), 1, 0, true, true, failed, roles.ReasonDeadline},
		{"all of an unsealed join at the deadline", late(unsealed, inAnHour), 1, 0, true, true, failed, roles.ReasonDeadline},
		{"all of an unsealed join at a deadline that completes", late(unsealed, completeLate), 0, 0, true, true, completed,
			roles.ReasonDeadline},
	}
}

func (v verdict) sentence() sentence {
	outcome := "pending"
	if v.want != roles.JoinPending {
		outcome = fmt.Sprintf("%s once and for all", v.want)
	}
	return sentence{fmt.Sprintf("%s: the join is %s", v.name, outcome), v.check}
}

func (v verdict) check(e *env) {
	id := e.startJoin(verdictSteps, v.join)
	e.settleSteps(id, v.completed, v.failed)
	if v.late {
		e.Elapse(61 * time.Minute)
	}
	want := e.getJoin(id)
	var seen []roles.Join
	request := roles.FinishRequest{FailIfAnyStepFailed: v.failIfAny, Then: func(join roles.Join) (*outmill.Record, error) {
		seen = append(seen, join)
		return suite.Rec(done, "end"), nil
	}}
	for call := range 2 {
		result, err := e.joins().FinishJoin(e.Ctx, id, request)
		require.NoError(e.T, err)
		require.Equal(e.T, v.want != roles.JoinPending && call == 0, result.Finished, "finished by call %d", call)
		v.requireEnd(e, want, &result.Join)
		v.requireEnd(e, want, e.getJoin(id))
	}
	records := e.List(outmill.ListQuery{Topic: done})
	if v.want == roles.JoinPending {
		require.Empty(e.T, seen, "Then was called")
		require.Empty(e.T, records)
		return
	}
	e.RequireNames([]string{"end"}, records)
	require.NotEmpty(e.T, seen, "Then was not called")
	v.requireEnd(e, want, &seen[len(seen)-1])
}

func (v verdict) requireEnd(e *env, before, got *roles.Join) {
	e.T.Helper()
	require.Equal(e.T, v.want, got.Status)
	require.Equal(e.T, v.reason, got.Reason)
	require.Equal(e.T, []int{v.completed, v.failed}, []int{got.CompletedSteps, got.FailedSteps}, "steps completed, failed")
	require.Equal(e.T, before.ID, got.ID)
	require.Equal(e.T, before.ExpectedSteps, got.ExpectedSteps)
	require.Equal(e.T, before.Policy, got.Policy)
}

// settleSteps appends steps of the join and reports them.
func (e *env) settleSteps(id outmill.JoinID, completed, failed int) {
	e.T.Helper()
	if completed+failed == 0 {
		return
	}
	for i, r := range e.members(id, suite.Numbered(completed+failed)...) {
		if i < completed {
			e.reportCompleted(id, r)
		} else {
			e.reportFailed(id, r)
		}
	}
}
