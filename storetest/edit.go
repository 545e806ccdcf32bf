package storetest

import (
	"context"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func editSentences() []sentence {
	return []sentence{
		{"Edit replaces the payload or the metadata of a dead record, and nothing else", editReplaces},
		{"Edit returns the record as Get does", editReturns},
		{"an edited record is delivered as edited after a Requeue", editedIsDelivered},
		{"a claim counts the size of an edited record", editedCounts},
		{"Edit of a parked record leaves its key parked", editParked},
		{"Edit refuses a record that has changed since the caller saw it", editChanged},
		{"of two edits at the same time one is made, and the other is refused", editsRace},
		{"an Edit that is repeated changes nothing and is no error", editAgain},
		{"Edit refuses records that are not dead, and unknown ones", editAlive},
		{"Edit refuses metadata that would change a field of the record", editFields},
		{"Edit refuses what Append refuses, and changes nothing", editInvalid},
		{"Edit keeps texts as they are", editHostile},
		{"Edit tells a nil payload from an empty one", editNilAndEmpty},
		{"Edit on a closed store, or in a context that has ended, changes nothing", editEnded},
	}
}

// repairs returns the store's roles.Repairs, or skips the sentence if it has none.
func (e *env) repairs() roles.Repairs {
	e.T.Helper()
	if !e.hasRepairs() {
		e.T.Skip("the store is no roles.Repairs")
	}
	found, _ := outmill.As[roles.Repairs](e.Store)
	return found
}

func (e *env) hasRepairs() bool {
	_, ok := outmill.As[roles.Repairs](e.Store)
	return ok
}

// dead makes m1, a dead record with metadata.
func (e *env) dead(changes ...func(*outmill.Record)) *outmill.Record {
	e.T.Helper()
	r := suite.Rec(orders, "m1", changes...)
	r.Metadata = map[string]string{"kind": "order", "version": "1"}
	e.Filled(r)
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	return e.Get(r)
}

// edited makes an edit of what the store has, and returns the record.
func (e *env) edited(r *outmill.Record, payload []byte, metadata map[string]string) *outmill.Record {
	e.T.Helper()
	after, err := e.repairs().Edit(e.Ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(e.Get(r)), Payload: payload, Metadata: metadata})
	require.NoError(e.T, err, "Edit")
	return after
}

func editReplaces(e *env) {
	e.repairs()
	before := e.dead(suite.WithKey("k"), suite.WithDedup("d"), func(r *outmill.Record) {
		r.CorrelationID, r.CausationID, r.TenantID = "c", "cause", "t"
		r.TraceParent, r.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
	})
	want := *before
	e.edited(before, []byte("new"), nil)
	want.Payload = []byte("new")
	require.Equal(e.T, &want, e.Get(before), "the payload")

	e.edited(before, nil, map[string]string{"version": "2", "fixed": "yes"})
	want.Metadata = map[string]string{"version": "2", "fixed": "yes"}
	require.Equal(e.T, &want, e.Get(before), "the metadata")

	e.edited(before, []byte{}, map[string]string{})
	after := e.Get(before)
	require.Empty(e.T, after.Payload)
	require.Empty(e.T, after.Metadata)
	after.Payload, after.Metadata = want.Payload, want.Metadata
	require.Equal(e.T, &want, after, "the rest")
}

func editReturns(e *env) {
	e.repairs()
	before := e.dead()
	require.Equal(e.T, e.edited(before, []byte("new"), map[string]string{"a": "b"}), e.Get(before))
}

func editedIsDelivered(e *env) {
	e.repairs()
	before := e.dead(suite.WithKey("k"))
	e.edited(before, []byte("new"), map[string]string{"version": "2"})
	require.Equal(e.T, 1, e.Requeue(before))
	found := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.InOrder(outmill.OrderKey, outmill.KeyBlock))
	require.Equal(e.T, "new", string(found.Payload))
	require.Equal(e.T, map[string]string{"version": "2"}, found.Metadata)
	require.Equal(e.T, "k", found.Key)
}

func editedCounts(e *env) {
	e.repairs()
	before := e.dead()
	e.edited(before, []byte(strings.Repeat("x", 10_000)), nil)
	e.Requeue(before)
	e.Append(suite.Rec(orders, "m2"))
	found := e.Claim(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) { r.MaxBytes = 5000 })
	require.Len(e.T, found, 1, "the edited record is larger than MaxBytes: it comes alone, or not with the other")
}

func editParked(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	e.edited(records[0], []byte("new"), nil)
	e.edited(records[1], []byte("newer"), nil)
	e.RequireStatus(outmill.StatusDead, records...)
	later := suite.Keyed("k", "m4")
	e.Append(later...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	require.Equal(e.T, 4, e.Requeue(records[0]))
	found := e.ClaimAll(suite.ParkOrder)
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, found)
	require.Equal(e.T, "new", string(found[0].Payload))
	require.Equal(e.T, "newer", string(found[1].Payload))
}

func editChanged(e *env) {
	bench := e.repairs()
	seen := e.dead()
	e.edited(seen, []byte("by another"), nil)
	_, err := bench.Edit(e.Ctx, seen.ID, roles.Edit{Seen: storekit.FingerprintOf(seen), Payload: []byte("mine")})
	require.ErrorIs(e.T, err, roles.ErrRecordChanged)
	_, err = bench.Edit(e.Ctx, seen.ID, roles.Edit{Seen: storekit.FingerprintOf(seen), Metadata: map[string]string{"mine": "yes"}})
	require.ErrorIs(e.T, err, roles.ErrRecordChanged)
	after := e.Get(seen)
	require.Equal(e.T, "by another", string(after.Payload))
	require.Equal(e.T, seen.Metadata, after.Metadata)
}

func editsRace(e *env) {
	e.repairs()
	seen := e.dead()
	const editors = 4
	errs := make([]error, editors)
	stores := make([]roles.Repairs, editors)
	for i := range stores {
		stores[i] = (&env{e.On(e.Reopen())}).repairs()
	}
	var all sync.WaitGroup
	for i, bench := range stores {
		all.Go(func() {
			_, errs[i] = bench.Edit(e.Ctx, seen.ID, roles.Edit{Seen: storekit.FingerprintOf(seen), Payload: []byte{byte('a' + i)}})
		})
	}
	all.Wait()
	made := -1
	for i, err := range errs {
		if err == nil {
			require.Negative(e.T, made, "two edits of one state")
			made = i
			continue
		}
		require.ErrorIs(e.T, err, roles.ErrRecordChanged)
	}
	require.GreaterOrEqual(e.T, made, 0, "one edit is made")
	require.Equal(e.T, string(rune('a'+made)), string(e.Get(seen).Payload))
}

func editAgain(e *env) {
	bench := e.repairs()
	seen := e.dead()
	edit := roles.Edit{Seen: storekit.FingerprintOf(seen), Payload: []byte("new")}
	for range 2 {
		after, err := bench.Edit(e.Ctx, seen.ID, edit)
		require.NoError(e.T, err)
		require.Equal(e.T, "new", string(after.Payload))
	}
	e.edited(seen, nil, map[string]string{"by": "another"})
	_, err := bench.Edit(e.Ctx, seen.ID, edit)
	require.ErrorIs(e.T, err, roles.ErrRecordChanged, "the metadata has changed since")
}

func editAlive(e *env) {
	bench := e.repairs()
	pending := suite.Rec(orders, "m1")
	e.Filled(pending)
	edit := func(id outmill.WorkItemID, seen *outmill.Record) error {
		_, err := bench.Edit(e.Ctx, id, roles.Edit{Seen: storekit.FingerprintOf(seen), Payload: []byte("new")})
		return err
	}
	require.ErrorIs(e.T, edit(pending.ID, e.Get(pending)), roles.ErrNotDead, "pending")
	leased := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.ErrorIs(e.T, edit(leased.ID, leased), roles.ErrNotDead, "leased")
	require.Equal(e.T, "payload of m1", string(e.Get(pending).Payload))
	require.ErrorIs(e.T, edit(outmill.NewWorkItemID(), leased), outmill.ErrNotFound)
}

func editFields(e *env) {
	bench := e.repairs()
	before := e.dead()
	for _, name := range []string{
		outmill.MetadataKey, outmill.MetadataCorrelationID, outmill.MetadataCausationID, outmill.MetadataTenantID,
		outmill.MetadataTraceParent, outmill.MetadataTraceState,
	} {
		_, err := bench.Edit(e.Ctx, before.ID, roles.Edit{Seen: storekit.FingerprintOf(before), Metadata: map[string]string{name: "x"}})
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord, name)
		require.ErrorContains(e.T, err, name)
	}
	require.Equal(e.T, before, e.Get(before))
}

func editInvalid(e *env) {
	bench := e.repairs()
	before := e.dead()
	seen := storekit.FingerprintOf(before)
	for what, edit := range map[string]roles.Edit{
		"nothing":        {Seen: seen},
		"nothing seen":   {Payload: []byte("new")},
		"no fingerprint": {Seen: "abc", Payload: []byte("new")},
		"a NUL":          {Seen: seen, Metadata: map[string]string{"a": "\x00"}},
		"no UTF-8":       {Seen: seen, Metadata: map[string]string{"\xff": "a"}},
		"large metadata": {Seen: seen, Metadata: map[string]string{"a": strings.Repeat("x", outmill.MaxMetadataBytes)}},
	} {
		_, err := bench.Edit(e.Ctx, before.ID, edit)
		e.RequireRefusal(err, what)
	}
	require.Equal(e.T, before, e.Get(before))
}

func editHostile(e *env) {
	e.repairs()
	before := e.dead()
	metadata := map[string]string{"$set": "$$NOW", "a.b": "c", "quote'\"": `\`, "tag</x>": "&<>", "😀": "line\nbreak", "empty": ""}
	payload := []byte("\x00\xff'; --")
	e.edited(before, payload, metadata)
	after := e.Get(before)
	require.Equal(e.T, payload, after.Payload)
	require.Equal(e.T, metadata, after.Metadata)
}

func editEnded(e *env) {
	bench := e.repairs()
	before := e.dead()
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	other := e.Reopen()
	closed, ok := outmill.As[roles.Repairs](other)
	require.True(e.T, ok)
	require.NoError(e.T, other.Close())
	edit := roles.Edit{Seen: storekit.FingerprintOf(before), Payload: []byte("new")}
	_, err := bench.Edit(cancelled, before.ID, edit)
	require.ErrorIs(e.T, err, context.Canceled)
	_, err = closed.Edit(e.Ctx, before.ID, edit)
	require.ErrorIs(e.T, err, outmill.ErrClosed)
	require.Equal(e.T, before, e.Get(before))
}
