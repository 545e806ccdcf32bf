package storetest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func restSentences() []sentence {
	return []sentence{
		{"a store without records is at rest, with a group and without", restsWhenEmpty},
		{"a store with a pending record is not at rest, due or delayed, of a group or of none", restEndsWithRecords},
		{"a store with a leased record is not at rest, and neither when the lease has ended", restEndsWithLeases},
		{"a store with a paused record is not at rest, before a claim has met it and after", restEndsWithPaused},
		{"a store whose records are processed or dead is at rest", restsWhenDone},
		{"a record that is requeued ends the rest", restEndsWithRequeue},
		{"a store is at rest until something is past its retention, and again when the janitor has deleted it", restEndsForJanitor},
		{"a store is not at rest while an entry of the audit is past its retention", restEndsForAudit},
		{"a store is not at rest while a registration has ended and the janitor has not removed it", restEndsForRegistrations},
		{"what another process appends or requeues ends the rest, also of a store that listens", restEndsWithOthers},
		{"a store that is closed is not at rest, and another one that is asked with it is", closedDoesNotRest},
		{"Resting answers in the order of the stores, and nothing for none", restInOrder},
	}
}

// rests reports whether the store is at rest.
func (e *env) rests() bool {
	e.T.Helper()
	return e.restOf(e.Store)[0]
}

func (e *env) restOf(stores ...outmill.Store) []bool {
	e.T.Helper()
	asker, ok := outmill.As[roles.Idle](e.Store)
	if !ok {
		e.T.Skip("the store is no roles.Idle: it is always claimed from")
	}
	list := make([]any, len(stores))
	for i, store := range stores {
		_, list[i] = e.restsWith(store)
	}
	resting, err := asker.AreIdle(e.Ctx, list)
	require.NoError(e.T, err)
	require.Len(e.T, resting, len(stores))
	return resting
}

// awaitRest waits until the store is at rest. A store may say that it is not while it cannot tell,
// for example while another session has a table locked.
func (e *env) awaitRest() {
	e.T.Helper()
	e.awaitRests([]bool{true}, e.Store)
}

func (e *env) awaitRests(want []bool, stores ...outmill.Store) {
	e.T.Helper()
	var got []bool
	for deadline := time.Now().Add(hintWithin); time.Now().Before(deadline); {
		if got = e.restOf(stores...); slices.Equal(want, got) {
			return
		}
		require.NoError(e.T, storekit.Pause(e.Ctx, 5*time.Millisecond))
	}
	require.Equal(e.T, want, got, "at rest")
}

func restsWhenEmpty(e *env) {
	e.awaitRest()
	e.Register(group)
	e.awaitRest()
}

func restEndsWithRecords(e *env) {
	e.rests()
	for name, r := range map[string]*outmill.Record{
		"due":              suite.Rec(orders, "m1"),
		"delayed":          suite.Rec(orders, "m2", suite.WithDelay(24*time.Hour)),
		"that has expired": suite.Rec(orders, "m3", withExpiry(time.Now().Add(-time.Hour))),
		"of no group":      suite.Rec("nobody's", "m4"),
		"without a group and delayed": suite.Rec("nobody's", "m5",
			suite.WithDelay(24*time.Hour)),
	} {
		e.Register(group, orders)
		e.Append(r)
		require.False(e.T, e.rests(), "a record %s", name)
		_, err := e.Store.Delete(e.Ctx, r.ID)
		require.NoError(e.T, err)
		e.awaitRest()
	}
}

func restEndsWithLeases(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", leased(time.Hour))
	require.False(e.T, e.rests())
	e.Elapse(2 * time.Hour)
	require.False(e.T, e.rests())
	e.Abandon(0, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	require.False(e.T, e.rests())
	require.Equal(e.T, r.ID, e.ClaimAll()[0].ID)
}

func restEndsWithPaused(e *env) {
	e.rests()
	scope := roles.PauseScope{Topic: orders, Key: "k"}
	require.NoError(e.T, e.pauses().Pause(e.Ctx, scope, "ada", "repair"))
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k")))
	require.False(e.T, e.rests())
	require.Empty(e.T, e.ClaimAll())
	require.False(e.T, e.rests())
	_, err := e.pauses().Resume(e.Ctx, scope)
	require.NoError(e.T, err)
	require.False(e.T, e.rests())
	e.Ack(e.ClaimAll()...)
	e.awaitRest()
}

func restsWhenDone(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "dead")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	require.False(e.T, e.rests())
	e.Ack(found["acked"])
	require.False(e.T, e.rests())
	e.Fail(found["dead"])
	e.awaitRest()
}

func restEndsWithRequeue(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Fail(r)
	e.awaitRest()
	n, err := e.Store.Requeue(e.Ctx, r.ID)
	require.NoError(e.T, err)
	require.Equal(e.T, 1, n)
	require.False(e.T, e.rests())
}

func restEndsForJanitor(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithDedup("once")))
	e.Ack(e.ClaimAll()...)
	e.awaitRest()
	e.Elapse(suite.DedupWindow + time.Minute)
	require.False(e.T, e.rests())
	require.Equal(e.T, 1, e.Did(e.Store.DeleteDedupKeys, 10))
	if e.Options.Retain > 0 {
		e.Elapse(e.Options.Retain)
		require.False(e.T, e.rests())
		require.Equal(e.T, 1, e.Did(e.Store.DeleteProcessed, 10))
	}
	e.awaitRest()
}

func restEndsForAudit(e *env) {
	audit := e.repairs()
	e.Filled(suite.Rec(orders, "m1"))
	e.Delete(e.ClaimAll()...)
	e.awaitRest()
	e.Elapse(storekit.AuditRetention + time.Minute)
	require.False(e.T, e.rests())
	require.Equal(e.T, 1, e.Did(audit.DeleteOldAudit, 10))
	e.awaitRest()
}

func restEndsForRegistrations(e *env) {
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group, TTL: time.Hour}))
	e.awaitRest()
	e.Elapse(2 * time.Hour)
	require.False(e.T, e.rests())
	ended, _, err := e.Store.ExpireRegistrations(e.Ctx, 10)
	require.NoError(e.T, err)
	require.Equal(e.T, 1, ended)
}

func restEndsWithOthers(e *env) {
	e.Register(group)
	e.rests()
	if waker, ok := outmill.As[roles.Waker](e.Store); ok {
		waker.Wake(e.Ctx, func(string) {})
	}
	other := e.Reopen()
	delayed := suite.Rec(orders, "m1", suite.WithDelay(24*time.Hour))
	e.awaitRest()
	require.NoError(e.T, other.Append(e.Ctx, delayed))
	e.awaitRests([]bool{false}, e.Store)
	_, err := other.Delete(e.Ctx, delayed.ID)
	require.NoError(e.T, err)
	e.awaitRest()
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec(orders, "m2")))
	e.awaitRests([]bool{false}, e.Store)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m2")
	e.Fail(r)
	e.awaitRest()
	_, err = other.Requeue(e.Ctx, r.ID)
	require.NoError(e.T, err)
	e.awaitRests([]bool{false}, e.Store)
}

func (e *env) restsWith(store outmill.Store) (with, self any) {
	e.T.Helper()
	rester, ok := outmill.As[roles.Idle](store)
	require.True(e.T, ok, "another store on the database is a roles.Idle too")
	return rester.IdleWith()
}

// neighbour returns another store on the database that is asked together with the first one.
func (e *env) neighbour() outmill.Store {
	e.T.Helper()
	e.rests()
	other := e.Reopen()
	one, _ := e.restsWith(e.Store)
	two, _ := e.restsWith(other)
	if one != two {
		e.T.Skip("the stores of two processes are not asked together")
	}
	return other
}

func closedDoesNotRest(e *env) {
	other := e.neighbour()
	e.awaitRests([]bool{true, true}, other, e.Store)
	require.NoError(e.T, other.Close())
	e.awaitRests([]bool{false, true}, other, e.Store)
}

func restInOrder(e *env) {
	require.Empty(e.T, e.restOf())
	other := e.neighbour()
	e.Filled(suite.Rec(orders, "m1"))
	require.Equal(e.T, []bool{false, false}, e.restOf(e.Store, other))
	e.Ack(e.ClaimAll()...)
	e.awaitRests([]bool{true, true}, e.Store, other)
}
