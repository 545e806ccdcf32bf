package joinstest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func inspectSentences() []sentence {
	return []sentence{
		{"GetJoin of an unknown join is ErrUnknownJoin", getUnknownJoin},
		{"ListJoins returns joins whole, in the order of their ids", listJoinOrder},
		{"OBX-095 ListJoins selects by grouping key, compared exactly", listByGroupingKey},
		{"ListJoins selects by status", listByStatus},
		{"an unknown status in a query of joins is refused", refuseJoinStatus},
		{"ListJoins pages behind an id, whether or not the join is there", listJoinPages},
		{"ListJoins without a limit returns a hundred", listJoinLimit},
		{"ListSteps returns steps in the order of their ids, in pages", listStepPages},
		{"ListSteps without a limit returns a hundred", listStepLimit},
		{"negative limits of ListJoins and ListSteps are refused", refuseJoinLimits},
		{"DeleteJoins deletes joins that ended longer ago than the retention, with their steps", deleteJoins},
		{"DeleteJoins leaves pending joins, however old, and the messages of all", deleteJoinsLeaves},
		{"DeleteJoins does no more than its limit", deleteJoinsLimit},
		{"DeleteJoins with a limit below 1 is refused", refuseDeleteJoins},
		{"a deleted join is unknown, and the messages of its steps are settled as others are", deletedJoinIsUnknown},
		{"a step of a deleted join and of another counts for the other", stepOutlivesJoin},
	}
}

func getUnknownJoin(e *env) {
	e.startJoin(1)
	e.requireNoJoin(outmill.NewJoinID())
	e.requireNoJoin(outmill.JoinID{})
}

func listJoinOrder(e *env) {
	require.Empty(e.T, e.allJoins())
	for _, first := range []byte{0x80, 0x10, 0xff, 0x20, 0x7f} {
		e.startJoin(2, grouped(fmt.Sprintf("%02x", first)), func(j *roles.Join) { j.ID = outmill.JoinID{first, 15: 1} })
	}
	var got []string
	for _, join := range e.allJoins() {
		got = append(got, join.GroupingKey)
		require.Equal(e.T, e.getJoin(join.ID), join)
	}
	require.Equal(e.T, []string{"10", "20", "7f", "80", "ff"}, got)
}

func listByGroupingKey(e *env) {
	keys := []string{"customer", "Customer", "customer 1", "customer%", "c_stomer", `it's \`, "日本", "ǵ", "g\u0301"}
	want := map[string][]outmill.JoinID{}
	for range 2 {
		for _, key := range keys {
			want[key] = append(want[key], e.startJoin(1, grouped(key)))
		}
	}
	for _, key := range append(keys, "nobody", "' OR '1'='1", "%", "*") {
		var got []outmill.JoinID
		for _, join := range listAllJoins(e.Ctx, e.T, e.joins(), roles.JoinQuery{GroupingKey: key}) {
			require.Equal(e.T, key, join.GroupingKey)
			got = append(got, join.ID)
		}
		require.Equal(e.T, want[key], got, "joins of %q", key)
	}
	require.Len(e.T, e.allJoins(), 2*len(keys))
}

func listByStatus(e *env) {
	key := "g"
	ended := e.ended()
	want := map[roles.JoinStatus][]outmill.JoinID{
		roles.JoinPending:   {e.startJoin(1), e.startJoin(1, grouped(key))},
		roles.JoinCompleted: {ended["completed"]},
		roles.JoinFailed:    {ended["failed"]},
		roles.JoinCancelled: {ended["cancelled"]},
	}
	for status, ids := range want {
		require.Equal(e.T, ids, joinIDsOf(listAllJoins(e.Ctx, e.T, e.joins(), roles.JoinQuery{Status: status})), status)
	}
	pending := want[roles.JoinPending]
	query := roles.JoinQuery{Status: roles.JoinPending, GroupingKey: key}
	require.Equal(e.T, pending[1:], joinIDsOf(listAllJoins(e.Ctx, e.T, e.joins(), query)))
	query = roles.JoinQuery{Status: roles.JoinPending, After: pending[0]}
	require.Equal(e.T, pending[1:], joinIDsOf(listAllJoins(e.Ctx, e.T, e.joins(), query)))
}

func refuseJoinStatus(e *env) {
	_, err := e.joins().ListJoins(e.Ctx, roles.JoinQuery{Status: "done"})
	e.RequireRefusal(err)
}

func joinIDsOf(joins []*roles.Join) []outmill.JoinID {
	list := make([]outmill.JoinID, len(joins))
	for i, join := range joins {
		list[i] = join.ID
	}
	return list
}

func listJoinPages(e *env) {
	key := "g"
	var want []outmill.JoinID
	for first := range byte(7) {
		want = append(want, e.startJoin(1, grouped(key), func(j *roles.Join) { j.ID = outmill.JoinID{first, 15: 1} }))
		e.startJoin(1, func(j *roles.Join) { j.ID = outmill.JoinID{first, 15: 2} })
	}
	var got []outmill.JoinID
	query := roles.JoinQuery{GroupingKey: key, Limit: 3}
	for _, n := range []int{3, 3, 1, 0} {
		page, err := e.joins().ListJoins(e.Ctx, query)
		require.NoError(e.T, err)
		require.Len(e.T, page, n)
		got = append(got, joinIDsOf(page)...)
		if n > 0 {
			query.After = page[n-1].ID
		}
	}
	require.Equal(e.T, want, got)
	page, err := e.joins().ListJoins(e.Ctx, roles.JoinQuery{After: outmill.JoinID{3, 15: 3}, Limit: 3})
	require.NoError(e.T, err)
	require.Equal(e.T, []outmill.JoinID{want[4], {4, 15: 2}, want[5]}, joinIDsOf(page))
}

func listJoinLimit(e *env) {
	all := numberedJoins(e, 110)
	page, err := e.joins().ListJoins(e.Ctx, roles.JoinQuery{})
	require.NoError(e.T, err)
	require.Equal(e.T, all[:100], joinIDsOf(page))
}

func listStepPages(e *env) {
	id := e.startJoin(7)
	want := suite.IDs(e.members(id, suite.Numbered(7)...))
	slices.SortFunc(want, func(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) })
	e.members(e.startJoin(1), "of another join")
	var got []outmill.WorkItemID
	var after outmill.WorkItemID
	for _, n := range []int{3, 3, 1, 0} {
		page, err := e.joins().ListSteps(e.Ctx, id, after, 3)
		require.NoError(e.T, err)
		require.Len(e.T, page, n)
		for _, step := range page {
			got = append(got, step.ID)
			after = step.ID
		}
	}
	require.Equal(e.T, want, got)
}

func listStepLimit(e *env) {
	id := e.startJoin(110)
	e.members(id, suite.Numbered(110)...)
	page, err := e.joins().ListSteps(e.Ctx, id, outmill.WorkItemID{}, 0)
	require.NoError(e.T, err)
	require.Len(e.T, page, 100)
}

func refuseJoinLimits(e *env) {
	_, err := e.joins().ListJoins(e.Ctx, roles.JoinQuery{Limit: -1})
	e.RequireRefusal(err, "ListJoins")
	_, err = e.joins().ListSteps(e.Ctx, e.startJoin(1), outmill.WorkItemID{}, -1)
	e.RequireRefusal(err, "ListSteps")
}

func deleteJoins(e *env) {
	ended := e.ended()
	require.Zero(e.T, e.Did(e.joins().DeleteJoins, 10))
	e.Elapse(joinRetention - time.Minute)
	young := e.startJoin(1)
	e.settleSteps(young, 1, 0)
	e.requireFinished(young, roles.JoinCompleted)
	require.Zero(e.T, e.Did(e.joins().DeleteJoins, 10))
	e.Elapse(2 * time.Minute)
	require.Equal(e.T, 3, e.Did(e.joins().DeleteJoins, 10))
	require.Zero(e.T, e.Did(e.joins().DeleteJoins, 10))
	require.Equal(e.T, []outmill.JoinID{young}, joinIDsOf(e.allJoins()))
	for _, id := range ended {
		e.requireNoJoin(id)
	}
	// A new join with the same id has nothing of the old one.
	again := e.startJoin(1, func(j *roles.Join) { j.ID = ended["completed"] })
	require.Empty(e.T, e.steps(again))
	e.requireCounts(again, 0, 0)
}

func deleteJoinsLeaves(e *env) {
	pending, ended := e.startJoin(2), e.startJoin(2, anyStep)
	e.settleSteps(pending, 1, 0)
	e.settleSteps(ended, 1, 1)
	e.requireFinished(ended, roles.JoinCompleted)
	e.Elapse(10 * joinRetention)
	require.Equal(e.T, 1, e.Did(e.joins().DeleteJoins, 10))
	e.requireCounts(pending, 1, 0)
	require.Len(e.T, e.List(outmill.ListQuery{}), 3)
}

func deleteJoinsLimit(e *env) {
	for _, id := range numberedJoins(e, 10) {
		require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, ""))
	}
	e.Elapse(joinRetention + time.Minute)
	for _, want := range []int{4, 4, 2, 0} {
		require.Equal(e.T, want, e.Did(e.joins().DeleteJoins, 4))
	}
	require.Empty(e.T, e.allJoins())
}

func refuseDeleteJoins(e *env) {
	for _, limit := range []int{0, -1} {
		_, err := e.joins().DeleteJoins(e.Ctx, limit)
		e.RequireRefusal(err, "limit %d", limit)
	}
}

// deleteJoin cancels the join and waits for its retention.
func (e *env) deleteJoin(id outmill.JoinID) {
	e.T.Helper()
	require.NoError(e.T, e.joins().CancelJoin(e.Ctx, id, ""))
	e.Elapse(joinRetention + time.Minute)
	require.Equal(e.T, 1, e.Did(e.joins().DeleteJoins, 10))
}

func deletedJoinIsUnknown(e *env) {
	id := e.startJoin(4)
	e.members(id, "acked", "dead", "deleted")
	e.Append(waiter(id))
	e.deleteJoin(id)
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "late", withJoins(id))), roles.ErrUnknownJoin)
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.From(orders))
	require.Len(e.T, found, 3)
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	require.Equal(e.T, 1, e.Requeue(found["dead"]))
	require.Equal(e.T, 1, e.Delete(found["deleted"]))
	e.Drop(group)
	_, err := e.joins().FinishJoin(e.Ctx, id, roles.FinishRequest{})
	require.ErrorIs(e.T, err, roles.ErrUnknownJoin)
}

func stepOutlivesJoin(e *env) {
	gone, stays := e.startJoin(2), e.startJoin(2)
	records := suite.Recs(orders, withJoins(gone, stays), "m1", "m2")
	e.Filled(records...)
	e.deleteJoin(gone)
	e.completeSteps(records[0])
	e.failSteps(records[1])
	e.requireCounts(stays, 1, 1)
	require.Equal(e.T, 1, e.Requeue(records[1]))
	e.requireCounts(stays, 1, 0)
}
