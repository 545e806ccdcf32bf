package storetest

import (
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func headSentences() []sentence {
	return []sentence{
		{"List returns payload and metadata only if the query asks for the content", listHeads},
		{"Find returns payload and metadata only if the query asks for the content", findHeads},
		{"DeadLetters returns payload and metadata only if the query asks for the content", letterHeads},
		{"a query for a contract finds its records without their payloads", contractHeads},
	}
}

// requireHead checks a record of a list against that of Get.
func (e *env) requireHead(whole, got *outmill.Record, content bool) {
	e.T.Helper()
	want := *whole
	want.History = nil
	if !content {
		want.Payload, want.Metadata = nil, nil
	}
	require.Equal(e.T, &want, got)
}

func (e *env) withContent(changes ...func(*outmill.Record)) *outmill.Record {
	e.T.Helper()
	r := suite.Rec(orders, "m1", changes...)
	r.Payload, r.Metadata = []byte("payload"), map[string]string{"kind": "order", outmill.MetadataContract: "orders.placed"}
	r.CorrelationID, r.CausationID, r.DedupKey, r.TraceParent = "correlation", "causation", "dedup", "parent"
	e.Filled(r)
	return r
}

func listHeads(e *env) {
	r := e.withContent(suite.WithKey("k"))
	for _, content := range []bool{false, true} {
		found, err := e.Store.List(e.Ctx, outmill.ListQuery{CorrelationID: "correlation", Content: content})
		require.NoError(e.T, err)
		require.Len(e.T, found, 1)
		e.requireHead(e.Get(r), found[0], content)
	}
}

func findHeads(e *env) {
	operator, ok := outmill.As[roles.Repairs](e.Store)
	if !ok {
		e.T.Skip("the store is no roles.Repairs")
	}
	r := e.withContent()
	for _, content := range []bool{false, true} {
		page, err := operator.Find(e.Ctx, outmill.ListQuery{Content: content})
		require.NoError(e.T, err)
		require.Len(e.T, page.Records, 1)
		e.requireHead(e.Get(r), page.Records[0], content)
	}
}

func letterHeads(e *env) {
	bench := e.repairs()
	r := e.withContent()
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	for _, content := range []bool{false, true} {
		page, err := bench.DeadLetters(e.Ctx, outmill.ListQuery{Content: content})
		require.NoError(e.T, err)
		require.Len(e.T, page.Letters, 1)
		e.requireHead(e.Get(r), page.Letters[0].Record, content)
	}
}

func contractHeads(e *env) {
	e.withContent()
	e.Append(suite.Rec(orders, "of no contract"))
	found, err := e.Store.List(e.Ctx, outmill.ListQuery{Contract: "orders.placed"})
	require.NoError(e.T, err)
	require.Equal(e.T, []string{"m1"}, suite.Names(found))
	require.Nil(e.T, found[0].Payload)
}
