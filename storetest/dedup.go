package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

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
	e.register(group)
	first, second := rec(orders, "first", withDedup("k")), rec(orders, "second", withDedup("k"))
	e.append(first)
	e.append(second)
	require.False(e.t, first.Duplicate)
	require.True(e.t, second.Duplicate)
	require.Equal(e.t, []string{"first"}, names(e.list(outmill.ListQuery{})))
	require.Equal(e.t, "k", e.get(first).DedupKey)
}

func duplicateInOneCall(e *env) {
	e.register(group)
	records := recs(orders, withDedup("k"), "first", "second", "third")
	e.append(records...)
	require.Equal(e.t, []bool{false, true, true}, []bool{records[0].Duplicate, records[1].Duplicate, records[2].Duplicate})
	require.Equal(e.t, []string{"first"}, names(e.claimAll()))
}

func duplicateBesideOthers(e *env) {
	e.filled(rec(orders, "first", withDedup("k")))
	records := []*outmill.Record{
		rec(orders, "before"), rec(orders, "second", withDedup("k")), rec(orders, "after", withDedup("other")),
	}
	e.append(records...)
	require.Equal(e.t, []bool{false, true, false}, []bool{records[0].Duplicate, records[1].Duplicate, records[2].Duplicate})
	require.ElementsMatch(e.t, []string{"first", "before", "after"}, names(e.claimAll()))
}

func keyOutlivesRecord(e *env) {
	e.filled(recs(orders, plain, "plain")...)
	for i, fate := range []func(*outmill.Record){
		func(r *outmill.Record) { e.ack(r) },
		func(r *outmill.Record) { e.fail(r) },
		func(r *outmill.Record) { e.delete(r) },
		func(r *outmill.Record) { e.abandon(0, r) },
	} {
		key := fmt.Sprintf("k%d", i)
		e.append(rec("fates", key, withDedup(key)))
		fate(e.claimOne(outmill.NewOwnerToken(), key, from("fates")))
		again := rec("fates", "again", withDedup(key))
		e.append(again)
		require.True(e.t, again.Duplicate, "fate %d", i)
	}
}

func keyIsOfTopic(e *env) {
	e.register(group)
	records := []*outmill.Record{
		rec("a", "1", withDedup("b c")), rec("a b", "2", withDedup("c")), rec("A", "3", withDedup("b c")),
	}
	e.append(records...)
	require.ElementsMatch(e.t, []string{"1", "2", "3"}, names(e.claimAll()))
}

func keysAreExact(e *env) {
	e.register(group)
	keys := []string{"k", "K", "kk", "k k", "k%", "k_", "k'", "ḱ", "k\u0301", "😀"}
	var records []*outmill.Record
	for _, key := range keys {
		records = append(records, rec(orders, key, withDedup(key)))
	}
	e.append(records...)
	require.ElementsMatch(e.t, keys, names(e.claimAll()))
}

func noKeyNoDuplicate(e *env) {
	e.register(group)
	same := func() *outmill.Record { return rec(orders, "same") }
	e.append(same(), same())
	e.append(same())
	require.Len(e.t, e.claimAll(), 3)
}

func windowEnds(e *env) {
	e.filled(rec(orders, "first", withDedup("k")))
	e.elapse(dedupWindow - time.Minute)
	early := rec(orders, "early", withDedup("k"))
	e.append(early)
	require.True(e.t, early.Duplicate, "within the window")
	e.elapse(2 * time.Minute)
	late := rec(orders, "late", withDedup("k"))
	e.append(late)
	require.False(e.t, late.Duplicate, "after the window")
	again := rec(orders, "again", withDedup("k"))
	e.append(again)
	require.True(e.t, again.Duplicate, "within the next window")
	require.ElementsMatch(e.t, []string{"first", "late"}, names(e.claimAll()))
}

func duplicateDoesNotProlong(e *env) {
	e.filled(rec(orders, "first", withDedup("k")))
	e.elapse(dedupWindow / 2)
	e.append(rec(orders, "duplicate", withDedup("k")))
	e.elapse(dedupWindow/2 + time.Minute)
	late := rec(orders, "late", withDedup("k"))
	e.append(late)
	require.False(e.t, late.Duplicate)
}

func keyOfWaitingRecord(e *env) {
	e.append(rec(orders, "first", withDedup("k")))
	e.append(rec(orders, "second", withDedup("k")))
	e.register(group)
	e.append(rec(orders, "third", withDedup("k")))
	require.Equal(e.t, []string{"first"}, names(e.claimAll()))
}

func dedupWithGroups(e *env) {
	e.register("one")
	e.register("two")
	e.append(rec(orders, "first", withDedup("k")))
	second := rec(orders, "second", withDedup("k"))
	e.append(second)
	require.True(e.t, second.Duplicate)
	require.Equal(e.t, []string{"first"}, names(e.claimAll(ofGroup("one"))))
	require.Equal(e.t, []string{"first"}, names(e.claimAll(ofGroup("two"))))
}

func duplicateInTransaction(e *env) {
	e.filled(rec(orders, "first", withDedup("k")))
	ctx, commit, _ := e.begin()
	second := rec(orders, "second", withDedup("k"))
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "before"), second))
	require.True(e.t, second.Duplicate)
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "new", withDedup("new"))))
	again := rec(orders, "again", withDedup("new"))
	require.NoError(e.t, e.store.Append(ctx, again))
	require.True(e.t, again.Duplicate, "the key was seen in the same transaction")
	commit()
	require.ElementsMatch(e.t, []string{"first", "before", "new"}, names(e.claimAll()))
}

func rolledBackKeyIsFree(e *env) {
	e.register(group)
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "never", withDedup("k"))))
	rollback()
	r := rec(orders, "m1", withDedup("k"))
	e.append(r)
	require.False(e.t, r.Duplicate)
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
}

func refusedKeyIsFree(e *env) {
	e.register(group)
	require.Error(e.t, e.store.Append(e.ctx, rec(orders, "never", withDedup("k")), rec("", "bad")))
	r := rec(orders, "m1", withDedup("k"))
	e.append(r)
	require.False(e.t, r.Duplicate)
}

func keyKnownElsewhere(e *env) {
	e.filled(rec(orders, "first", withDedup("k")))
	r := rec(orders, "second", withDedup("k"))
	require.NoError(e.t, e.reopen().Append(e.ctx, r))
	require.True(e.t, r.Duplicate)
}

func concurrentDuplicates(e *env) {
	e.register(group)
	const writers = 10
	var work errgroup.Group
	var kept atomic.Int64
	for i := range writers {
		work.Go(func() error {
			r := rec(orders, fmt.Sprintf("m%d", i), withDedup("k"))
			if err := e.store.Append(e.ctx, r, rec(orders, "beside")); err != nil {
				return err
			}
			if !r.Duplicate {
				kept.Add(1)
			}
			return nil
		})
	}
	require.NoError(e.t, work.Wait())
	require.EqualValues(e.t, 1, kept.Load(), "appends that were not marked Duplicate")
	require.Len(e.t, e.claimAll(), writers+1)
}
