package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func appendSentences() []sentence {
	return []sentence{
		{"OBX-001 OBX-016 an appended record is pending, with no attempts, claims, expiries or owner", appendedIsPending},
		{"OBX-002 OBX-097 Append without a transaction commits one of its own", appendCommits},
		{"OBX-014 Append fills ids where they are zero", appendFillsIDs},
		{"Append fills an empty message id with the id", appendFillsMessageID},
		{"Append keeps an id that the writer made", appendKeepsIDs},
		{"an id that a record has already is refused and nothing is written", takenIDIsRefused},
		{"OBX-015 CreatedAt is the database's time of the append", createdAtIsTheAppend},
		{"Append of no records does nothing", appendOfNothing},
		{"Append writes all the records or none", appendAllOrNothing},
		{"Append takes thousands of records in one call", appendThousands},
		{"Append does not retain the records", appendRetainsNothing},
		{"Append changes nothing else of a record", appendChangesNothing},
		{"what a store fills is not for the writer to set", writerCannotSetState},
		{"every column comes back as it was appended", columnsRoundTrip},
		{"OBX-008 empty text fields are none", emptyTextIsNone},
		{"metadata of any text comes back as it was", metadataRoundTrip},
		{"metadata with the names of instructions are data: they instruct no append and come back", outsideInstructsNothing},
		{"OBX-006 a nil payload stays nil, and an empty one stays empty", nilAndEmpty},
		{"OBX-011 a payload of any bytes comes back as it was", binaryPayload},
		{"OBX-114 a payload of 8 MiB comes back as it was", bigPayload},
		{"a payload over the store's limit is refused and nothing is written", oversizePayload},
		{"OBX-070 the name of a store is not empty and does not change", nameIsConstant},
	}
}

func appendedIsPending(e *env) {
	e.Register(group)
	r := suite.Rec(orders, "m1")
	e.Append(r)
	got := e.Get(r)
	require.Equal(e.T, outmill.StatusPending, got.Status)
	require.Equal(e.T, group, got.Group)
	require.Zero(e.T, got.Attempts, "attempts")
	require.Zero(e.T, got.Claims, "claims")
	require.Zero(e.T, got.Expiries, "expiries")
	require.True(e.T, got.Owner.IsZero(), "owner")
	require.True(e.T, got.LeaseUntil.IsZero(), "lease")
	require.True(e.T, got.ProcessedAt.IsZero(), "processed at")
	require.Empty(e.T, got.ProcessedBy, "processed by")
	require.True(e.T, got.ExpiresAt.IsZero(), "expires at")
	require.WithinDuration(e.T, got.DueAt, got.NextAttemptAt, 2*time.Millisecond, "next attempt at")
	require.Empty(e.T, got.LastError)
	require.False(e.T, got.Duplicate)
}

func appendCommits(e *env) {
	// As many as a store writes by several statements.
	records := suite.Recs(orders, suite.Plain, suite.Numbered(113)...)
	e.Append(records...)
	require.Error(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "good"), suite.Rec("", "refused")))
	other := e.Reopen()
	require.ElementsMatch(e.T, suite.Names(records), suite.Names(suite.ListAll(e.Ctx, e.T, other, outmill.ListQuery{})))
}

func appendFillsIDs(e *env) {
	a, b := suite.Rec(orders, "a"), suite.Rec(orders, "b")
	e.Append(a, b)
	require.False(e.T, a.ID.IsZero())
	require.False(e.T, b.ID.IsZero())
	require.NotEqual(e.T, a.ID, b.ID)
	require.Equal(e.T, "a", e.Get(a).MessageID)
	require.Equal(e.T, "b", e.Get(b).MessageID)
}

func appendFillsMessageID(e *env) {
	r := suite.Rec(orders, "")
	e.Append(r)
	require.Equal(e.T, r.ID.String(), r.MessageID)
	require.Equal(e.T, r.MessageID, e.Get(r).MessageID)
}

func appendKeepsIDs(e *env) {
	e.Register(group)
	id := outmill.NewWorkItemID()
	r := suite.Rec(orders, "m1", func(r *outmill.Record) { r.ID = id })
	e.Append(r)
	require.Equal(e.T, id, r.ID)
	require.Equal(e.T, id, e.ClaimOne(outmill.NewOwnerToken(), "m1").ID)
}

func takenIDIsRefused(e *env) {
	e.Register(group)
	first := suite.Rec(orders, "first")
	e.Append(first)
	again := suite.Rec(orders, "again", func(r *outmill.Record) { r.ID = first.ID })
	require.Error(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "before"), again, suite.Rec(orders, "after")))
	require.Equal(e.T, []string{"first"}, suite.Names(e.List(outmill.ListQuery{})))

	twin := func(r *outmill.Record) { r.ID = outmill.WorkItemID{15: 1} }
	require.Error(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "twin 1", twin), suite.Rec(orders, "twin 2", twin)))
	require.Equal(e.T, []string{"first"}, suite.Names(e.List(outmill.ListQuery{})))
}

func createdAtIsTheAppend(e *env) {
	before := e.Now()
	r := suite.Rec(orders, "m1")
	e.Append(r)
	after := e.Now()
	created := e.Get(r).CreatedAt
	require.False(e.T, created.Before(before), "created %s, before %s", created, before)
	require.False(e.T, created.After(after), "created %s, after %s", created, after)
	e.Filled(suite.Rec(orders, "m2"))
	leased := e.ClaimAll()[0]
	e.RequireAbout(leased.LeaseUntil.Add(-leaseOf), leased.CreatedAt, "created at, by the clock that ends leases")
}

func appendOfNothing(e *env) {
	require.NoError(e.T, e.Store.Append(e.Ctx))
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func appendAllOrNothing(e *env) {
	e.Register(group)
	err := e.Store.Append(e.Ctx, suite.Rec(orders, "good"), suite.Rec("", "bad"), suite.Rec(orders, "good too"))
	require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func appendThousands(e *env) {
	e.Register(group)
	n := suite.Large(5000)
	records := make([]*outmill.Record, n)
	want := make([]string, n)
	for i := range records {
		want[i] = fmt.Sprintf("m%04d", i)
		records[i] = suite.Rec(orders, want[i], suite.WithKey("k"))
	}
	e.Append(records...)
	require.Equal(e.T, want, suite.Names(e.List(outmill.ListQuery{})))
}

func appendRetainsNothing(e *env) {
	r := suite.Rec(orders, "m1", func(r *outmill.Record) { r.Metadata = map[string]string{"a": "before"} })
	want := bytes.Clone(r.Payload)
	e.Append(r)
	id := r.ID
	clear(r.Payload)
	r.Metadata["a"], r.Metadata["b"] = "after", "after"
	r.MessageID = "after"
	got, err := e.Store.Get(e.Ctx, id)
	require.NoError(e.T, err)
	require.Equal(e.T, want, got.Payload)
	require.Equal(e.T, map[string]string{"a": "before"}, got.Metadata)
	require.Equal(e.T, "m1", got.MessageID)
}

func appendChangesNothing(e *env) {
	e.Register(group)
	r := suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithDelay(time.Hour), suite.WithTTL(2*time.Hour), suite.WithDedup("d"),
		withDue(time.Now()), withExpiry(time.Now()))
	r.Metadata = map[string]string{"a": "b"}
	before := *r
	before.Payload, before.Metadata = bytes.Clone(r.Payload), map[string]string{"a": "b"}
	e.Append(r)
	before.ID, before.Group, before.CreatedAt = r.ID, r.Group, r.CreatedAt
	require.Equal(e.T, &before, r)
}

func writerCannotSetState(e *env) {
	e.Register(group)
	r := suite.Rec(orders, "m1", func(r *outmill.Record) {
		r.Duplicate = true
		r.Group = "others"
		r.Status = outmill.StatusDead
		r.CreatedAt = time.Now().Add(-1000 * time.Hour)
		r.Attempts, r.Claims, r.Expiries = 7, 7, 7
		r.Owner, r.ProcessedBy = outmill.NewOwnerToken(), "the writer"
		r.LeaseUntil, r.ProcessedAt, r.NextAttemptAt = time.Now().Add(time.Hour), time.Now(), time.Now().Add(time.Hour)
		r.LastError = "said the writer"
	})
	e.Append(r)
	require.False(e.T, r.Duplicate, "Duplicate of a record that was appended")
	got := e.Get(r)
	require.Equal(e.T, outmill.StatusPending, got.Status)
	require.Equal(e.T, group, got.Group)
	require.Zero(e.T, got.Attempts+got.Claims+got.Expiries)
	require.True(e.T, got.Owner.IsZero() && got.ProcessedBy == "" && got.LeaseUntil.IsZero() && got.ProcessedAt.IsZero())
	require.Empty(e.T, got.LastError)
	e.RequireAbout(e.Now(), got.CreatedAt, "created at")
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func columnsRoundTrip(e *env) {
	e.Register(group)
	due, expires := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	text := func(field string) string { return field + ` 'x' "y" \z % _ 日本 😀 ` + "\n\t end" }
	r := suite.Rec(text("topic"), text("message id"), func(r *outmill.Record) {
		r.Key = text("key")
		r.Metadata = map[string]string{"name": "value"}
		r.CorrelationID = text("correlation")
		r.CausationID = text("causation")
		r.TenantID = text("tenant")
		r.TraceParent = text("parent")
		r.TraceState = text("state")
		r.DedupKey = text("dedup")
		r.DueAt, r.ExpiresAt = due, expires
	})
	e.Append(r)
	claimed := e.ClaimOne(outmill.NewOwnerToken(), r.MessageID)
	for how, got := range map[string]*outmill.Record{"Claim": claimed, "Get": e.Get(r), "List": e.List(outmill.ListQuery{})[0]} {
		require.Equal(e.T, r.ID, got.ID, how)
		require.Equal(e.T, r.MessageID, got.MessageID, how)
		require.Equal(e.T, r.Topic, got.Topic, how)
		require.Equal(e.T, r.Key, got.Key, how)
		require.Equal(e.T, r.Payload, got.Payload, how)
		require.Equal(e.T, r.Metadata, got.Metadata, how)
		require.Equal(e.T, r.CorrelationID, got.CorrelationID, how)
		require.Equal(e.T, r.CausationID, got.CausationID, how)
		require.Equal(e.T, r.TenantID, got.TenantID, how)
		require.Equal(e.T, r.TraceParent, got.TraceParent, how)
		require.Equal(e.T, r.TraceState, got.TraceState, how)
		require.Equal(e.T, r.DedupKey, got.DedupKey, how)
		require.Equal(e.T, group, got.Group, how)
		require.WithinDuration(e.T, expires, got.ExpiresAt, 2*time.Millisecond, how)
		require.False(e.T, got.DueAt.IsZero(), how)
		require.False(e.T, got.DueAt.After(got.CreatedAt), "%s: due %s, created %s", how, got.DueAt, got.CreatedAt)
	}
}

func emptyTextIsNone(e *env) {
	r := &outmill.Record{Topic: orders}
	e.Append(r)
	got := e.Get(r)
	require.Empty(e.T, got.Key+got.CorrelationID+got.CausationID+got.TenantID+
		got.TraceParent+got.TraceState+got.DedupKey+got.LastError)
	require.Empty(e.T, got.Metadata)
	require.Empty(e.T, got.Payload)
}

func metadataRoundTrip(e *env) {
	metadata := map[string]string{
		"plain": "value", "empty": "", "": "empty name",
		"dots.in.name": "a.b", "$dollar": "$where", "0": "digit",
		`quotes"'`: `"'` + "`", `back\slash`: `\u0041\n`,
		"<html>": "&amp;</script>", "line\nbreak": "tab\tand\r\nbreak",
		"ümläut": "日本 😀 \u2028 \ufeff", "null": "null", "json": `{"a":[1,2]}`,
		"long": strings.Repeat("x", 100_000), strings.Repeat("n", 1000): "long name",
		"sql": "'); DROP TABLE records; --", "__proto__": "x", "_id": "y",
		strings.Repeat(" ", 3): " blanks kept ",
	}
	r := suite.Rec(orders, "m1", func(r *outmill.Record) { r.Metadata = metadata })
	e.Append(r)
	require.Equal(e.T, metadata, e.Get(r).Metadata)
}

func binaryPayload(e *env) {
	payload := make([]byte, 256)
	for i := range payload {
		payload[i] = byte(i)
	}
	r := suite.Rec(orders, "m1", func(r *outmill.Record) { r.Payload = payload })
	e.Append(r)
	require.Equal(e.T, payload, e.Get(r).Payload)
}

func bigPayload(e *env) {
	e.Register(group)
	payload := bytes.Repeat([]byte("0123456789abcde\x00"), 8<<20/16)
	r := suite.Rec(orders, "m1", func(r *outmill.Record) { r.Payload = payload })
	e.Append(r)
	found := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.T, bytes.Equal(payload, found.Payload), "the payload of %d bytes came back as %d others", len(payload), len(found.Payload))
}

func oversizePayload(e *env) {
	limited, ok := e.Harness.(Limited)
	if !ok {
		e.T.Skip("the Harness is no Limited")
	}
	r := suite.Rec(orders, "too large", func(r *outmill.Record) { r.Payload = make([]byte, limited.MaxPayload()+1) })
	err := e.Store.Append(e.Ctx, suite.Rec(orders, "good"), r)
	var invalid *outmill.InvalidRecordError
	require.ErrorAs(e.T, err, &invalid)
	require.Equal(e.T, "payload", invalid.Field)
	require.Equal(e.T, 1, invalid.Index)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func nameIsConstant(e *env) {
	require.NotEmpty(e.T, e.Store.Name())
	require.Equal(e.T, e.Store.Name(), e.Store.Name())
	require.Equal(e.T, e.Store.Name(), e.Reopen().Name(), "name of a second store on the same database")
}
