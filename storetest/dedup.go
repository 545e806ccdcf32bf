package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
)

func dedupSentences() []sentence {
	return []sentence{
		{"a record with a dedup key that was seen is left out and marked Duplicate", duplicateIsLeftOut},
		{"of two records of one call with one dedup key the first is kept", duplicateInOneCall},
		{"a duplicate does not keep the other records of its call out", duplicateBesideOthers},
		{"a dedup key holds whatever became of its record", keyOutlivesRecord},
		{"a dedup key holds for its topic only", keyIsOfTopic},
		{"dedup keys are compared exactly", keysAreExact},
		{"records without a dedup key are never duplicates", noKeyNoDuplicate},
		{"a dedup key is free again when the store's window has ended", windowEnds},
		{"a duplicate does not prolong the window", duplicateDoesNotProlong},
		{"a dedup key holds after the record that waited has found its group", keyOfWaitingRecord},
		{"a message with a dedup key reaches each of several groups once", dedupWithGroups},
		{"a duplicate in a caller's transaction does not abort it", duplicateInTransaction},
		{"a dedup key of a transaction that rolled back is free", rolledBackKeyIsFree},
		{"a dedup key of a refused call is free", refusedKeyIsFree},
		{"a dedup key seen by one process is known to another", keyKnownElsewhere},
		{"of concurrent appends with one dedup key one is kept", concurrentDuplicates},
	}
}

func duplicateIsLeftOut(e *env) {
	e.Register(group)
	first, second := suite.Rec(orders, "first", suite.WithDedup("k")), suite.Rec(orders, "second", suite.WithDedup("k"))
	e.Append(first)
	e.Append(second)
	require.False(e.T, first.Duplicate)
	require.True(e.T, second.Duplicate)
	require.Equal(e.T, []string{"first"}, suite.Names(e.List(outmill.ListQuery{})))
	require.Equal(e.T, "k", e.Get(first).DedupKey)
}

func duplicateInOneCall(e *env) {
	e.Register(group)
	records := suite.Recs(orders, suite.WithDedup("k"), "first", "second", "third")
	e.Append(records...)
	require.Equal(e.T, []bool{false, true, true}, []bool{records[0].Duplicate, records[1].Duplicate, records[2].Duplicate})
	require.Equal(e.T, []string{"first"}, suite.Names(e.ClaimAll()))
}

func duplicateBesideOthers(e *env) {
	e.Filled(suite.Rec(orders, "first", suite.WithDedup("k")))
	records := []*outmill.Record{
		suite.Rec(orders, "before"), suite.Rec(orders, "second", suite.WithDedup("k")), suite.Rec(orders, "after", suite.WithDedup("other")),
	}
	e.Append(records...)
	require.Equal(e.T, []bool{false, true, false}, []bool{records[0].Duplicate, records[1].Duplicate, records[2].Duplicate})
	require.ElementsMatch(e.T, []string{"first", "before", "after"}, suite.Names(e.ClaimAll()))
}

func keyOutlivesRecord(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "plain")...)
	for i, fate := range []func(*outmill.Record){
		func(r *outmill.Record) { e.Ack(r) },
		func(r *outmill.Record) { e.Fail(r) },
		func(r *outmill.Record) { e.Delete(r) },
		func(r *outmill.Record) { e.Abandon(0, r) },
	} {
		key := fmt.Sprintf("k%d", i)
		e.Append(suite.Rec("fates", key, suite.WithDedup(key)))
		fate(e.ClaimOne(outmill.NewOwnerToken(), key, suite.From("fates")))
		again := suite.Rec("fates", "again", suite.WithDedup(key))
		e.Append(again)
		require.True(e.T, again.Duplicate, "fate %d", i)
	}
}

func keyIsOfTopic(e *env) {
	e.Register(group)
	records := []*outmill.Record{
		suite.Rec("a", "1", suite.WithDedup("b c")), suite.Rec("a b", "2", suite.WithDedup("c")), suite.Rec("A", "3", suite.WithDedup("b c")),
	}
	e.Append(records...)
	require.ElementsMatch(e.T, []string{"1", "2", "3"}, suite.Names(e.ClaimAll()))
}

func keysAreExact(e *env) {
	e.Register(group)
	keys := []string{"k", "K", "kk", "k k", "k%", "k_", "k'", "ḱ", "k\u0301", "😀"}
	var records []*outmill.Record
	for _, key := range keys {
		records = append(records, suite.Rec(orders, key, suite.WithDedup(key)))
	}
	e.Append(records...)
	require.ElementsMatch(e.T, keys, suite.Names(e.ClaimAll()))
}

func noKeyNoDuplicate(e *env) {
	e.Register(group)
	same := func() *outmill.Record { return suite.Rec(orders, "same") }
	e.Append(same(), same())
	e.Append(same())
	require.Len(e.T, e.ClaimAll(), 3)
}

func windowEnds(e *env) {
	e.Filled(suite.Rec(orders, "first", suite.WithDedup("k")))
	e.Elapse(suite.DedupWindow - time.Minute)
	early := suite.Rec(orders, "early", suite.WithDedup("k"))
	e.Append(early)
	require.True(e.T, early.Duplicate, "within the window")
	e.Elapse(2 * time.Minute)
	late := suite.Rec(orders, "late", suite.WithDedup("k"))
	e.Append(late)
	require.False(e.T, late.Duplicate, "after the window")
	again := suite.Rec(orders, "again", suite.WithDedup("k"))
	e.Append(again)
	require.True(e.T, again.Duplicate, "within the next window")
	require.ElementsMatch(e.T, []string{"first", "late"}, suite.Names(e.ClaimAll()))
}

func duplicateDoesNotProlong(e *env) {
	e.Filled(suite.Rec(orders, "first", suite.WithDedup("k")))
	e.Elapse(suite.DedupWindow / 2)
	e.Append(suite.Rec(orders, "duplicate", suite.WithDedup("k")))
	e.Elapse(suite.DedupWindow/2 + time.Minute)
	late := suite.Rec(orders, "late", suite.WithDedup("k"))
	e.Append(late)
	require.False(e.T, late.Duplicate)
}

func keyOfWaitingRecord(e *env) {
	e.Append(suite.Rec(orders, "first", suite.WithDedup("k")))
	e.Append(suite.Rec(orders, "second", suite.WithDedup("k")))
	e.Register(group)
	e.Append(suite.Rec(orders, "third", suite.WithDedup("k")))
	require.Equal(e.T, []string{"first"}, suite.Names(e.ClaimAll()))
}

func dedupWithGroups(e *env) {
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec(orders, "first", suite.WithDedup("k")))
	second := suite.Rec(orders, "second", suite.WithDedup("k"))
	e.Append(second)
	require.True(e.T, second.Duplicate)
	require.Equal(e.T, []string{"first"}, suite.Names(e.ClaimAll(suite.OfGroup("one"))))
	require.Equal(e.T, []string{"first"}, suite.Names(e.ClaimAll(suite.OfGroup("two"))))
}

func duplicateInTransaction(e *env) {
	e.Filled(suite.Rec(orders, "first", suite.WithDedup("k")))
	ctx, commit, _ := e.Begin()
	second := suite.Rec(orders, "second", suite.WithDedup("k"))
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "before"), second))
	require.True(e.T, second.Duplicate)
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "new", suite.WithDedup("new"))))
	again := suite.Rec(orders, "again", suite.WithDedup("new"))
	require.NoError(e.T, e.Store.Append(ctx, again))
	require.True(e.T, again.Duplicate, "the key was seen in the same transaction")
	commit()
	require.ElementsMatch(e.T, []string{"first", "before", "new"}, suite.Names(e.ClaimAll()))
}

func rolledBackKeyIsFree(e *env) {
	e.Register(group)
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "never", suite.WithDedup("k"))))
	rollback()
	r := suite.Rec(orders, "m1", suite.WithDedup("k"))
	e.Append(r)
	require.False(e.T, r.Duplicate)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
}

func refusedKeyIsFree(e *env) {
	e.Register(group)
	require.Error(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "never", suite.WithDedup("k")), suite.Rec("", "bad")))
	r := suite.Rec(orders, "m1", suite.WithDedup("k"))
	e.Append(r)
	require.False(e.T, r.Duplicate)
}

func keyKnownElsewhere(e *env) {
	e.Filled(suite.Rec(orders, "first", suite.WithDedup("k")))
	r := suite.Rec(orders, "second", suite.WithDedup("k"))
	require.NoError(e.T, e.Reopen().Append(e.Ctx, r))
	require.True(e.T, r.Duplicate)
}

func concurrentDuplicates(e *env) {
	e.Register(group)
	const writers = 10
	var work errgroup.Group
	var kept atomic.Int64
	for i := range writers {
		work.Go(func() error {
			r := suite.Rec(orders, fmt.Sprintf("m%d", i), suite.WithDedup("k"))
			if err := e.Store.Append(e.Ctx, r, suite.Rec(orders, "beside")); err != nil {
				return err
			}
			if !r.Duplicate {
				kept.Add(1)
			}
			return nil
		})
	}
	require.NoError(e.T, work.Wait())
	require.EqualValues(e.T, 1, kept.Load(), "appends that were not marked Duplicate")
	require.Len(e.T, e.ClaimAll(), writers+1)
}
