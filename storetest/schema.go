package storetest

import (
	"errors"
	"math"
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
		{"StatementsFrom returns the end of Statements, less for each later version", statementsFromAreTheEnd},
		{"StatementsFrom makes the newest schema of each version before", statementsFromMakeSchema},
		{"StatementsFrom refuses a version that is negative or newer than the program", statementsFromRefuses},
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

// statementsOfVersions are those from each version on that the store knows.
func (e *env) statementsOfVersions() [][]string {
	e.t.Helper()
	var all [][]string
	for version := 0; ; version++ {
		statements, err := e.store.StatementsFrom(version)
		if errors.Is(err, outmill.ErrSchemaNewer) {
			require.Greater(e.t, version, 1, "versions")
			return all
		}
		require.NoError(e.t, err, "StatementsFrom %d", version)
		all = append(all, statements)
	}
}

func statementsFromAreTheEnd(e *env) {
	whole := e.store.Statements()
	for version, statements := range e.statementsOfVersions() {
		if version == 0 {
			require.Equal(e.t, whole, statements)
			continue
		}
		require.Less(e.t, len(statements), len(whole), "statements from version %d", version)
		require.Equal(e.t, strings.Join(whole[len(whole)-len(statements):], "\n"), strings.Join(statements, "\n"), "statements from version %d", version)
		whole = statements
	}
}

func statementsFromMakeSchema(e *env) {
	if e.h.Apply == nil {
		e.t.Skip("Harness.Apply is not given")
	}
	newest := len(e.statementsOfVersions()) - 1
	for version := range newest + 1 {
		e := e.bare()
		whole, statements := e.store.Statements(), e.statementsOfVersions()[version]
		e.h.Apply(e.t, e.store, whole[:len(whole)-len(statements)])
		if version > 0 && version < newest {
			require.ErrorIs(e.t, e.store.Append(e.ctx, rec(orders, "early")), outmill.ErrSchemaOutdated, "version %d", version)
		}
		e.h.Apply(e.t, e.store, statements)
		e.requireWorks()
		e.ensure()
	}
}

func statementsFromRefuses(e *env) {
	_, err := e.store.StatementsFrom(-1)
	require.ErrorIs(e.t, err, outmill.ErrInvalidConfig)
	_, err = e.store.StatementsFrom(len(e.statementsOfVersions()))
	require.ErrorIs(e.t, err, outmill.ErrSchemaNewer)
	_, err = e.store.StatementsFrom(math.MaxInt)
	require.ErrorIs(e.t, err, outmill.ErrSchemaNewer)
}
