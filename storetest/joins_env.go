package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// joinRetention is how long a store keeps joins that have ended, unless it is
	// told otherwise.
	joinRetention = 24 * time.Hour
	// waitings is the topic of records that wait for a join, and later how long
	// they do.
	waitings = "waitings"
	later    = 100 * time.Hour
	// done is the topic of what is published when a join ends.
	done = "done"
)

func joinSections() []section {
	list := []section{
		{name: "join start", sentences: joinStartSentences(), anyMode: true},
		{name: "join append", sentences: joinAppendSentences(), anyMode: true},
		{name: "join settle", sentences: joinSettleSentences()},
		{name: "join groups", sentences: joinGroupSentences()},
		{name: "join attach", sentences: joinAttachSentences(), retained: true},
		{name: "join report", sentences: joinReportSentences()},
		{name: "join finish", sentences: joinFinishSentences(), anyMode: true},
		{name: "join seal", sentences: joinSealSentences(), anyMode: true},
		{name: "join cancel", sentences: joinCancelSentences(), anyMode: true},
		{name: "join inspect", sentences: joinInspectSentences(), anyMode: true},
		{name: "join wait", sentences: joinWaitSentences()},
		{name: "join calls", sentences: joinCallSentences(), anyMode: true},
		{name: "join workers", sentences: joinWorkerSentences()},
		{name: "join model", sentences: joinModelSentences()},
	}
	for i := range list {
		list[i].joins = true
	}
	return list
}

func (e *env) joins() storekit.Joins { return e.store.(storekit.Joins) }

// startJoin begins a join of that many steps.
func (e *env) startJoin(steps int, changes ...func(*storekit.Join)) outmill.JoinID {
	e.t.Helper()
	join := newJoin(steps, changes...)
	require.NoError(e.t, e.joins().StartJoin(e.ctx, join), "StartJoin")
	return join.ID
}

func newJoin(steps int, changes ...func(*storekit.Join)) *storekit.Join {
	join := &storekit.Join{ExpectedSteps: steps}
	for _, change := range changes {
		change(join)
	}
	return join
}

func unsealed(j *storekit.Join) { j.ExpectedSteps, j.Unsealed = 0, true }

func plainJoin(*storekit.Join) {}

func anyStep(j *storekit.Join) { j.Policy = storekit.JoinAny }

func quorumOf(k int) func(*storekit.Join) {
	return func(j *storekit.Join) { j.Policy, j.Quorum = storekit.JoinQuorum, k }
}

func grouped(key string) func(*storekit.Join) {
	return func(j *storekit.Join) { j.GroupingKey = key }
}

func inAnHour(j *storekit.Join) { j.Timeout = time.Hour }

func completeLate(j *storekit.Join) { j.Timeout, j.CompleteAtDeadline = time.Hour, true }

func withJoins(ids ...outmill.JoinID) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Joins = ids }
}

// waiter is a record that is due in a long time, or as soon as the join is
// decided.
func waiter(id outmill.JoinID) *outmill.Record {
	return rec(waitings, "waiter", withDelay(later), waitsFor(id))
}

func waitsFor(id outmill.JoinID) func(*outmill.Record) {
	return func(r *outmill.Record) { r.WaitsFor = id }
}

// members registers the usual group, and appends a step of the join for each
// name.
func (e *env) members(id outmill.JoinID, names ...string) []*outmill.Record {
	e.t.Helper()
	records := recs(orders, withJoins(id), names...)
	e.filled(records...)
	return records
}

// claimThe claims the record, and leaves the others of its topic.
func (e *env) claimThe(r *outmill.Record) *outmill.Record {
	e.t.Helper()
	found := e.claimNamed(outmill.NewOwnerToken(), from(r.Topic))
	require.Contains(e.t, found, r.MessageID, "claimed")
	claimed := found[r.MessageID]
	delete(found, r.MessageID)
	for _, other := range found {
		e.release(other)
	}
	return claimed
}

// completeSteps and failSteps settle steps by what becomes of their messages.
func (e *env) completeSteps(records ...*outmill.Record) {
	e.t.Helper()
	for _, r := range records {
		e.ack(e.claimThe(r))
	}
}

func (e *env) failSteps(records ...*outmill.Record) {
	e.t.Helper()
	for _, r := range records {
		e.fail(e.claimThe(r))
	}
}

func (e *env) reportCompleted(id outmill.JoinID, r *outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.joins().ReportCompleted(e.ctx, id, r.ID), "ReportCompleted")
}

func (e *env) reportFailed(id outmill.JoinID, r *outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.joins().ReportFailed(e.ctx, id, r.ID), "ReportFailed")
}

func (e *env) getJoin(id outmill.JoinID) *storekit.Join {
	e.t.Helper()
	join, err := e.joins().GetJoin(e.ctx, id)
	require.NoError(e.t, err, "GetJoin")
	require.Equal(e.t, id, join.ID)
	return join
}

func (e *env) requireNoJoin(id outmill.JoinID) {
	e.t.Helper()
	_, err := e.joins().GetJoin(e.ctx, id)
	require.ErrorIs(e.t, err, storekit.ErrUnknownJoin)
}

// allJoins pages through all joins.
func (e *env) allJoins() []*storekit.Join {
	e.t.Helper()
	return listAllJoins(e.ctx, e.t, e.joins(), storekit.JoinQuery{})
}

func listAllJoins(ctx context.Context, t require.TestingT, joins storekit.Joins, query storekit.JoinQuery) []*storekit.Join {
	query.Limit = 1000
	var all []*storekit.Join
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
func (e *env) steps(id outmill.JoinID) map[outmill.WorkItemID]storekit.StepStatus {
	e.t.Helper()
	return listAllSteps(e.ctx, e.t, e.joins(), id)
}

func listAllSteps(ctx context.Context, t require.TestingT, joins storekit.Joins, id outmill.JoinID) map[outmill.WorkItemID]storekit.StepStatus {
	const limit = 1000
	all := map[outmill.WorkItemID]storekit.StepStatus{}
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

// requireCounts checks the join's counters, and that they are those of its
// steps.
func (e *env) requireCounts(id outmill.JoinID, completed, failed int) {
	e.t.Helper()
	requireSound(e.ctx, e.t, e.joins(), id)
	join := e.getJoin(id)
	require.Equal(e.t, []int{completed, failed}, []int{join.CompletedSteps, join.FailedSteps}, "steps completed, failed")
}

// requireSound checks that the join's counters are those of its steps.
func requireSound(ctx context.Context, t require.TestingT, joins storekit.Joins, id outmill.JoinID) {
	join, err := joins.GetJoin(ctx, id)
	require.NoError(t, err, "GetJoin")
	counts := map[storekit.StepStatus]int{}
	for _, status := range listAllSteps(ctx, t, joins, id) {
		counts[status]++
	}
	require.Equal(t,
		[]int{counts[storekit.StepCompleted], counts[storekit.StepFailed]}, []int{join.CompletedSteps, join.FailedSteps},
		"steps completed, failed: by their states, by the counters of the %s join", join.Status)
}

func (e *env) requireStep(id outmill.JoinID, r *outmill.Record, want storekit.StepStatus) {
	e.t.Helper()
	require.Equal(e.t, want, e.steps(id)[r.ID], "step %s", r.MessageID)
}

func (e *env) requireJoin(id outmill.JoinID, want storekit.JoinStatus) {
	e.t.Helper()
	require.Equal(e.t, want, e.getJoin(id).Status, "status of the join")
}

func (e *env) finish(id outmill.JoinID, changes ...func(*storekit.FinishRequest)) storekit.FinishResult {
	e.t.Helper()
	result, err := e.joins().FinishJoin(e.ctx, id, finishing(changes...))
	require.NoError(e.t, err, "FinishJoin")
	require.Equal(e.t, id, result.Join.ID)
	return result
}

// requireFinished finishes the join.
func (e *env) requireFinished(id outmill.JoinID, want storekit.JoinStatus) {
	e.t.Helper()
	result := e.finish(id, failIfAny)
	require.True(e.t, result.Finished, "finished")
	require.Equal(e.t, want, result.Join.Status)
}

func finishing(changes ...func(*storekit.FinishRequest)) storekit.FinishRequest {
	var request storekit.FinishRequest
	for _, change := range changes {
		change(&request)
	}
	return request
}

func failIfAny(r *storekit.FinishRequest) { r.FailIfAnyStepFailed = true }

// then appends a record of that name as the join ends.
func then(name string, changes ...func(*outmill.Record)) func(*storekit.FinishRequest) {
	return func(r *storekit.FinishRequest) {
		r.Then = func(storekit.Join) (*outmill.Record, error) { return rec(done, name, changes...), nil }
	}
}

// ended returns a completed, a failed and a cancelled join, each with room for
// steps.
func (e *env) ended() map[string]outmill.JoinID {
	e.t.Helper()
	e.register(group)
	all := map[string]outmill.JoinID{"completed": e.startJoin(3, anyStep), "failed": e.startJoin(2, quorumOf(2)), "cancelled": e.startJoin(2)}
	ok, bad := rec(orders, "completes", withJoins(all["completed"])), rec(orders, "fails", withJoins(all["failed"]))
	e.append(ok, bad)
	e.reportCompleted(all["completed"], ok)
	e.reportFailed(all["failed"], bad)
	e.requireFinished(all["completed"], storekit.JoinCompleted)
	e.requireFinished(all["failed"], storekit.JoinFailed)
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, all["cancelled"], "no longer wanted"))
	e.delete(ok, bad)
	return all
}

// workers runs that many at once, on two stores of one database.
func (e *env) workers(n int, work func(i int, store joinStore) error) {
	e.t.Helper()
	e.workersOn(e.twoStores(), n, work)
}

func (e *env) twoStores() []joinStore {
	e.t.Helper()
	return []joinStore{e.store.(joinStore), e.reopen().(joinStore)}
}

func (e *env) workersOn(stores []joinStore, n int, work func(i int, store joinStore) error) {
	e.t.Helper()
	var all errgroup.Group
	for i := range n {
		all.Go(func() error { return work(i, stores[i%len(stores)]) })
	}
	require.NoError(e.t, all.Wait())
}

// joinStore is a store with the role.
type joinStore interface {
	outmill.Store
	storekit.Joins
}
