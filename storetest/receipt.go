package storetest

import (
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func receiptSentences() []sentence {
	return []sentence{
		{"Append says which groups a record reaches, and under which id each", receiptOfGroups},
		{"the ids that Append has named stay those of the records while groups come and go", receiptStays},
		{"Append says of a record that it waits for a group", receiptOfWaiting},
		{"Append says when it created the records, in a transaction of the caller too", receiptOfTime},
		{"Append says of a duplicate that no group has it", receiptOfDuplicate},
		{"an Append that fails changes no record", receiptOfFailure},
	}
}

func copySentences() []sentence {
	return []sentence{
		{"Get with the id that Append has set names the records of other groups, once its own is gone", copiesOfGone},
		{"Get with an id that no message has names no records", copiesOfNone},
	}
}

func copiesOfGone(e *env) {
	e.Register("a")
	e.Register("b")
	e.Register("c")
	r, other := suite.Rec(orders, "m1"), suite.Rec(orders, "m2")
	e.Append(r, other)
	require.Equal(e.T, 1, e.Delete(r))
	get := func() *outmill.CopiesError {
		_, err := e.Store.Get(e.Ctx, r.ID)
		require.ErrorIs(e.T, err, outmill.ErrNotFound)
		var copies *outmill.CopiesError
		require.ErrorAs(e.T, err, &copies)
		require.Equal(e.T, r.ID, copies.ID)
		for _, id := range copies.Copies {
			require.ErrorContains(e.T, err, id.String())
		}
		return copies
	}
	of := func(group string) outmill.WorkItemID { return outmill.CopyID(r.ID, group) }
	both := map[string]outmill.WorkItemID{"b": of("b"), "c": of("c")}
	require.Equal(e.T, both, get().Copies)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("b"))
	require.Equal(e.T, both, get().Copies)
	require.Equal(e.T, 1, e.Delete(&outmill.Record{ID: of("b")}))
	require.Equal(e.T, map[string]outmill.WorkItemID{"c": of("c")}, get().Copies)
	require.Equal(e.T, 1, e.Delete(&outmill.Record{ID: of("c")}))
	_, err := e.Store.Get(e.Ctx, r.ID)
	require.NotErrorAs(e.T, err, new(*outmill.CopiesError))
	require.ErrorIs(e.T, err, outmill.ErrNotFound)
}

func copiesOfNone(e *env) {
	e.Register("a")
	e.Register("b")
	r := suite.Rec(orders, "m1")
	e.Append(r)
	// It stands beside the record in the order of the ids.
	unknown := r.ID
	unknown[len(unknown)-1]++
	_, err := e.Store.Get(e.Ctx, unknown)
	require.ErrorIs(e.T, err, outmill.ErrNotFound)
	require.NotErrorAs(e.T, err, new(*outmill.CopiesError))
}

func receiptOfGroups(e *env) {
	e.Register("b", orders)
	e.Register("a", orders, "others")
	e.Register("c", orders)
	r, other := suite.Rec(orders, "m1"), suite.Rec("others", "m2")
	e.Append(r, other)
	require.Equal(e.T, "a", r.Group)
	require.Equal(e.T, []string{"b", "c"}, r.CopiedTo)
	require.Equal(e.T, "a", other.Group)
	require.Nil(e.T, other.CopiedTo)
	for _, name := range []string{"a", "b", "c"} {
		id := r.ID
		if name != "a" {
			id = outmill.CopyID(r.ID, name)
		}
		got, err := e.Store.Get(e.Ctx, id)
		require.NoError(e.T, err, name)
		require.Equal(e.T, name, got.Group)
		require.Equal(e.T, "m1", got.MessageID)
	}
}

func receiptStays(e *env) {
	check := func(id outmill.WorkItemID, group, name string) {
		e.T.Helper()
		got, err := e.Store.Get(e.Ctx, id)
		require.NoError(e.T, err)
		require.Equal(e.T, []string{group, name}, []string{got.Group, got.MessageID})
	}
	e.Register("b")
	one, two := suite.Rec(orders, "m1"), suite.Rec(orders, "m2")
	e.Append(one)
	e.Register("a")
	e.Append(two)
	copied := outmill.CopyID(two.ID, "b")
	e.Register("c")
	e.requireDrop("a", 0, 1)
	_, err := e.Store.Get(e.Ctx, two.ID)
	require.ErrorIs(e.T, err, outmill.ErrNotFound, "what was dropped beside other groups is gone")
	check(one.ID, "b", "m1")
	check(copied, "b", "m2")
	e.requireDrop("c", 0, 0)
	e.requireDrop("b", 2, 0)
	check(copied, "", "m2")
	e.Register("d")
	check(one.ID, "d", "m1")
	check(copied, "d", "m2")
	ids := suite.IDs(e.ClaimAll(suite.OfGroup("d"), suite.ByKey))
	require.ElementsMatch(e.T, []outmill.WorkItemID{one.ID, copied}, ids)
}

func receiptOfWaiting(e *env) {
	e.Register(group, "others")
	r := suite.Rec(orders, "m1", func(r *outmill.Record) {
		r.Group, r.CopiedTo = "nobody", []string{"nobody"}
	})
	e.Append(r)
	require.Empty(e.T, r.Group)
	require.Empty(e.T, r.CopiedTo)
}

// receiptOfTime appends one record, some, many, and some with dedup keys, because a store
// may have a statement for each.
func receiptOfTime(e *env) {
	e.Register(group)
	keyed := func(r *outmill.Record) { r.DedupKey = r.MessageID }
	check := func(how string, records []*outmill.Record) {
		for _, r := range records {
			require.Equal(e.T, e.Get(r).CreatedAt, r.CreatedAt, "%s: %d records", how, len(records))
		}
	}
	batches := func(how string) [][]*outmill.Record {
		return [][]*outmill.Record{
			suite.Recs(orders, suite.Plain, "one"), suite.Recs(orders, suite.Plain, suite.Numbered(3)...),
			suite.Recs(orders, suite.Plain, suite.Numbered(60)...),
			{suite.Rec(orders, how+" keyed", keyed)}, {suite.Rec(orders, how+" keyed", keyed), suite.Rec(orders, how+" keyed 2", keyed)},
		}
	}
	for i, records := range batches("alone") {
		e.Append(records...)
		if i == 4 {
			records = records[1:]
		}
		check("alone", records)
	}
	var all [][]*outmill.Record
	ctx, commit, _ := e.Begin()
	for i, records := range batches("within") {
		require.NoError(e.T, e.Store.Append(ctx, records...))
		if i == 4 {
			records = records[1:]
		}
		all = append(all, records)
	}
	commit()
	for _, records := range all {
		check("within", records)
	}
}

func receiptOfDuplicate(e *env) {
	e.Register(group)
	e.Register("second")
	keyed := func(r *outmill.Record) { r.DedupKey = "d" }
	first, twice, later := suite.Rec(orders, "m1", keyed), suite.Rec(orders, "m2", keyed), suite.Rec(orders, "m3", keyed)
	e.Append(first, twice)
	e.Append(later)
	require.False(e.T, first.Duplicate)
	require.NotEmpty(e.T, first.Group)
	for _, r := range []*outmill.Record{twice, later} {
		require.True(e.T, r.Duplicate, r.MessageID)
		require.Empty(e.T, r.Group, r.MessageID)
		require.Empty(e.T, r.CopiedTo, r.MessageID)
		require.True(e.T, r.CreatedAt.IsZero(), r.MessageID)
	}
}

func receiptOfFailure(e *env) {
	e.Register(group)
	taken := suite.Rec(orders, "m1")
	e.Append(taken)
	before := suite.Rec(orders, "m2")
	fails := *taken
	require.Error(e.T, e.Store.Append(e.Ctx, before, &fails))
	require.Equal(e.T, suite.Rec(orders, "m2"), before)
}
