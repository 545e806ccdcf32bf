package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

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
		{"OBX-006 nil and empty payloads are stored alike", emptyPayloads},
		{"OBX-011 a payload of any bytes comes back as it was", binaryPayload},
		{"OBX-114 a payload of 8 MiB comes back as it was", bigPayload},
		{"a payload over the store's limit is refused and nothing is written", oversizePayload},
		{"OBX-070 the name of a store is not empty and does not change", nameIsConstant},
	}
}

func appendedIsPending(e *env) {
	e.register(group)
	r := rec(orders, "m1")
	e.append(r)
	got := e.get(r)
	require.Equal(e.t, outmill.StatusPending, got.Status)
	require.Equal(e.t, group, got.Group)
	require.Zero(e.t, got.Attempts, "attempts")
	require.Zero(e.t, got.Claims, "claims")
	require.Zero(e.t, got.Expiries, "expiries")
	require.True(e.t, got.Owner.IsZero(), "owner")
	require.True(e.t, got.LeaseUntil.IsZero(), "lease")
	require.True(e.t, got.ProcessedAt.IsZero(), "processed at")
	require.Empty(e.t, got.ProcessedBy, "processed by")
	require.True(e.t, got.ExpiresAt.IsZero(), "expires at")
	require.WithinDuration(e.t, got.DueAt, got.NextAttemptAt, 2*time.Millisecond, "next attempt at")
	require.Empty(e.t, got.LastError)
	require.False(e.t, got.Duplicate)
}

func appendCommits(e *env) {
	r := rec(orders, "m1")
	e.append(r)
	got, err := e.reopen().Get(e.ctx, r.ID)
	require.NoError(e.t, err)
	require.Equal(e.t, "m1", got.MessageID)
}

func appendFillsIDs(e *env) {
	a, b := rec(orders, "a"), rec(orders, "b")
	e.append(a, b)
	require.False(e.t, a.ID.IsZero())
	require.False(e.t, b.ID.IsZero())
	require.NotEqual(e.t, a.ID, b.ID)
	require.Equal(e.t, "a", e.get(a).MessageID)
	require.Equal(e.t, "b", e.get(b).MessageID)
}

func appendFillsMessageID(e *env) {
	r := rec(orders, "")
	e.append(r)
	require.Equal(e.t, r.ID.String(), r.MessageID)
	require.Equal(e.t, r.MessageID, e.get(r).MessageID)
}

func appendKeepsIDs(e *env) {
	e.register(group)
	id := outmill.NewWorkItemID()
	r := rec(orders, "m1", func(r *outmill.Record) { r.ID = id })
	e.append(r)
	require.Equal(e.t, id, r.ID)
	require.Equal(e.t, id, e.claimOne(outmill.NewOwnerToken(), "m1").ID)
}

func takenIDIsRefused(e *env) {
	e.register(group)
	first := rec(orders, "first")
	e.append(first)
	again := rec(orders, "again", func(r *outmill.Record) { r.ID = first.ID })
	require.Error(e.t, e.store.Append(e.ctx, rec(orders, "before"), again, rec(orders, "after")))
	require.Equal(e.t, []string{"first"}, names(e.list(outmill.ListQuery{})))

	twin := func(r *outmill.Record) { r.ID = outmill.WorkItemID{15: 1} }
	require.Error(e.t, e.store.Append(e.ctx, rec(orders, "twin 1", twin), rec(orders, "twin 2", twin)))
	require.Equal(e.t, []string{"first"}, names(e.list(outmill.ListQuery{})))
}

func createdAtIsTheAppend(e *env) {
	before := e.now()
	r := rec(orders, "m1")
	e.append(r)
	after := e.now()
	created := e.get(r).CreatedAt
	require.False(e.t, created.Before(before), "created %s, before %s", created, before)
	require.False(e.t, created.After(after), "created %s, after %s", created, after)
}

func appendOfNothing(e *env) {
	require.NoError(e.t, e.store.Append(e.ctx))
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func appendAllOrNothing(e *env) {
	e.register(group)
	err := e.store.Append(e.ctx, rec(orders, "good"), rec("", "bad"), rec(orders, "good too"))
	require.ErrorIs(e.t, err, outmill.ErrInvalidRecord)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func appendThousands(e *env) {
	e.register(group)
	n := large(5000)
	records := make([]*outmill.Record, n)
	want := make([]string, n)
	for i := range records {
		want[i] = fmt.Sprintf("m%04d", i)
		records[i] = rec(orders, want[i], withKey("k"))
	}
	e.append(records...)
	require.Equal(e.t, want, names(e.list(outmill.ListQuery{})))
}

func appendRetainsNothing(e *env) {
	r := rec(orders, "m1", func(r *outmill.Record) { r.Metadata = map[string]string{"a": "before"} })
	want := bytes.Clone(r.Payload)
	e.append(r)
	id := r.ID
	clear(r.Payload)
	r.Metadata["a"], r.Metadata["b"] = "after", "after"
	r.MessageID = "after"
	got, err := e.store.Get(e.ctx, id)
	require.NoError(e.t, err)
	require.Equal(e.t, want, got.Payload)
	require.Equal(e.t, map[string]string{"a": "before"}, got.Metadata)
	require.Equal(e.t, "m1", got.MessageID)
}

func appendChangesNothing(e *env) {
	e.register(group)
	r := rec(orders, "m1", withKey("k"), withDelay(time.Hour), withTTL(2*time.Hour), withDedup("d"), withDue(time.Now()), withExpiry(time.Now()))
	r.Metadata = map[string]string{"a": "b"}
	before := *r
	before.Payload, before.Metadata = bytes.Clone(r.Payload), map[string]string{"a": "b"}
	e.append(r)
	before.ID = r.ID
	require.Equal(e.t, &before, r)
}

func writerCannotSetState(e *env) {
	e.register(group)
	r := rec(orders, "m1", func(r *outmill.Record) {
		r.Duplicate = true
		r.Group = "others"
		r.Status = outmill.StatusDead
		r.CreatedAt = time.Now().Add(-1000 * time.Hour)
		r.Attempts, r.Claims, r.Expiries = 7, 7, 7
		r.Owner, r.ProcessedBy = outmill.NewOwnerToken(), "the writer"
		r.LeaseUntil, r.ProcessedAt, r.NextAttemptAt = time.Now().Add(time.Hour), time.Now(), time.Now().Add(time.Hour)
		r.LastError = "said the writer"
	})
	e.append(r)
	require.False(e.t, r.Duplicate, "Duplicate of a record that was appended")
	got := e.get(r)
	require.Equal(e.t, outmill.StatusPending, got.Status)
	require.Equal(e.t, group, got.Group)
	require.Zero(e.t, got.Attempts+got.Claims+got.Expiries)
	require.True(e.t, got.Owner.IsZero() && got.ProcessedBy == "" && got.LeaseUntil.IsZero() && got.ProcessedAt.IsZero())
	require.Empty(e.t, got.LastError)
	e.requireAbout(e.now(), got.CreatedAt, "created at")
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func columnsRoundTrip(e *env) {
	e.register(group)
	due, expires := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	text := func(field string) string { return field + ` 'x' "y" \z % _ 日本 😀 ` + "\n\t end" }
	r := rec(text("topic"), text("message id"), func(r *outmill.Record) {
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
	e.append(r)
	claimed := e.claimOne(outmill.NewOwnerToken(), r.MessageID)
	for how, got := range map[string]*outmill.Record{"Claim": claimed, "Get": e.get(r), "List": e.list(outmill.ListQuery{})[0]} {
		require.Equal(e.t, r.ID, got.ID, how)
		require.Equal(e.t, r.MessageID, got.MessageID, how)
		require.Equal(e.t, r.Topic, got.Topic, how)
		require.Equal(e.t, r.Key, got.Key, how)
		require.Equal(e.t, r.Payload, got.Payload, how)
		require.Equal(e.t, r.Metadata, got.Metadata, how)
		require.Equal(e.t, r.CorrelationID, got.CorrelationID, how)
		require.Equal(e.t, r.CausationID, got.CausationID, how)
		require.Equal(e.t, r.TenantID, got.TenantID, how)
		require.Equal(e.t, r.TraceParent, got.TraceParent, how)
		require.Equal(e.t, r.TraceState, got.TraceState, how)
		require.Equal(e.t, r.DedupKey, got.DedupKey, how)
		require.Equal(e.t, group, got.Group, how)
		require.WithinDuration(e.t, expires, got.ExpiresAt, 2*time.Millisecond, how)
		require.False(e.t, got.DueAt.IsZero(), how)
		require.False(e.t, got.DueAt.After(got.CreatedAt), "%s: due %s, created %s", how, got.DueAt, got.CreatedAt)
	}
}

func emptyTextIsNone(e *env) {
	r := &outmill.Record{Topic: orders}
	e.append(r)
	got := e.get(r)
	require.Empty(e.t, got.Key+got.CorrelationID+got.CausationID+got.TenantID+
		got.TraceParent+got.TraceState+got.DedupKey+got.LastError)
	require.Empty(e.t, got.Metadata)
	require.Empty(e.t, got.Payload)
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
	r := rec(orders, "m1", func(r *outmill.Record) { r.Metadata = metadata })
	e.append(r)
	require.Equal(e.t, metadata, e.get(r).Metadata)
}

func emptyPayloads(e *env) {
	e.register(group)
	e.append(
		rec(orders, "nil", func(r *outmill.Record) { r.Payload = nil }),
		rec(orders, "empty", func(r *outmill.Record) { r.Payload = []byte{} }))
	found := e.claimAll()
	require.Len(e.t, found, 2)
	require.Empty(e.t, found[0].Payload)
	require.Equal(e.t, found[0].Payload == nil, found[1].Payload == nil, "one payload is nil, the other is not")
}

func binaryPayload(e *env) {
	payload := make([]byte, 256)
	for i := range payload {
		payload[i] = byte(i)
	}
	r := rec(orders, "m1", func(r *outmill.Record) { r.Payload = payload })
	e.append(r)
	require.Equal(e.t, payload, e.get(r).Payload)
}

func bigPayload(e *env) {
	e.register(group)
	payload := bytes.Repeat([]byte("0123456789abcde\x00"), 8<<20/16)
	r := rec(orders, "m1", func(r *outmill.Record) { r.Payload = payload })
	e.append(r)
	found := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.t, bytes.Equal(payload, found.Payload), "the payload of %d bytes came back as %d others", len(payload), len(found.Payload))
}

func oversizePayload(e *env) {
	if e.h.MaxPayload == 0 {
		e.t.Skip("Harness.MaxPayload does not say what the limit is")
	}
	r := rec(orders, "too large", func(r *outmill.Record) { r.Payload = make([]byte, e.h.MaxPayload+1) })
	err := e.store.Append(e.ctx, rec(orders, "good"), r)
	var invalid *outmill.InvalidRecordError
	require.ErrorAs(e.t, err, &invalid)
	require.Equal(e.t, "payload", invalid.Field)
	require.Equal(e.t, 1, invalid.Index)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func nameIsConstant(e *env) {
	require.NotEmpty(e.t, e.store.Name())
	require.Equal(e.t, e.store.Name(), e.store.Name())
	require.Equal(e.t, e.store.Name(), e.reopen().Name(), "name of a second store on the same database")
}
