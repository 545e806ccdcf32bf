package storetest

import (
	"errors"
	"math"
	"strings"

	"github.com/outmill/outmill/storetest/internal/suite"

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

// bare returns e with a store whose schema was not ensured.
func (e *env) bare() *env { return &env{e.Bare()} }

// applier returns the harness as an Applier, or skips the test if it is not one.
func (e *env) applier() Applier {
	e.T.Helper()
	h, ok := e.Harness.(Applier)
	if !ok {
		e.T.Skip("the Harness is no Applier")
	}
	return h
}

func (e *env) ensure() {
	e.T.Helper()
	require.NoError(e.T, e.Store.Ensure(e.Ctx), "Ensure")
}

func (e *env) requireWorks() {
	e.T.Helper()
	e.Filled(suite.Rec(orders, "m1"))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.T, e.ClaimAll())
}

func ensureCreates(e *env) {
	e = e.bare()
	e.ensure()
	e.requireWorks()
}

func ensureKeeps(e *env) {
	e.Filled(suite.Recs(orders, suite.WithDedup("k"), "m1")...)
	for range 3 {
		e.ensure()
	}
	require.NoError(e.T, e.Reopen().Ensure(e.Ctx))
	again := suite.Rec(orders, "again", suite.WithDedup("k"))
	e.Append(again)
	require.True(e.T, again.Duplicate)
	require.Len(e.T, e.groups(), 1)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func ensureAtOnce(e *env) {
	e = e.bare()
	stores := []outmill.Store{e.Store}
	for range 9 {
		stores = append(stores, e.Reopen())
	}
	var starts errgroup.Group
	for _, store := range stores {
		starts.Go(func() error { return store.Ensure(e.Ctx) })
	}
	require.NoError(e.T, starts.Wait())
	e.requireWorks()
}

func schemaMissing(e *env) {
	e = e.bare()
	for _, call := range storeCalls() {
		if call.name != "Ensure" {
			require.ErrorIs(e.T, call.do(e.Ctx, e.Store), outmill.ErrSchemaMissing, call.name)
		}
	}
}

func schemaNewer(e *env) {
	h, ok := e.Harness.(Ager)
	if !ok {
		e.T.Skip("the Harness is no Ager")
	}
	e.Filled(suite.Rec(orders, "m1"))
	h.MakeNewer()
	require.ErrorIs(e.T, e.Reopen().Ensure(e.Ctx), outmill.ErrSchemaNewer)
}

func statementsAreText(e *env) {
	statements := e.Store.Statements()
	require.NotEmpty(e.T, statements)
	for _, s := range statements {
		require.NotEmpty(e.T, strings.TrimSpace(s))
	}
	require.Equal(e.T, statements, e.Store.Statements())
}

func statementsMakeSchema(e *env) {
	e.applier()
	e = e.bare()
	e.applier().Apply(e.Store.Statements())
	e.requireWorks()
	e.ensure()
	require.Len(e.T, e.groups(), 1, "groups after Ensure")
}

// statementsOfVersions returns StatementsFrom for each version that the store knows.
func (e *env) statementsOfVersions() [][]string {
	e.T.Helper()
	var all [][]string
	for version := 0; ; version++ {
		statements, err := e.Store.StatementsFrom(version)
		if errors.Is(err, outmill.ErrSchemaNewer) {
			require.Greater(e.T, version, 1, "versions")
			return all
		}
		require.NoError(e.T, err, "StatementsFrom %d", version)
		all = append(all, statements)
	}
}

func statementsFromAreTheEnd(e *env) {
	whole := e.Store.Statements()
	for version, statements := range e.statementsOfVersions() {
		if version == 0 {
			require.Equal(e.T, whole, statements)
			continue
		}
		require.Less(e.T, len(statements), len(whole), "statements from version %d", version)
		require.Equal(e.T, strings.Join(whole[len(whole)-len(statements):], "\n"), strings.Join(statements, "\n"), "statements from version %d",
			version)
		whole = statements
	}
}

func statementsFromMakeSchema(e *env) {
	e.applier()
	newest := len(e.statementsOfVersions()) - 1
	for version := range newest + 1 {
		e := e.bare()
		whole, statements := e.Store.Statements(), e.statementsOfVersions()[version]
		e.applier().Apply(whole[:len(whole)-len(statements)])
		if version > 0 && version < newest {
			require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "early")), outmill.ErrSchemaOutdated, "version %d", version)
		}
		e.applier().Apply(statements)
		e.requireWorks()
		e.ensure()
	}
}

func statementsFromRefuses(e *env) {
	_, err := e.Store.StatementsFrom(-1)
	require.ErrorIs(e.T, err, outmill.ErrInvalidConfig)
	_, err = e.Store.StatementsFrom(len(e.statementsOfVersions()))
	require.ErrorIs(e.T, err, outmill.ErrSchemaNewer)
	_, err = e.Store.StatementsFrom(math.MaxInt)
	require.ErrorIs(e.T, err, outmill.ErrSchemaNewer)
}
