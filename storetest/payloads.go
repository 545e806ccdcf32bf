package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// In Kafka a nil payload is a tombstone, which deletes the key of a compacted topic, and an empty
// one is a value. So no store may make one of the other, on any way of a record.

func withNil(r *outmill.Record) { r.Payload = nil }

func withEmpty(r *outmill.Record) { r.Payload = []byte{} }

// requireNilAndEmpty checks the records that are called nil or empty.
func (e *env) requireNilAndEmpty(how string, records ...*outmill.Record) {
	e.T.Helper()
	require.NotEmpty(e.T, records, how)
	for _, r := range records {
		require.Empty(e.T, r.Payload, how)
		require.Equal(e.T, r.MessageID[:1] == "n", r.Payload == nil, "%s: the payload of %s is nil", how, r.MessageID)
	}
}

// nilAndEmpty goes all ways: appended alone, in small and in large calls, with a key and without,
// before and after the group has registered.
func nilAndEmpty(e *env) {
	pairs := func(names ...string) (records []*outmill.Record) {
		for _, name := range names {
			records = append(records, suite.Rec(orders, "n"+name, withNil, suite.WithKey("k"+name)),
				suite.Rec(orders, "e"+name, withEmpty, suite.WithKey("k"+name)))
		}
		return append(records, suite.Rec(orders, "n", withNil), suite.Rec(orders, "e", withEmpty))
	}
	waiting := pairs("waiting")
	e.Append(waiting...)
	e.requireNilAndEmpty("List of what waits for a group", e.List(outmill.ListQuery{})...)
	e.Register(group)
	e.Append(pairs("few")...)
	e.Append(suite.Rec(orders, "n alone", withNil))
	e.Append(suite.Rec(orders, "e alone", withEmpty))
	e.Append(pairs(suite.Numbered(60)...)...)

	found := e.ClaimAll()
	e.requireNilAndEmpty("Claim", found...)
	e.requireNilAndEmpty("Get of a leased record", e.Get(found[0]), e.Get(found[1]))
	half := len(found) / 2
	e.Abandon(0, found[:half]...)
	e.Fail(found[half:]...)
	e.requireNilAndEmpty("List after Abandon and Fail", e.List(outmill.ListQuery{})...)
	e.requireNilAndEmpty("Claim by key after Abandon", e.ClaimAll(suite.InOrder(outmill.OrderKey, outmill.KeyBlock))...)
	require.Positive(e.T, e.Requeue(found[half:]...))
	e.Elapse(leaseOf + time.Second)
	e.requireNilAndEmpty("Claim after Requeue, and of ended leases", e.ClaimAll()...)
}

func editNilAndEmpty(e *env) {
	e.repairs()
	r := e.dead(withNil)
	r = e.edited(r, nil, map[string]string{"a": "b"})
	require.Nil(e.T, r.Payload, "an edit of the metadata")
	require.Nil(e.T, e.Get(r).Payload, "an edit of the metadata")
	seen := storekit.FingerprintOf(r)
	r = e.edited(r, []byte{}, nil)
	require.NotNil(e.T, r.Payload, "an edit that empties the payload")
	require.Equal(e.T, []byte{}, e.Get(r).Payload, "an edit that empties the payload")
	require.NotEqual(e.T, seen, storekit.FingerprintOf(r))
	_, err := e.repairs().Edit(e.Ctx, r.ID, roles.Edit{Seen: seen, Metadata: map[string]string{"a": "c"}})
	require.ErrorIs(e.T, err, roles.ErrRecordChanged, "the caller saw a nil payload")
	r = e.edited(r, nil, map[string]string{"a": "c"})
	require.Equal(e.T, []byte{}, r.Payload, "a later edit of the metadata")
	require.Equal(e.T, 1, e.Requeue(r))
	require.Equal(e.T, []byte{}, e.ClaimOne(outmill.NewOwnerToken(), "m1").Payload)
}
