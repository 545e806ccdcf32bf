package joinstest

import (
	"context"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

const (
	// joinRetention is how long a store keeps joins that have ended, by default.
	joinRetention = 24 * time.Hour
	// waitings is the topic of records that wait for a join, and later is how long they wait.
	waitings = "waitings"
	later    = 100 * time.Hour
	// done is the topic of the messages that follow joins.
	done = "done"
)

func sections() []suite.Section {
	return []suite.Section{
		{Name: "start", Sentences: bind(startSentences()), AnyMode: true},
		{Name: "append", Sentences: bind(appendSentences()), AnyMode: true},
		{Name: "settle", Sentences: bind(settleSentences())},
		{Name: "groups", Sentences: bind(groupSentences())},
		{Name: "undeliverable", Sentences: bind(undeliverableSentences()), AnyMode: true},
		{Name: "attach", Sentences: bind(attachSentences()), Retained: true},
		{Name: "report", Sentences: bind(reportSentences())},
		{Name: "finish", Sentences: bind(finishSentences()), AnyMode: true},
		{Name: "seal", Sentences: bind(sealSentences()), AnyMode: true},
		{Name: "cancel", Sentences: bind(cancelSentences()), AnyMode: true},
		{Name: "inspect", Sentences: bind(inspectSentences()), AnyMode: true},
		{Name: "wait", Sentences: bind(waitSentences())},
		{Name: "calls", Sentences: bind(callSentences()), AnyMode: true},
		{Name: "workers", Sentences: bind(workerSentences())},
		{Name: "model", Sentences: bind(modelSentences())},
	}
}

func (e *env) joins() roles.Joins { return e.Store.(roles.Joins) }

// startJoin starts a join with this number of steps.
func (e *env) startJoin(steps int, changes ...func(*roles.Join)) outmill.JoinID {
	e.T.Helper()
	join := newJoin(steps, changes...)
	require.NoError(e.T, e.joins().StartJoin(e.Ctx, join), "StartJoin")
	return join.ID
}

func newJoin(steps int, changes ...func(*roles.Join)) *roles.Join {
	join := &roles.Join{ExpectedSteps: steps}
	for _, change := range changes {
		change(join)
	}
	return join
}

func unsealed(j *roles.Join) { j.ExpectedSteps, j.Unsealed = 0, true }

func plainJoin(*roles.Join) {}

func anyStep(j *roles.Join) { j.Policy = roles.JoinAny }

func quorumOf(k int) func(*roles.Join) {
	return func(j *roles.Join) { j.Policy, j.Quorum = roles.JoinQuorum, k }
}

func grouped(key string) func(*roles.Join) {
	return func(j *roles.Join) { j.GroupingKey = key }
}

func inAnHour(j *roles.Join) { j.Timeout = time.Hour }

func completeLate(j *roles.Join) { j.Timeout, j.CompleteAtDeadline = time.Hour, true }

func withJoins(ids ...outmill.JoinID) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Joins = ids }
}

// waiter returns a record that is due in a long time, or as soon as the join is decided.
func waiter(id outmill.JoinID) *outmill.Record {
	return suite.Rec(waitings, "waiter", suite.WithDelay(later), waitsFor(id))
}

func waitsFor(id outmill.JoinID) func(*outmill.Record) {
	return func(r *outmill.Record) { r.WaitsFor = id }
}

// members registers the usual group, and appends a step of the join for each
// name.
func (e *env) members(id outmill.JoinID, names ...string) []*outmill.Record {
	e.T.Helper()
	records := suite.Recs(orders, withJoins(id), names...)
	e.Filled(records...)
	return records
}

// claimThe claims the record, and leaves the others of its topic.
func (e *env) claimThe(r *outmill.Record) *outmill.Record {
	e.T.Helper()
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.From(r.Topic))
	require.Contains(e.T, found, r.MessageID, "claimed")
	claimed := found[r.MessageID]
	delete(found, r.MessageID)
	for _, other := range found {
		e.Release(other)
	}
	return claimed
}

// completeSteps and failSteps settle steps by settling their messages.
func (e *env) completeSteps(records ...*outmill.Record) {
	e.T.Helper()
	for _, r := range records {
		e.Ack(e.claimThe(r))
	}
}

func (e *env) failSteps(records ...*outmill.Record) {
	e.T.Helper()
	for _, r := range records {
		e.Fail(e.claimThe(r))
	}
}

func (e *env) reportCompleted(id outmill.JoinID, r *outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.joins().ReportCompleted(e.Ctx, id, r.ID), "ReportCompleted")
}

func (e *env) reportFailed(id outmill.JoinID, r *outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.joins().ReportFailed(e.Ctx, id, r.ID), "ReportFailed")
}

func (e *env) getJoin(id outmill.JoinID) *roles.Join {
	e.T.Helper()
	join, err := e.joins().GetJoin(e.Ctx, id)
	require.NoError(e.T, err, "GetJoin")
	require.Equal(e.T, id, join.ID)
	return join
}

func (e *env) requireNoJoin(id outmill.JoinID) {
	e.T.Helper()
	_, err := e.joins().GetJoin(e.Ctx, id)
	require.ErrorIs(e.T, err, roles.ErrUnknownJoin)
}

// allJoins pages through all joins.
func (e *env) allJoins() []*roles.Join {
	e.T.Helper()
	return listAllJoins(e.Ctx, e.T, e.joins(), roles.JoinQuery{})
}

func listAllJoins(ctx context.Context, t require.TestingT, joins roles.Joins, query roles.JoinQuery) []*roles.Join {
	query.Limit = 1000
	var all []*roles.Join
	for {
		page, err := joins.ListJoins(ctx, query)
		require.NoError(t, err, "ListJoins")
		all = append(all, page...)
		if len(page) < query.Limit {
			return all
		}
		query.After = page[len(page)-1].ID
	}
}

// steps pages through the steps of the join.
func (e *env) steps(id outmill.JoinID) map[outmill.WorkItemID]roles.StepStatus {
	e.T.Helper()
	return listAllSteps(e.Ctx, e.T, e.joins(), id)
}

func listAllSteps(ctx context.Context, t require.TestingT, joins roles.Joins,
	id outmill.JoinID) map[outmill.WorkItemID]roles.StepStatus {
	const limit = 1000
	all := map[outmill.WorkItemID]roles.StepStatus{}
	var after outmill.WorkItemID
	for {
		page, err := joins.ListSteps(ctx, id, after, limit)
		require.NoError(t, err, "ListSteps")
		for _, step := range page {
			// NotContains would compare it with each.
			_, twice := all[step.ID]
			require.False(t, twice, "two steps of one id: %s", step.ID)
			all[step.ID] = step.Status
			after = step.ID
		}
		if len(page) < limit {
			return all
		}
	}
}

// requireCounts checks the join's counters, and that they agree with its steps.
func (e *env) requireCounts(id outmill.JoinID, completed, failed int) {
	e.T.Helper()
	requireSound(e.Ctx, e.T, e.joins(), id)
	join := e.getJoin(id)
	require.Equal(e.T, []int{completed, failed}, []int{join.CompletedSteps, join.FailedSteps}, "steps completed, failed")
}

// requireSound checks that the join's counters agree with its steps.
func requireSound(ctx context.Context, t require.TestingT, joins roles.Joins, id outmill.JoinID) {
	join, err := joins.GetJoin(ctx, id)
	require.NoError(t, err, "GetJoin")
	counts := map[roles.StepStatus]int{}
	for _, status := range listAllSteps(ctx, t, joins, id) {
		counts[status]++
	}
	require.Equal(t,
		[]int{counts[roles.StepCompleted], counts[roles.StepFailed]}, []int{join.CompletedSteps, join.FailedSteps},
		"steps completed, failed: by their states, by the counters of the %s join", join.Status)
}

func (e *env) requireStep(id outmill.JoinID, r *outmill.Record, want roles.StepStatus) {
	e.T.Helper()
	require.Equal(e.T, want, e.steps(id)[r.ID], "step %s", r.MessageID)
}

func (e *env) requireJoin(id outmill.JoinID, want roles.JoinStatus) {
	e.T.Helper()
	require.Equal(e.T, want, e.getJoin(id).Status, "status of the join")
}

func (e *env) finish(id outmill.JoinID, changes ...func(*roles.FinishRequest)) roles.FinishResult {
	e.T.Helper()
	result, err := e.joins().FinishJoin(e.Ctx, id, finishing(changes...))
	require.NoError(e.T, err, "FinishJoin")
	require.Equal(e.T, id, result.Join.ID)
	return result
}

// requireFinished finishes the join.
func (e *env) requireFinished(id outmill.JoinID, want roles.JoinStatus) {
	e.T.Helper()
	result := e.finish(id, failIfAny)
	require.True(e.T, result.Finished, "finished")
	require.Equal(e.T, want, result.Join.Status)
}

func finishing(changes ...func(*roles.FinishRequest)) roles.FinishRequest {
	var request roles.FinishRequest
	for _, change := range changes {
		change(&request)
	}
	return request
}

func failIfAny(r *roles.FinishRequest) { r.FailIfAnyStepFailed = true }

// then appends a record of that name when the join ends.
func then(name string, changes ...func(*outmill.Record)) func(*roles.FinishRequest) {
	return func(r *roles.FinishRequest) {
		r.Then = func(roles.Join) (*outmill.Record, error) { return suite.Rec(done, name, changes...), nil }
	}
}

// ended returns a completed, a failed and a cancelled join, each with room for
// steps.
func (e *env) ended() map[string]outmill.JoinID {
	e.T.Helper()
	e.Register(group)
	all := map[string]outmill.JoinID{"completed": e.startJoin(3, anyStep), "failed": e.startJoin(2, quorumOf(2)), "cancelled": e.startJoin(2)}
	ok, bad := suite.Rec(orders, "completes", withJoins(all["completed"])), suite.Rec(orders, "fails", withJoins(all["failed"]))
	e.Append(ok, bad)
	e.reportCompleted(all["completed"], ok)
	e.reportFailed(all["failed"], bad)
	e.requireFinished(all["completed"], roles.JoinCompleted)
	e.requireFinished(all["failed"], roles.JoinFailed)
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, all["cancelled"], "no longer wanted"))
	e.Delete(ok, bad)
	return all
}

// workers runs this number of workers at the same time, on two stores of one database.
func (e *env) workers(n int, work func(i int, store joinStore) error) {
	e.T.Helper()
	e.workersOn(e.twoStores(), n, work)
}

func (e *env) twoStores() []joinStore {
	e.T.Helper()
	return []joinStore{e.Store.(joinStore), e.Reopen().(joinStore)}
}

func (e *env) workersOn(stores []joinStore, n int, work func(i int, store joinStore) error) {
	e.T.Helper()
	e.Together(n, func(i int) error { return work(i, stores[i%len(stores)]) })
}

// joinStore is a store with the role roles.Joins.
type joinStore interface {
	outmill.Store
	roles.Joins
}
