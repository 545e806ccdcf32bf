package storetest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func commandSentences() []sentence {
	return []sentence{
		{"the calls of one command leave one entry, which each of them brings up to date", commandByFilter},
		{"a call in several transactions leaves one entry", commandInSteps},
		{"an edit and a requeue by one command leave one entry with the count of the requeue", commandEditRequeue},
		{"a command leaves an entry for each action, and another command leaves its own", commandActions},
	}
}

// commandByFilter looks at the audit after each call: that is what a command leaves which a crash
// ends there.
func commandByFilter(e *env) {
	operator := e.repairs()
	e.repairs()
	const all = 5
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(all)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), all)
	e.Fail(found...)
	e.Delete(found[0])
	before := e.audited()
	ctx := storekit.OneCommand(storekit.WithActor(e.Ctx, ann))
	query := outmill.ListQuery{Topic: orders, Limit: 1}
	var first roles.AuditEntry
	for done := 1; done < all; done++ {
		page, err := operator.RequeueWhere(ctx, query)
		require.NoError(e.T, err)
		require.Equal(e.T, 1, page.Changed)
		query.After = page.Next
		entries := e.audited()
		require.Len(e.T, entries, len(before)+1, "entries after %d calls", done)
		got := entries[0]
		require.Equal(e.T, done, got.Count)
		require.Len(e.T, got.IDs, done)
		require.Equal(e.T, ann, got.Actor)
		require.Equal(e.T, map[string]string{"topic": orders, "status": "dead"}, got.Filter)
		if done == 1 {
			first = got
		}
		require.Equal(e.T, first.Number, got.Number)
		require.Equal(e.T, first.At, got.At)
	}
	last := e.audited()
	_, err := operator.RequeueWhere(ctx, outmill.ListQuery{Topic: orders})
	require.NoError(e.T, err)
	require.Equal(e.T, last, e.audited(), "a call that changes nothing")
	require.Equal(e.T, before, last[1:], "entries of others")
}

func commandInSteps(e *env) {
	e.repairs()
	e.repairs()
	names := suite.Numbered(suite.Large(1500))
	records := e.Parked(names...)
	e = e.as(ann)
	owner := outmill.NewOwnerToken()
	for e.Get(records[len(records)-1]).Status != outmill.StatusDead {
		require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
	}
	n, err := e.Store.Requeue(e.Ctx, records[0].ID)
	require.NoError(e.T, err)
	require.Equal(e.T, len(names), n)
	entries := e.audited()
	require.Len(e.T, entries, 1)
	require.Equal(e.T, len(names), entries[0].Count)
	require.Equal(e.T, suite.IDs(records[:1]), entries[0].IDs)
	require.Equal(e.T, len(names), e.Delete(records...))
	entries = e.audited()
	require.Len(e.T, entries, 2)
	require.Equal(e.T, roles.AuditDelete, entries[0].Action)
	require.Equal(e.T, len(names), entries[0].Count)
	require.Equal(e.T, suite.IDs(records[:100]), entries[0].IDs, "the first 100")
}

func commandEditRequeue(e *env) {
	bench := e.repairs()
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	before := e.Get(records[0])
	ctx := storekit.OneCommand(storekit.WithActor(e.Ctx, ann))
	after, err := bench.Edit(ctx, before.ID, roles.Edit{Seen: storekit.FingerprintOf(before), Payload: []byte("new")})
	require.NoError(e.T, err)
	require.Equal(e.T, []roles.AuditAction{roles.AuditEdit}, actionsOf(e.audited()))
	n, err := e.Store.Requeue(ctx, before.ID)
	require.NoError(e.T, err)
	require.Equal(e.T, 3, n)
	entries := e.audited()
	require.Equal(e.T, []roles.AuditAction{roles.AuditEditRequeue}, actionsOf(entries))
	require.Equal(e.T, 3, entries[0].Count)
	require.Equal(e.T, suite.IDs(records[:1]), entries[0].IDs)
	require.Equal(e.T, roles.AuditState{Status: "dead", Fingerprint: storekit.FingerprintOf(before), Size: len(before.Payload)},
		entries[0].Before)
	require.Equal(e.T, roles.AuditState{Status: "pending", Fingerprint: storekit.FingerprintOf(after), Size: len(after.Payload)},
		entries[0].After)
}

func commandActions(e *env) {
	e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(3)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), 3)
	e.Fail(found...)
	requeue := func(ctx context.Context, r *outmill.Record) {
		n, err := e.Store.Requeue(ctx, r.ID)
		require.NoError(e.T, err)
		require.Equal(e.T, 1, n)
	}
	one, other := storekit.OneCommand(e.Ctx), storekit.OneCommand(e.Ctx)
	requeue(one, found[0])
	requeue(other, found[1])
	requeue(one, found[2])
	n, err := e.Store.Delete(one, found[0].ID)
	require.NoError(e.T, err)
	require.Equal(e.T, 1, n)
	entries := e.audited()
	slices.Reverse(entries)
	require.Equal(e.T, []roles.AuditAction{roles.AuditRequeue, roles.AuditRequeue, roles.AuditDelete}, actionsOf(entries))
	require.Equal(e.T, []int{2, 1, 1}, []int{entries[0].Count, entries[1].Count, entries[2].Count})
}

func actionsOf(entries []roles.AuditEntry) (actions []roles.AuditAction) {
	for _, entry := range entries {
		actions = append(actions, entry.Action)
	}
	return actions
}
