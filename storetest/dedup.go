package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
		{"a dedup key names the first record until its window ends", keyNamesFirst},
		{"a dedup key that is free again names the next record", keyNamesNext},
		{"a dedup key that nobody has is not found, and one that a store cannot keep is refused", keyIsNotFound},
	}
}

// dedupKeys skips the test if the store lacks the role.
func (e *env) dedupKeys() storekit.DedupKeys {
	e.T.Helper()
	keys, ok := outmill.As[storekit.DedupKeys](e.Store)
	if !ok {
		e.T.Skip("skipped: the store lacks the role storekit.DedupKeys")
	}
	return keys
}

func (e *env) requireFirst(topic, key string, first *outmill.Record, expires time.Time) {
	e.T.Helper()
	found, err := e.dedupKeys().DedupKey(e.Ctx, topic, key)
	require.NoError(e.T, err)
	require.Equal(e.T, first.ID, found.Record)
	require.Equal(e.T, []string{topic, key}, []string{found.Topic, found.Key})
	e.RequireAbout(expires, found.ExpiresAt, "the window ends")
}

func keyNamesFirst(e *env) {
	keys := e.dedupKeys()
	for _, name := range []string{"b", "a", "c"} {
		e.Register(name)
	}
	own := suite.Rec(orders, "own id", suite.WithDedup("own"))
	own.ID = outmill.NewWorkItemID()
	first := suite.Recs(orders, suite.WithDedup("k"), "first", "second")
	other := suite.Rec("others", "other", suite.WithDedup("k"))
	e.Append(append(first, other, own)...)
	e.Elapse(suite.DedupWindow / 2)
	ends := e.Now().Add(suite.DedupWindow / 2)
	e.Append(suite.Rec(orders, "third", suite.WithDedup("k")))
	e.requireFirst(orders, "k", first[0], ends)
	e.requireFirst("others", "k", other, ends)
	e.requireFirst(orders, "own", own, ends)

	ctx, _, rollback := e.Begin()
	rolledBack := suite.Rec(orders, "never", suite.WithDedup("open"))
	require.NoError(e.T, e.Store.Append(ctx, rolledBack))
	rollback()
	_, err := keys.DedupKey(e.Ctx, orders, "open")
	require.ErrorIs(e.T, err, outmill.ErrNotFound, "it was rolled back")
	ctx, commit, _ := e.Begin()
	committed := suite.Rec(orders, "in a transaction", suite.WithDedup("open"))
	require.NoError(e.T, e.Store.Append(ctx, committed))
	commit()
	e.requireFirst(orders, "open", committed, e.Now().Add(suite.DedupWindow))

	_, err = e.Store.Delete(e.Ctx, first[0].ID)
	require.NoError(e.T, err)
	e.requireFirst(orders, "k", first[0], ends)
}

func keyNamesNext(e *env) {
	e.dedupKeys()
	e.Register(group)
	e.Append(suite.Recs(orders, suite.WithDedup("k"), "first")...)
	e.Elapse(suite.DedupWindow + time.Hour)
	_, err := e.dedupKeys().DedupKey(e.Ctx, orders, "k")
	require.ErrorIs(e.T, err, outmill.ErrNotFound, "its window has ended")
	next := suite.Recs(orders, suite.WithDedup("k"), "next", "after the next")
	e.Append(append(next, suite.Rec(orders, "fresh", suite.WithDedup("fresh")))...)
	e.requireFirst(orders, "k", next[0], e.Now().Add(suite.DedupWindow))
}

func keyIsNotFound(e *env) {
	keys := e.dedupKeys()
	e.Append(suite.Rec(orders, "m1", suite.WithDedup("k")))
	for _, of := range [][2]string{{"others", "k"}, {orders, "K"}, {orders, "other"}} {
		_, err := keys.DedupKey(e.Ctx, of[0], of[1])
		require.ErrorIs(e.T, err, outmill.ErrNotFound, "%q", of)
	}
	for _, of := range [][2]string{{"", "k"}, {orders, ""}, {orders, " k"}, {orders, "a\x00"}, {orders, strings.Repeat("x", 256)}} {
		_, err := keys.DedupKey(e.Ctx, of[0], of[1])
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord, "%q", of)
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
