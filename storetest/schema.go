package storetest

import (
	"strings"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
)

func schemaSentences() []sentence {
	return []sentence{
		{"OBX-108 Ensure creates the schema", ensureCreates},
		{"OBX-110 Ensure is idempotent and keeps what is there", ensureKeeps},
		{"Ensure is safe when ten processes start at once on an empty database", ensureAtOnce},
		{"OBX-109 without a schema every call is ErrSchemaMissing and creates none", schemaMissing},
		{"Ensure is ErrSchemaNewer where a newer version made the schema", schemaNewer},
		{"Statements returns the schema as text, always the same", statementsAreText},
		{"Statements make a schema that the store works on", statementsMakeSchema},
	}
}

// bare is e with a store whose schema was not ensured.
func (e *env) bare() *env {
	options := e.options
	options.NoSchema = true
	return newEnv(e.t, e.h, options)
}

func (e *env) ensure() {
	e.t.Helper()
	require.NoError(e.t, e.store.Ensure(e.ctx), "Ensure")
}

func (e *env) requireWorks() {
	e.t.Helper()
	e.filled(rec(orders, "m1"))
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.t, e.claimAll())
}

func ensureCreates(e *env) {
	e = e.bare()
	e.ensure()
	e.requireWorks()
}

func ensureKeeps(e *env) {
	e.filled(recs(orders, withDedup("k"), "m1")...)
	for range 3 {
		e.ensure()
	}
	require.NoError(e.t, e.reopen().Ensure(e.ctx))
	again := rec(orders, "again", withDedup("k"))
	e.append(again)
	require.True(e.t, again.Duplicate)
	require.Len(e.t, e.groups(), 1)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func ensureAtOnce(e *env) {
	e = e.bare()
	stores := []outmill.Store{e.store}
	for range 9 {
		stores = append(stores, e.reopen())
	}
	var starts errgroup.Group
	for _, store := range stores {
		starts.Go(func() error { return store.Ensure(e.ctx) })
	}
	require.NoError(e.t, starts.Wait())
	e.requireWorks()
}

func schemaMissing(e *env) {
	e = e.bare()
	for _, call := range storeCalls() {
		if call.name != "Ensure" {
			require.ErrorIs(e.t, call.do(e.ctx, e.store), outmill.ErrSchemaMissing, call.name)
		}
	}
}

func schemaNewer(e *env) {
	if e.h.MakeNewer == nil {
		e.t.Skip("Harness.MakeNewer is not given")
	}
	e.filled(rec(orders, "m1"))
	e.h.MakeNewer(e.t, e.store)
	require.ErrorIs(e.t, e.reopen().Ensure(e.ctx), outmill.ErrSchemaNewer)
}

func statementsAreText(e *env) {
	statements := e.store.Statements()
	require.NotEmpty(e.t, statements)
	for _, s := range statements {
		require.NotEmpty(e.t, strings.TrimSpace(s))
	}
	require.Equal(e.t, statements, e.store.Statements())
}

func statementsMakeSchema(e *env) {
	if e.h.Apply == nil {
		e.t.Skip("Harness.Apply is not given")
	}
	e = e.bare()
	e.h.Apply(e.t, e.store, e.store.Statements())
	e.requireWorks()
	e.ensure()
	require.Len(e.t, e.groups(), 1, "groups after Ensure")
}
