package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinInspectSentences() []sentence {
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
	require.Empty(e.t, e.allJoins())
	for _, first := range []byte{0x80, 0x10, 0xff, 0x20, 0x7f} {
		e.startJoin(2, grouped(fmt.Sprintf("%02x", first)), func(j *storekit.Join) { j.ID = outmill.JoinID{first, 15: 1} })
	}
	var got []string
	for _, join := range e.allJoins() {
		got = append(got, join.GroupingKey)
		require.Equal(e.t, e.getJoin(join.ID), join)
	}
	require.Equal(e.t, []string{"10", "20", "7f", "80", "ff"}, got)
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
		for _, join := range listAllJoins(e.ctx, e.t, e.joins(), storekit.JoinQuery{GroupingKey: key}) {
			require.Equal(e.t, key, join.GroupingKey)
			got = append(got, join.ID)
		}
		require.Equal(e.t, want[key], got, "joins of %q", key)
	}
	require.Len(e.t, e.allJoins(), 2*len(keys))
}

func listByStatus(e *env) {
	key := "g"
	ended := e.ended()
	want := map[storekit.JoinStatus][]outmill.JoinID{
		storekit.JoinPending:   {e.startJoin(1), e.startJoin(1, grouped(key))},
		storekit.JoinCompleted: {ended["completed"]},
		storekit.JoinFailed:    {ended["failed"]},
		storekit.JoinCancelled: {ended["cancelled"]},
	}
	for status, ids := range want {
		require.Equal(e.t, ids, joinIDsOf(listAllJoins(e.ctx, e.t, e.joins(), storekit.JoinQuery{Status: status})), status)
	}
	pending := want[storekit.JoinPending]
	query := storekit.JoinQuery{Status: storekit.JoinPending, GroupingKey: key}
	require.Equal(e.t, pending[1:], joinIDsOf(listAllJoins(e.ctx, e.t, e.joins(), query)))
	query = storekit.JoinQuery{Status: storekit.JoinPending, After: pending[0]}
	require.Equal(e.t, pending[1:], joinIDsOf(listAllJoins(e.ctx, e.t, e.joins(), query)))
}

func refuseJoinStatus(e *env) {
	_, err := e.joins().ListJoins(e.ctx, storekit.JoinQuery{Status: "done"})
	e.requireRefusal(err)
}

func joinIDsOf(joins []*storekit.Join) []outmill.JoinID {
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
		want = append(want, e.startJoin(1, grouped(key), func(j *storekit.Join) { j.ID = outmill.JoinID{first, 15: 1} }))
		e.startJoin(1, func(j *storekit.Join) { j.ID = outmill.JoinID{first, 15: 2} })
	}
	var got []outmill.JoinID
	query := storekit.JoinQuery{GroupingKey: key, Limit: 3}
	for _, n := range []int{3, 3, 1, 0} {
		page, err := e.joins().ListJoins(e.ctx, query)
		require.NoError(e.t, err)
		require.Len(e.t, page, n)
		got = append(got, joinIDsOf(page)...)
		if n > 0 {
			query.After = page[n-1].ID
		}
	}
	require.Equal(e.t, want, got)
	page, err := e.joins().ListJoins(e.ctx, storekit.JoinQuery{After: outmill.JoinID{3, 15: 3}, Limit: 3})
	require.NoError(e.t, err)
	require.Equal(e.t, []outmill.JoinID{want[4], {4, 15: 2}, want[5]}, joinIDsOf(page))
}

func listJoinLimit(e *env) {
	all := numberedJoins(e, 110)
	page, err := e.joins().ListJoins(e.ctx, storekit.JoinQuery{})
	require.NoError(e.t, err)
	require.Equal(e.t, all[:100], joinIDsOf(page))
}

func listStepPages(e *env) {
	id := e.startJoin(7)
	want := ids(e.members(id, numbered(7)...))
	slices.SortFunc(want, func(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) })
	e.members(e.startJoin(1), "of another join")
	var got []outmill.WorkItemID
	var after outmill.WorkItemID
	for _, n := range []int{3, 3, 1, 0} {
		page, err := e.joins().ListSteps(e.ctx, id, after, 3)
		require.NoError(e.t, err)
		require.Len(e.t, page, n)
		for _, step := range page {
			got = append(got, step.ID)
			after = step.ID
		}
	}
	require.Equal(e.t, want, got)
}

func listStepLimit(e *env) {
	id := e.startJoin(110)
	e.members(id, numbered(110)...)
	page, err := e.joins().ListSteps(e.ctx, id, outmill.WorkItemID{}, 0)
	require.NoError(e.t, err)
	require.Len(e.t, page, 100)
}

func refuseJoinLimits(e *env) {
	_, err := e.joins().ListJoins(e.ctx, storekit.JoinQuery{Limit: -1})
	e.requireRefusal(err, "ListJoins")
	_, err = e.joins().ListSteps(e.ctx, e.startJoin(1), outmill.WorkItemID{}, -1)
	e.requireRefusal(err, "ListSteps")
}

func deleteJoins(e *env) {
	ended := e.ended()
	require.Zero(e.t, e.did(e.joins().DeleteJoins, 10))
	e.elapse(joinRetention - time.Minute)
	young := e.startJoin(1)
	e.settleSteps(young, 1, 0)
	e.requireFinished(young, storekit.JoinCompleted)
	require.Zero(e.t, e.did(e.joins().DeleteJoins, 10))
	e.elapse(2 * time.Minute)
	require.Equal(e.t, 3, e.did(e.joins().DeleteJoins, 10))
	require.Zero(e.t, e.did(e.joins().DeleteJoins, 10))
	require.Equal(e.t, []outmill.JoinID{young}, joinIDsOf(e.allJoins()))
	for _, id := range ended {
		e.requireNoJoin(id)
	}
	// The same id begins again: nothing of the old join is left.
	again := e.startJoin(1, func(j *storekit.Join) { j.ID = ended["completed"] })
	require.Empty(e.t, e.steps(again))
	e.requireCounts(again, 0, 0)
}

func deleteJoinsLeaves(e *env) {
	pending, ended := e.startJoin(2), e.startJoin(2, anyStep)
	e.settleSteps(pending, 1, 0)
	e.settleSteps(ended, 1, 1)
	e.requireFinished(ended, storekit.JoinCompleted)
	e.elapse(10 * joinRetention)
	require.Equal(e.t, 1, e.did(e.joins().DeleteJoins, 10))
	e.requireCounts(pending, 1, 0)
	require.Len(e.t, e.list(outmill.ListQuery{}), 3)
}

func deleteJoinsLimit(e *env) {
	for _, id := range numberedJoins(e, 10) {
		require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, ""))
	}
	e.elapse(joinRetention + time.Minute)
	for _, want := range []int{4, 4, 2, 0} {
		require.Equal(e.t, want, e.did(e.joins().DeleteJoins, 4))
	}
	require.Empty(e.t, e.allJoins())
}

func refuseDeleteJoins(e *env) {
	for _, limit := range []int{0, -1} {
		_, err := e.joins().DeleteJoins(e.ctx, limit)
		e.requireRefusal(err, "limit %d", limit)
	}
}

// deleteJoin cancels the join and waits for its retention.
func (e *env) deleteJoin(id outmill.JoinID) {
	e.t.Helper()
	require.NoError(e.t, e.joins().CancelJoin(e.ctx, id, ""))
	e.elapse(joinRetention + time.Minute)
	require.Equal(e.t, 1, e.did(e.joins().DeleteJoins, 10))
}

func deletedJoinIsUnknown(e *env) {
	id := e.startJoin(4)
	e.members(id, "acked", "dead", "deleted")
	e.append(waiter(id))
	e.deleteJoin(id)
	require.ErrorIs(e.t, e.store.Append(e.ctx, rec(orders, "late", withJoins(id))), storekit.ErrUnknownJoin)
	found := e.claimNamed(outmill.NewOwnerToken(), from(orders))
	require.Len(e.t, found, 3)
	e.ack(found["acked"])
	e.fail(found["dead"])
	require.Equal(e.t, 1, e.requeue(found["dead"]))
	require.Equal(e.t, 1, e.delete(found["deleted"]))
	e.drop(group)
	_, err := e.joins().FinishJoin(e.ctx, id, storekit.FinishRequest{})
	require.ErrorIs(e.t, err, storekit.ErrUnknownJoin)
}

func stepOutlivesJoin(e *env) {
	gone, stays := e.startJoin(2), e.startJoin(2)
	records := recs(orders, withJoins(gone, stays), "m1", "m2")
	e.filled(records...)
	e.deleteJoin(gone)
	e.completeSteps(records[0])
	e.failSteps(records[1])
	e.requireCounts(stays, 1, 1)
	require.Equal(e.t, 1, e.requeue(records[1]))
	e.requireCounts(stays, 1, 0)
}
