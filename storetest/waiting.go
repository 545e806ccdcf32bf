package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func waitingSentences() []sentence {
	return []sentence{
		{"FirstWaiting returns the records that wait, by kind, and no settled one", waitingKinds},
		{"FirstWaiting returns the first records of each kind up to its limit, and says that there may be more", waitingLimit},
		{"FirstWaiting returns the first records that keys hold and that pauses hold, however many there are of the others", waitingOfEachKind},
		{"FirstWaiting returns the records that wait for a first group", waitingUnrouted},
		{"FirstWaiting counts what is before a record, and says less than all of it only where it stopped", waitingBefore},
		{"FirstWaiting of a closed store is ErrClosed, and the error of a context that has ended", waitingEnded},
		{"FirstWaiting refuses a limit below 1 and above 10,000", refuseWaiting},
	}
}

// waiting returns the records of the topic orders that wait, by message id.
func (e *env) waiting(of string, limit int) (storekit.Waiting, map[string]storekit.WaitingRecord) {
	e.T.Helper()
	reader, ok := outmill.As[storekit.WaitingReader](e.Store)
	if !ok {
		e.T.Skip("the store is no storekit.WaitingReader")
	}
	found, err := reader.FirstWaiting(e.Ctx, of, orders, limit)
	require.NoError(e.T, err)
	e.RequireAbout(e.Now(), found.Now, "the time")
	names := map[outmill.WorkItemID]string{}
	for _, r := range e.List(outmill.ListQuery{Topic: orders, Limit: 1000}) {
		names[r.ID] = r.MessageID
	}
	all := map[string]storekit.WaitingRecord{}
	for _, r := range found.All() {
		require.NotContains(e.T, all, names[r.ID], "returned twice")
		all[names[r.ID]] = r
	}
	return found, all
}

func waitingKinds(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "dead", "acked", "ended")...)
	e.Append(suite.Rec(orders, "retry", suite.WithKey("k"), withTenant("acme")))
	e.Append(suite.Rec(orders, "later", suite.WithDelay(time.Hour)))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	for range 3 {
		require.NoError(e.T, e.Store.Abandon(e.Ctx, []outmill.Settlement{{Lease: found["retry"].Lease(), Delay: time.Second, Err: "boom"}}))
		e.Elapse(2 * time.Second)
		found["retry"] = e.ClaimOne(outmill.NewOwnerToken(), "retry")
	}
	require.NoError(e.T, e.Store.Abandon(e.Ctx, []outmill.Settlement{{Lease: found["retry"].Lease(), Delay: 2 * time.Hour, Err: "boom"}}))
	e.Elapse(leaseOf + 10*time.Minute)
	e.Append(suite.Rec(orders, "ready", suite.WithKey("k2")))

	of, got := e.waiting(group, 100)
	names := make([]string, 0, len(got))
	for name := range got {
		names = append(names, name)
	}
	require.ElementsMatch(e.T, []string{"retry", "ended", "ready"}, names)
	retry := got["retry"]
	require.Equal(e.T, []any{storekit.StageWaiting, "k", "acme", 4}, []any{retry.Stage, retry.Key, retry.TenantID, retry.Attempts})
	require.False(e.T, got["retry"].IsDue(of.Now))
	require.Equal(e.T, storekit.StageLeased, got["ended"].Stage)
	e.RequireAbout(e.Now().Add(-10*time.Minute), got["ended"].DueAt, "the end of the lease")
	require.True(e.T, got["ended"].IsDue(of.Now))
	require.Equal(e.T, []any{storekit.StageReady, "k2", 0}, []any{got["ready"].Stage, got["ready"].Key, got["ready"].Attempts})
	require.True(e.T, got["ready"].IsDue(of.Now))
	require.False(e.T, slices.ContainsFunc(of.Kinds, func(k storekit.WaitingKind) bool { return k.More }))
}

func waitingLimit(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(8)...)...)
	e.ClaimN(outmill.NewOwnerToken(), 4)
	e.Elapse(leaseOf + time.Minute)
	of, got := e.waiting(group, 3)
	counts := map[int]int{}
	for _, r := range got {
		counts[r.Stage]++
	}
	require.Equal(e.T, map[int]int{storekit.StageReady: 3, storekit.StageLeased: 3}, counts)
	for _, kind := range of.Kinds {
		require.True(e.T, kind.More)
	}
}

func waitingUnrouted(e *env) {
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"), suite.Rec(orders, "later", suite.WithDelay(time.Hour)))
	_, got := e.waiting("", 10)
	require.Len(e.T, got, 1)
	require.Contains(e.T, got, "m1")
	_, got = e.waiting(group, 10)
	require.Empty(e.T, got)
}

// waitingBefore compares the count with that of List, for each record and several limits.
func waitingBefore(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(6)...)...)
	e.Elapse(time.Minute)
	e.Append(suite.Rec(orders, "delayed", suite.WithDelay(time.Minute), suite.WithKey("k")),
		suite.Rec(orders, "late", suite.WithDelay(time.Hour)))
	for range 3 {
		e.Append(suite.Rec(orders, "k"+strings.Repeat("k", len(e.List(outmill.ListQuery{}))), suite.WithKey("k")))
		e.Elapse(time.Second)
	}
	taken := e.ClaimN(outmill.NewOwnerToken(), 3)
	require.NoError(e.T, e.Store.Abandon(e.Ctx, []outmill.Settlement{{Lease: taken[0].Lease(), Delay: 90 * time.Second}}))
	e.Release(taken[1])
	e.Elapse(leaseOf + 2*time.Minute)
	e.Append(suite.Recs(orders, suite.Plain, "z1", "z2")...)
	if e.Claim(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) { r.Order, r.Limit = outmill.OrderKey, 1 }) == nil {
		e.T.Fatal("an ordered claim returns nothing")
	}

	e.requireBefore()
}

// requireBefore compares what Before counts by a few records of each kind with what it counts by all.
func (e *env) requireBefore() {
	e.T.Helper()
	all := map[outmill.WorkItemID]*outmill.Record{}
	for _, r := range e.List(outmill.ListQuery{Limit: 1000}) {
		all[r.ID] = r
	}
	for _, limit := range []int{100, 7, 3, 1} {
		of, _ := e.waiting(group, limit)
		whole, _ := e.waiting(group, 1000)
		for _, r := range whole.All() {
			if !r.IsDue(whole.Now) {
				continue
			}
			record := all[r.ID]
			record.NextAttemptAt = r.DueAt
			want := 0
			for _, other := range whole.All() {
				if c := other.DueAt.Compare(r.DueAt); other.ID != r.ID && other.IsDue(whole.Now) &&
					(c < 0 || c == 0 && slices.Compare(other.ID[:], r.ID[:]) < 0) {
					want++
				}
			}
			n, _, more := of.Before(record)
			if !more {
				require.Equal(e.T, want, n, "%s with limit %d", record.MessageID, limit)
				continue
			}
			require.LessOrEqual(e.T, n, want, "%s with limit %d", record.MessageID, limit)
			require.Less(e.T, limit, 100, "nothing is left out")
			require.True(e.T, n > 0 || want == 0, "%s with limit %d: 0 counted of %d", record.MessageID, limit, want)
		}
	}
}

func waitingEnded(e *env) {
	e.waiting(group, 1)
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	reader, _ := outmill.As[storekit.WaitingReader](e.Store)
	_, err := reader.FirstWaiting(cancelled, group, orders, 1)
	require.ErrorIs(e.T, err, context.Canceled)
	other := e.Reopen()
	require.NoError(e.T, other.Close())
	reader, _ = outmill.As[storekit.WaitingReader](other)
	_, err = reader.FirstWaiting(e.Ctx, group, orders, 1)
	require.ErrorIs(e.T, err, outmill.ErrClosed)
}

func refuseWaiting(e *env) {
	reader, ok := outmill.As[storekit.WaitingReader](e.Store)
	if !ok {
		e.T.Skip("the store is no storekit.WaitingReader")
	}
	for _, limit := range []int{-1, 0, roles.MaxExamined + 1} {
		_, err := reader.FirstWaiting(e.Ctx, group, orders, limit)
		require.ErrorIs(e.T, err, outmill.ErrInvalidConfig, "limit %d", limit)
	}
}
