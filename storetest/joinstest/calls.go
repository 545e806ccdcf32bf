package joinstest

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func callSentences() []sentence {
	return []sentence{
		{"calls of Joins other than StartJoin take no notice of a transaction in the context", otherJoinCallsTakeNoNotice},
		{"every call of Joins on a closed store is ErrClosed", closedJoins},
		{"every call of Joins with a context that was cancelled is its error, and does nothing", cancelledJoinCalls},
		{"every call of Joins with a context whose deadline has passed is its error, and does nothing", lateJoinCalls},
	}
}

// joinCall is a call that changes or returns something of the join and its step if it succeeds.
type joinCall struct {
	name string
	do   func(ctx context.Context, joins roles.Joins, join outmill.JoinID, step outmill.WorkItemID) error
}

func joinCalls() []joinCall {
	return []joinCall{
		{"StartJoin", func(ctx context.Context, j roles.Joins, _ outmill.JoinID, _ outmill.WorkItemID) error {
			return j.StartJoin(ctx, newJoin(1))
		}},
		{"AttachStep", func(ctx context.Context, j roles.Joins, id outmill.JoinID, step outmill.WorkItemID) error {
			return j.AttachStep(ctx, id, step)
		}},
		{"ReportCompleted", func(ctx context.Context, j roles.Joins, id outmill.JoinID, step outmill.WorkItemID) error {
			return j.ReportCompleted(ctx, id, step)
		}},
		{"ReportFailed", func(ctx context.Context, j roles.Joins, id outmill.JoinID, step outmill.WorkItemID) error {
			return j.ReportFailed(ctx, id, step)
		}},
		{"SealJoin", func(ctx context.Context, j roles.Joins, id outmill.JoinID, _ outmill.WorkItemID) error {
			return j.SealJoin(ctx, id, 1)
		}},
		{"GetJoin", func(ctx context.Context, j roles.Joins, id outmill.JoinID, _ outmill.WorkItemID) error {
			_, err := j.GetJoin(ctx, id)
			return err
		}},
		{"ListJoins", func(ctx context.Context, j roles.Joins, _ outmill.JoinID, _ outmill.WorkItemID) error {
			_, err := j.ListJoins(ctx, roles.JoinQuery{})
			return err
		}},
		{"ListSteps", func(ctx context.Context, j roles.Joins, id outmill.JoinID, _ outmill.WorkItemID) error {
			_, err := j.ListSteps(ctx, id, outmill.WorkItemID{}, 0)
			return err
		}},
		{"DeleteJoins", func(ctx context.Context, j roles.Joins, _ outmill.JoinID, _ outmill.WorkItemID) error {
			_, err := j.DeleteJoins(ctx, 10)
			return err
		}},
		{"FinishJoin", func(ctx context.Context, j roles.Joins, id outmill.JoinID, _ outmill.WorkItemID) error {
			_, err := j.FinishJoin(ctx, id, finishing(then("end")))
			return err
		}},
		{"CancelJoin", func(ctx context.Context, j roles.Joins, id outmill.JoinID, _ outmill.WorkItemID) error {
			return j.CancelJoin(ctx, id, "enough")
		}},
	}
}

// anyOpenStep starts a join whose deadline has passed, so that every call changes it.
func (e *env) anyOpenStep() (outmill.JoinID, *outmill.Record) {
	e.T.Helper()
	id := e.startJoin(0, unsealed, anyStep, func(j *roles.Join) { j.Deadline = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) })
	return id, e.members(id, "m1")[0]
}

func otherJoinCallsTakeNoNotice(e *env) {
	for _, call := range joinCalls() {
		id, step := e.anyOpenStep()
		err := call.do(suite.Foreign(e.Ctx), e.joins(), id, step.ID)
		switch call.name {
		case "StartJoin":
			require.ErrorIs(e.T, err, outmill.ErrForeignTx, call.name)
		case "AttachStep":
			require.True(e.T, err == nil || errors.Is(err, roles.ErrUnknownMessage), "%s: %v", call.name, err)
		default:
			require.NoError(e.T, err, call.name)
		}
	}
}

func closedJoins(e *env) {
	id, step := e.anyOpenStep()
	require.NoError(e.T, e.Store.Close())
	for _, call := range joinCalls() {
		require.ErrorIs(e.T, call.do(e.Ctx, e.joins(), id, step.ID), outmill.ErrClosed, call.name)
	}
}

func cancelledJoinCalls(e *env) {
	ctx, cancel := context.WithCancel(e.Ctx)
	cancel()
	e.requireNoJoinCall(ctx, context.Canceled)
}

func lateJoinCalls(e *env) {
	ctx, cancel := context.WithDeadline(e.Ctx, time.Now().Add(-time.Second))
	defer cancel()
	e.requireNoJoinCall(ctx, context.DeadlineExceeded)
}

func (e *env) requireNoJoinCall(ctx context.Context, want error) {
	e.T.Helper()
	id, step := e.anyOpenStep()
	before := e.seen()
	for _, call := range joinCalls() {
		require.ErrorIs(e.T, call.do(ctx, e.joins(), id, step.ID), want, call.name)
	}
	require.ErrorIs(e.T, e.Store.Append(ctx, suite.Rec(orders, "m2", withJoins(id))), want)
	require.Equal(e.T, before, e.seen())
	e.completeSteps(step)
	e.requireFinished(id, roles.JoinCompleted)
}
