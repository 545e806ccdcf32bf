package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func auditSentences() []sentence {
	return []sentence{
		{"Requeue, Delete, Edit and Skip leave an entry each: who, when, what, and how many", auditCalls},
		{"a call by filter leaves entries with its filter, whose counts add up to what it changed", auditFilters},
		{"a call that changes nothing leaves no entry", auditNothing},
		{"the work of readers leaves no entry", auditWorkers},
		{"an entry of Edit has fingerprints, sizes and names, and neither payload nor values", auditEdit},
		{"a caller without a name leaves an entry without one", auditNobody},
		{"an entry takes names as they are", auditHostile},
		{"Audited returns the newest entries first, in pages that have each entry once", auditPages},
		{"Audited refuses a limit below 0 and a place that is not its own", auditRefused},
		{"a second store on the same database has the same entries", auditReopened},
		{"DeleteOldAudit deletes the entries whose retention has passed, the oldest first, up to its limit", auditRetention},
		{"Audited and DeleteOldAudit on a closed store, or in a context that has ended, do nothing", auditEnded},
	}
}

// audited returns all entries, the newest first.
func (e *env) audited() []roles.AuditEntry {
	e.T.Helper()
	return e.auditedBy(100)
}

func (e *env) auditedBy(limit int) (all []roles.AuditEntry) {
	e.T.Helper()
	audit := e.repairs()
	query := roles.AuditQuery{Limit: limit}
	for range maxPages {
		page, err := audit.Audited(e.Ctx, query)
		require.NoError(e.T, err, "Audited")
		require.LessOrEqual(e.T, len(page.Entries), limit)
		if all = append(all, page.Entries...); page.Done {
			return all
		}
		query.After = page.Next
	}
	require.Fail(e.T, "the pages do not end")
	return nil
}

const ann = "ann@example.com"

// as returns e with a context that names the actor.
func (e *env) as(actor string) *env { return &env{e.Under(storekit.WithActor(e.Ctx, actor))} }

func auditCalls(e *env) {
	e.repairs()
	now := e.Now()
	before := len(e.audited())
	e = e.as(ann)
	records := e.Parked("m1", "m2", "m3", "m4")
	e.edited(records[0], []byte("new"), nil)
	e.Requeue(records[0])
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	e.skip(records[0])
	require.Equal(e.T, 2, e.Delete(records[1], records[2]))
	entries := e.audited()
	entries = entries[:len(entries)-before]
	slices.Reverse(entries)
	require.Len(e.T, entries, 4)
	dead, pending := roles.AuditState{Status: "dead"}, roles.AuditState{Status: "pending"}
	for i, want := range []struct {
		action        roles.AuditAction
		count         int
		ids           []outmill.WorkItemID
		before, after roles.AuditState
	}{
		{roles.AuditEdit, 1, suite.IDs(records[:1]), dead, dead},
		{roles.AuditRequeue, 4, suite.IDs(records[:1]), dead, pending},
		{roles.AuditSkip, 4, suite.IDs(records[:1]), dead, roles.AuditState{Status: roles.AuditDeleted}},
		{roles.AuditDelete, 2, suite.IDs(records[1:3]), roles.AuditState{}, roles.AuditState{Status: roles.AuditDeleted}},
	} {
		got := entries[i]
		require.Equal(e.T, want.action, got.Action, i)
		require.Equal(e.T, ann, got.Actor, got.Action)
		require.Equal(e.T, want.count, got.Count, got.Action)
		require.Equal(e.T, want.ids, got.IDs, got.Action)
		require.Equal(e.T, want.before.Status, got.Before.Status, got.Action)
		require.Equal(e.T, want.after.Status, got.After.Status, got.Action)
		require.Empty(e.T, got.Filter, got.Action)
		e.RequireAbout(now, got.At, string(got.Action))
	}
	require.NotEmpty(e.T, entries[2].Before.Fingerprint, "what was skipped")
}

func auditFilters(e *env) {
	operator := e.repairs()
	e.repairs()
	e.mixed()
	ctx := storekit.WithActor(e.Ctx, ann)
	create := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	page, err := operator.RequeueWhere(ctx, outmill.ListQuery{Group: "one", ErrorText: "no ", CreatedAfter: create})
	require.NoError(e.T, err)
	require.Equal(e.T, 1, page.Changed)
	require.Equal(e.T, 2, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{MessageID: "retried"})))
	entries := e.audited()
	require.Len(e.T, entries, 2)
	deleted, requeued := entries[0], entries[1]
	require.Equal(e.T, roles.AuditRequeue, requeued.Action)
	require.Equal(e.T, ann, requeued.Actor)
	require.Equal(e.T, 1, requeued.Count)
	require.Len(e.T, requeued.IDs, 1)
	require.Equal(e.T, map[string]string{"group": "one", "status": "dead", "error_text": "no ", "created_after": "2000-01-02T03:04:05Z"},
		requeued.Filter)
	require.Equal(e.T, roles.AuditDelete, deleted.Action)
	require.Equal(e.T, 2, deleted.Count)
	require.Equal(e.T, map[string]string{"message_id": "retried"}, deleted.Filter)
	require.Equal(e.T, roles.AuditDeleted, deleted.After.Status)
}

func auditNothing(e *env) {
	operator := e.repairs()
	bench := e.repairs()
	r := e.dead()
	pending := suite.Rec(orders, "m2")
	e.Append(pending)
	before := e.audited()
	require.Zero(e.T, e.Requeue(pending))
	require.Zero(e.T, e.Delete(suite.Rec(orders, "unknown", func(r *outmill.Record) { r.ID = outmill.NewWorkItemID() })))
	require.Zero(e.T, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{Key: "none"})))
	require.Zero(e.T, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{Key: "none"})))
	_, err := bench.Edit(e.Ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: r.Payload})
	require.NoError(e.T, err)
	_, err = bench.Edit(e.Ctx, pending.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: []byte("new")})
	require.Error(e.T, err)
	_, err = bench.Skip(e.Ctx, pending.ID)
	require.Error(e.T, err)
	require.Equal(e.T, before, e.audited())
}

func auditWorkers(e *env) {
	e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "abandoned", "failed", "released")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Abandon(0, found["abandoned"])
	e.Fail(found["failed"])
	e.Release(found["released"])
	require.Empty(e.T, e.audited())
}

func auditEdit(e *env) {
	e.repairs()
	e.repairs()
	before := e.dead()
	metadata := map[string]string{"version": "secret of the value", "kind": "order", "new": "x"}
	after := e.edited(before, []byte("secret of the payload"), metadata)
	entries := e.audited()
	require.Len(e.T, entries, 1)
	require.Equal(e.T, roles.AuditState{Status: "dead", Fingerprint: storekit.FingerprintOf(before), Size: len(before.Payload)},
		entries[0].Before)
	require.Equal(e.T, roles.AuditState{Status: "dead", Fingerprint: storekit.FingerprintOf(after), Size: len(after.Payload)},
		entries[0].After)
	require.Equal(e.T, []string{"new", "version"}, entries[0].Metadata)
	text, err := json.Marshal(entries[0])
	require.NoError(e.T, err)
	require.NotContains(e.T, string(text), "secret")
}

func auditNobody(e *env) {
	e.repairs()
	e.Requeue(e.dead())
	entries := e.audited()
	require.Len(e.T, entries, 1)
	require.Empty(e.T, entries[0].Actor)
}

func auditHostile(e *env) {
	e.repairs()
	for i, name := range []string{
		"O'Brien; --", `"quoted"\`, "$$NOW", "line\nbreak", "😀", "blank ", strings.Repeat("x", storekit.MaxActorLength),
	} {
		e.Filled(suite.Rec(orders, fmt.Sprint(i)))
		e.as(name).Delete(e.ClaimOne(outmill.NewOwnerToken(), fmt.Sprint(i)))
		require.Equal(e.T, name, e.audited()[0].Actor)
	}
	e.Append(suite.Rec(orders, "last"))
	e.as(strings.Repeat("😀", storekit.MaxActorLength)).Delete(e.ClaimOne(outmill.NewOwnerToken(), "last"))
	require.Equal(e.T, strings.Repeat("😀", storekit.MaxActorLength/2), e.audited()[0].Actor, "a name that is too long is cut")
}

func auditPages(e *env) {
	e.repairs()
	const all = 7
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(all)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), all)
	for _, r := range found {
		e.Delete(r)
	}
	want := e.audited()
	require.Len(e.T, want, all)
	for i, entry := range want {
		require.Equal(e.T, []outmill.WorkItemID{found[all-1-i].ID}, entry.IDs)
	}
	for limit := 1; limit <= all+1; limit++ {
		require.Equal(e.T, want, e.auditedBy(limit), limit)
	}
	page, err := e.repairs().Audited(e.Ctx, roles.AuditQuery{})
	require.NoError(e.T, err)
	require.Equal(e.T, want, page.Entries)
}

func auditRefused(e *env) {
	audit := e.repairs()
	for _, query := range []roles.AuditQuery{{Limit: -1}, {After: "elsewhere"}} {
		_, err := audit.Audited(e.Ctx, query)
		e.RequireRefusal(err, query)
	}
	_, err := audit.DeleteOldAudit(e.Ctx, 0)
	e.RequireRefusal(err)
}

func auditReopened(e *env) {
	e.repairs()
	e.as(ann).Requeue(e.dead())
	require.Equal(e.T, e.audited(), (&env{e.On(e.Reopen())}).audited())
}

func auditRetention(e *env) {
	audit := e.repairs()
	const old = 3
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(old+2)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), old+2)
	for _, r := range found[:old] {
		e.Delete(r)
	}
	e.Elapse(storekit.AuditRetention / 2)
	e.Delete(found[old])
	require.Zero(e.T, e.Did(audit.DeleteOldAudit, 10))
	e.Elapse(storekit.AuditRetention/2 + time.Minute)
	e.Delete(found[old+1])
	newest := e.audited()[:2]
	n, err := audit.DeleteOldAudit(e.Ctx, 2)
	require.NoError(e.T, err)
	require.Equal(e.T, 2, n)
	left := e.audited()
	require.Len(e.T, left, 3)
	require.Equal(e.T, []outmill.WorkItemID{found[old-1].ID}, left[2].IDs, "the oldest are gone")
	n, err = audit.DeleteOldAudit(e.Ctx, 2)
	require.NoError(e.T, err)
	require.Equal(e.T, 1, n)
	require.Equal(e.T, newest, e.audited())
	require.Zero(e.T, e.Did(audit.DeleteOldAudit, 10))
}

func auditEnded(e *env) {
	audit := e.repairs()
	e.Requeue(e.dead())
	e.Elapse(2 * storekit.AuditRetention)
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	other := e.Reopen()
	closed, ok := outmill.As[roles.Repairs](other)
	require.True(e.T, ok)
	require.NoError(e.T, other.Close())
	for name, call := range map[string]func(roles.Repairs, context.Context) error{
		"Audited": func(a roles.Repairs, ctx context.Context) error {
			_, err := a.Audited(ctx, roles.AuditQuery{})
			return err
		},
		"DeleteOldAudit": func(a roles.Repairs, ctx context.Context) error {
			_, err := a.DeleteOldAudit(ctx, 10)
			return err
		},
	} {
		require.ErrorIs(e.T, call(audit, cancelled), context.Canceled, name)
		require.ErrorIs(e.T, call(closed, e.Ctx), outmill.ErrClosed, name)
	}
	require.Len(e.T, e.audited(), 1)
}
