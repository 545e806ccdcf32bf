package storetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func pauseSentences() []sentence {
	return []sentence{
		{"a paused topic is handed out to no group, and other topics are", pausedTopic},
		{"a paused group gets no record, and other groups do", pausedGroup},
		{"a topic that is paused for one group is handed out to another", pausedTopicOfGroup},
		{"a claim without an order passes over a paused key and a paused tenant", pausedParts},
		{"a paused key is held in claims by key, and other keys are not", pausedKey},
		{"a key that is paused for one group is handed out to another", pausedKeyOfGroup},
		{"a tenant that is paused in one topic is handed out in another", pausedTenantOfTopic},
		{"a record of a paused tenant holds the later records of its key", pausedTenantHoldsKeys},
		{"a paused record without a key holds no other in claims by key", pausedWithoutKey},
		{"a paused record holds the later records of its topic with OrderTopic", pausedHoldsTopic},
		{"a pause holds under Skip too", pausedUnderSkip},
		{"no claim that begins after a pause hands out what is paused, in another process either", pausedElsewhere},
		{"a pause outlives the store that made it", pauseSurvives},
		{"a pause of what does not exist yet holds when it comes", pauseInAdvance},
		{"a record that a handler has under a pause keeps its lease and may be settled", pauseLetsHandlersFinish},
		{"what is given back under a pause waits for Resume", pauseKeepsGivenBack},
		{"an expiry of a lease under a pause counts, and the record waits for Resume", pauseKeepsEndedLeases},
		{"a delayed record and a retry that become due under a pause wait for Resume", pauseKeepsDelayed},
		{"a dead record that is requeued under a pause waits for Resume", pauseKeepsRequeued},
		{"a paused record that expires goes dead", pausedExpires},
		{"a record of a paused tenant holds nothing after its expiry", pausedExpiredHoldsNothing},
		{"DropGroup gives paused records back and leaves the pause", pausedDropped},
		{"Resume reports whether there was a pause of exactly this scope", resumeReports},
		{"a record under two pauses waits for both", overlappingPauses},
		{"Resume hands out the records of each key in their order", resumeKeepsOrder},
		{"Resume hands out in order what was paused, resumed and paused again", resumeAgain},
		{"Resume hands out to claims without an order what they have held, behind keys that claims by key have held before", resumeBehindKeys},
		{
			"Resume hands out to claims by key in order what claims without an order have held, behind many keys that others hold",
			resumeBehindOthers,
		},
		{
			"Resume hands out to claims by key in order what many pauses have held, also after the first record of each is deleted",
			resumeManyPauses,
		},
		{"Resume hands out thousands of records, each once and in the order of their keys", resumeMany},
		{"a hint comes after Resume", hintAfterResume},
		{"a claim finds a record behind thousands of paused ones", pausedBacklog},
		{"claims while pauses come and go hand out each record once and in the order of its key", pausesAndClaims},
		{"a second pause of the same scope keeps the time and replaces the name and the reason", pauseTwice},
		{"Paused lists the pauses, sorted", pausedLists},
		{"Groups names the pauses that concern a group", groupsNamePauses},
		{"paused records are pending, and not due for OldestDue", pausedStats},
		{"OldestDue is that of records that a leased one of their key holds, also beside a pause", heldStats},
		{"LastPauses has the pauses that the last Claim or Extend has seen", lastPauses},
		{"a scope or a name that is refused pauses and resumes nothing", refusePauses},
		{"a store has 1,000 pauses at most", mostPauses},
		{"pauses on a closed store, or in a context that has ended, are refused", pausesEnded},
	}
}

// pauses returns the store's roles.Pauses, or skips the sentence if it has none.
func (e *env) pauses() roles.Pauses {
	e.T.Helper()
	pauses, ok := outmill.As[roles.Pauses](e.Store)
	if !ok {
		e.T.Skip("the store is no roles.Pauses")
	}
	return pauses
}

func (e *env) pause(scopes ...roles.PauseScope) {
	e.T.Helper()
	for _, scope := range scopes {
		require.NoError(e.T, e.pauses().Pause(e.Ctx, scope, "ann", "maintenance"), "Pause")
	}
}

func (e *env) resume(scopes ...roles.PauseScope) {
	e.T.Helper()
	for _, scope := range scopes {
		ended, err := e.pauses().Resume(e.Ctx, scope)
		require.NoError(e.T, err, "Resume")
		require.True(e.T, ended, "Resume of %s", scope)
	}
}

func withTenant(tenant string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.TenantID = tenant }
}

func withKeyAndTenant(key, tenant string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Key, r.TenantID = key, tenant }
}

// everyOrder are the kinds of claims.
var everyOrder = []func(*outmill.ClaimRequest){func(*outmill.ClaimRequest) {}, suite.ByKey, suite.ByTopic}

// requireNothing claims in each order, and twice, because the first claim may set records aside.
func (e *env) requireNothing(why string, changes ...func(*outmill.ClaimRequest)) {
	e.T.Helper()
	for range 2 {
		for _, order := range everyOrder {
			found := e.Claim(outmill.NewOwnerToken(), append(changes, order)...)
			require.Empty(e.T, suite.Names(found), why)
		}
	}
}

// takes claims and acks until nothing is left, and requires these records in this order.
func (e *env) takes(want []string, changes ...func(*outmill.ClaimRequest)) {
	e.T.Helper()
	require.Equal(e.T, want, suite.Names(e.takeAll(len(want), changes...)))
}

// takeAll claims and acks until it has n records and a claim finds nothing.
func (e *env) takeAll(n int, changes ...func(*outmill.ClaimRequest)) (all []*outmill.Record) {
	e.T.Helper()
	owner := outmill.NewOwnerToken()
	for range 10*n + 10 {
		found := e.Claim(owner, changes...)
		if len(found) == 0 && len(all) >= n {
			break
		}
		e.Ack(found...)
		all = append(all, found...)
	}
	return all
}

func pausedTopic(e *env) {
	e.pauses()
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec(orders, "m1", suite.WithKey("k")), suite.Rec("others", "m2", suite.WithKey("k")))
	e.pause(roles.PauseScope{Topic: orders})
	for _, name := range []string{"one", "two"} {
		for _, order := range everyOrder {
			e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.OfGroup(name), order))
		}
	}
	e.resume(roles.PauseScope{Topic: orders})
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("one")), 2)
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("two"), suite.ByKey), 2)
}

func pausedGroup(e *env) {
	e.pauses()
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	e.pause(roles.PauseScope{Group: "one"})
	e.requireNothing("the group is paused", suite.OfGroup("one"))
	e.requireNothing("the group is paused", suite.OfGroup("one"), suite.From(orders))
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("two")), 2)
	e.resume(roles.PauseScope{Group: "one"})
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("one")), 2)
}

func pausedTopicOfGroup(e *env) {
	e.pauses()
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	e.pause(roles.PauseScope{Group: "one", Topic: orders})
	for _, order := range everyOrder {
		e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.OfGroup("one"), order))
	}
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("two")), 2)
	e.resume(roles.PauseScope{Group: "one", Topic: orders})
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.OfGroup("one")), 2)
}

func pausedParts(e *env) {
	e.pauses()
	e.Filled(
		suite.Rec(orders, "of the key", suite.WithKey("k")), suite.Rec(orders, "of the tenant", withTenant("acme")),
		suite.Rec(orders, "of both", withKeyAndTenant("k", "acme")), suite.Rec(orders, "of none", withKeyAndTenant("other", "others")),
		suite.Rec("others", "key of another topic", suite.WithKey("k")),
	)
	e.pause(roles.PauseScope{Topic: orders, Key: "k"}, roles.PauseScope{TenantID: "acme"})
	want := []string{"of none", "key of another topic"}
	for range 2 {
		found := e.Claim(outmill.NewOwnerToken())
		require.ElementsMatch(e.T, want, suite.Names(found))
		e.Release(found...)
	}
	e.resume(roles.PauseScope{Topic: orders, Key: "k"})
	require.ElementsMatch(e.T, append(want, "of the key"), suite.Names(e.Claim(outmill.NewOwnerToken())))
	e.resume(roles.PauseScope{TenantID: "acme"})
	require.ElementsMatch(e.T, []string{"of the tenant", "of both"}, suite.Names(e.Claim(outmill.NewOwnerToken())))
}

func pausedKey(e *env) {
	e.pauses()
	e.Filled(append(suite.Keyed("k", "k1", "k2"), suite.Keyed("other", "o1", "o2")...)...)
	e.pause(roles.PauseScope{Topic: orders, Key: "k"})
	e.takes([]string{"o1", "o2"}, suite.ByKey, suite.Limit(1))
	e.Append(suite.Keyed("k", "k3")...)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	e.resume(roles.PauseScope{Topic: orders, Key: "k"})
	e.takes([]string{"k1", "k2", "k3"}, suite.ByKey, suite.Limit(1))
}

func pausedKeyOfGroup(e *env) {
	e.pauses()
	e.Register("one")
	e.Register("two")
	e.Append(suite.Keyed("k", "k1", "k2")...)
	e.pause(roles.PauseScope{Group: "one", Topic: orders, Key: "k"})
	e.requireNothing("the key is paused for the group", suite.OfGroup("one"))
	e.takes([]string{"k1", "k2"}, suite.OfGroup("two"), suite.ByKey)
}

func pausedTenantOfTopic(e *env) {
	e.pauses()
	e.Filled(suite.Rec(orders, "m1", withKeyAndTenant("k", "acme")), suite.Rec("others", "m2", withKeyAndTenant("k", "acme")))
	e.pause(roles.PauseScope{Topic: orders, TenantID: "acme"})
	for _, order := range everyOrder {
		e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m2", order))
	}
}

func pausedTenantHoldsKeys(e *env) {
	e.pauses()
	e.Filled(
		suite.Rec(orders, "k1", withKeyAndTenant("k", "others")), suite.Rec(orders, "k2", withKeyAndTenant("k", "acme")),
		suite.Rec(orders, "k3", withKeyAndTenant("k", "others")), suite.Rec(orders, "x1", withKeyAndTenant("x", "others")),
		suite.Rec(orders, "y1", withKeyAndTenant("y", "acme")),
	)
	e.pause(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"k1", "x1"}, suite.ByKey, suite.Limit(1))
	e.Append(suite.Rec(orders, "k4", withKeyAndTenant("k", "others")), suite.Rec(orders, "x2", withKeyAndTenant("x", "others")))
	e.takes([]string{"x2"}, suite.ByKey)
	e.resume(roles.PauseScope{TenantID: "acme"})
	tally := map[string][]string{}
	for _, r := range e.takeAll(4, suite.ByKey, suite.Limit(1)) {
		tally[r.Key] = append(tally[r.Key], r.MessageID)
	}
	require.Equal(e.T, map[string][]string{"k": {"k2", "k3", "k4"}, "y": {"y1"}}, tally)
}

func pausedWithoutKey(e *env) {
	e.pauses()
	e.Filled(
		suite.Rec(orders, "m1", withTenant("acme")), suite.Rec(orders, "m2", withTenant("others")),
		suite.Rec(orders, "m3", withKeyAndTenant("k", "others")),
	)
	e.pause(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"m2", "m3"}, suite.ByKey)
	e.resume(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"m1"}, suite.ByKey)
}

func pausedHoldsTopic(e *env) {
	e.pauses()
	e.Filled(
		suite.Rec(orders, "m1", suite.WithKey("a")), suite.Rec(orders, "m2", withKeyAndTenant("b", "acme")),
		suite.Rec(orders, "m3", suite.WithKey("c")), suite.Rec("others", "x1", suite.WithKey("c")),
	)
	e.pause(roles.PauseScope{TenantID: "acme"})
	require.ElementsMatch(e.T, []string{"m1", "x1"}, suite.Names(e.takeAll(2, suite.ByTopic, suite.Limit(1))))
	e.resume(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"m2", "m3"}, suite.ByTopic, suite.Limit(1))
}

func pausedUnderSkip(e *env) {
	e.pauses()
	e.Filled(suite.Rec(orders, "k1", withKeyAndTenant("k", "acme")), suite.Rec(orders, "k2", withKeyAndTenant("k", "others")))
	e.pause(roles.PauseScope{TenantID: "acme"})
	skip := suite.InOrder(outmill.OrderKey, outmill.KeySkip)
	for range 2 {
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), skip))
	}
	e.resume(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"k1", "k2"}, skip)
}

func pausedElsewhere(e *env) {
	e.pauses()
	e.Filled(append(suite.Keyed("k", "k1", "k2", "k3"), suite.Rec("others", "x1"))...)
	other := &env{e.On(e.Reopen())}
	// Both stores know the topic, and that nothing is paused.
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "k1", suite.From(orders), suite.Limit(1)))
	other.Release(other.ClaimOne(outmill.NewOwnerToken(), "k1", suite.From(orders), suite.Limit(1)))
	for _, scope := range []roles.PauseScope{{Topic: orders}, {Topic: orders, Key: "k"}} {
		other.pause(scope)
		e.requireNothing("another process has paused it", suite.From(orders))
		other.resume(scope)
		for _, order := range everyOrder {
			e.Release(e.ClaimN(outmill.NewOwnerToken(), 1, order, suite.From(orders), suite.Limit(1))...)
		}
	}
}

func pauseSurvives(e *env) {
	e.pauses()
	e.Filled(suite.Keyed("k", "k1", "k2")...)
	e.pause(roles.PauseScope{Topic: orders, Key: "k"})
	e.requireNothing("paused")
	require.NoError(e.T, e.Store.Close())
	later := &env{e.On(e.Reopen())}
	later.requireNothing("the pause is in the database")
	later.resume(roles.PauseScope{Topic: orders, Key: "k"})
	later.takes([]string{"k1", "k2"}, suite.ByKey)
}

func pauseInAdvance(e *env) {
	e.pauses()
	scopes := []roles.PauseScope{{Group: group, Topic: "new"}, {Topic: orders, Key: "k"}, {TenantID: "acme"}}
	e.pause(scopes...)
	e.Filled(suite.Rec("new", "m1"), suite.Rec(orders, "m2", suite.WithKey("k")), suite.Rec("others", "m3", withTenant("acme")))
	e.requireNothing("all of it is paused")
	e.resume(scopes...)
	require.Len(e.T, e.takeAll(3), 3)
}

func pauseLetsHandlersFinish(e *env) {
	e.pauses()
	e.Filled(suite.Keyed("k", "k1", "k2", "k3")...)
	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, 2, suite.ByKey, suite.Limit(2))
	e.pause(roles.PauseScope{Topic: orders, Key: "k"})
	standing, err := e.Store.Extend(e.Ctx, time.Hour, suite.Leases(found))
	require.NoError(e.T, err)
	require.ElementsMatch(e.T, suite.Leases(found), standing)
	e.Ack(found[0])
	if e.Options.Retain == 0 {
		e.RequireGone(found[0])
	}
	require.Empty(e.T, e.Claim(owner, suite.ByKey), "to the owner of the lease either")
	e.Fail(found[1])
	e.RequireStatus(outmill.StatusDead, found[1])
	e.requireNothing("the key is paused")
	e.resume(roles.PauseScope{Topic: orders, Key: "k"})
	e.takes([]string{"k3"}, suite.ByKey)
}

func pauseKeepsGivenBack(e *env) {
	e.pauses()
	e.Filled(suite.Keyed("k", "k1", "k2", "k3")...)
	found := e.ClaimN(outmill.NewOwnerToken(), 3, suite.ByKey)
	e.pause(roles.PauseScope{Topic: orders, Key: "k"})
	e.Abandon(0, found[0])
	e.Snooze(0, found[1])
	e.Release(found[2])
	e.requireNothing("the key is paused")
	e.resume(roles.PauseScope{Topic: orders, Key: "k"})
	all := e.takeAll(3, suite.ByKey)
	require.Equal(e.T, []string{"k1", "k2", "k3"}, suite.Names(all))
	require.Equal(e.T, []int{1, 0, 0}, []int{all[0].Attempts, all[1].Attempts, all[2].Attempts})
}

func pauseKeepsEndedLeases(e *env) {
	e.pauses()
	for i, order := range []func(*outmill.ClaimRequest){everyOrder[0], suite.ByKey} {
		topic := fmt.Sprint("topic", i)
		e.Filled(suite.Rec(topic, "m1", suite.WithKey("k")))
		e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.From(topic), order)
		e.pause(roles.PauseScope{Topic: topic, Key: "k"})
		e.Elapse(suite.LeaseOf + time.Minute)
		for range 2 {
			require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.From(topic), order))
		}
		e.Reap(10)
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.From(topic), order))
		e.resume(roles.PauseScope{Topic: topic, Key: "k"})
		all := e.takeAll(1, suite.From(topic), order)
		require.Equal(e.T, []string{"m1"}, suite.Names(all))
		require.Equal(e.T, 1, all[0].Expiries)
		require.Equal(e.T, 2, all[0].Claims)
	}
}

func pauseKeepsDelayed(e *env) {
	e.pauses()
	for i, order := range []func(*outmill.ClaimRequest){everyOrder[0], suite.ByKey} {
		topic := fmt.Sprint("topic", i)
		e.Filled(suite.Rec(topic, "retried", suite.WithKey("k")), suite.Rec(topic, "delayed", suite.WithKey("k"), suite.WithDelay(time.Minute)))
		e.Abandon(time.Minute, e.ClaimOne(outmill.NewOwnerToken(), "retried", suite.From(topic), order))
		e.pause(roles.PauseScope{Topic: topic, Key: "k"})
		e.Elapse(time.Hour)
		for range 2 {
			require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.From(topic), order))
		}
		e.resume(roles.PauseScope{Topic: topic, Key: "k"})
		require.ElementsMatch(e.T, []string{"retried", "delayed"}, suite.Names(e.takeAll(2, suite.From(topic), order)))
	}
}

func pauseKeepsRequeued(e *env) {
	e.pauses()
	e.Filled(suite.Rec(orders, "m1", withKeyAndTenant("k", "acme")))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Fail(r)
	e.pause(roles.PauseScope{TenantID: "acme"})
	require.Equal(e.T, 1, e.Requeue(r))
	e.requireNothing("the tenant is paused")
	e.resume(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"m1"}, suite.ByKey)
}

func pausedExpires(e *env) {
	e.pauses()
	e.Filled(
		suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithTTL(time.Minute)),
		suite.Rec(orders, "m2", withTenant("acme"), suite.WithTTL(time.Minute)),
		suite.Rec("others", "m3", suite.WithTTL(time.Minute)),
	)
	scopes := []roles.PauseScope{{Topic: orders, Key: "k"}, {TenantID: "acme"}, {Topic: "others"}}
	e.pause(scopes...)
	e.requireNothing("all of it is paused")
	e.Elapse(time.Hour)
	expired, err := e.Store.ExpireDue(e.Ctx, 10)
	require.NoError(e.T, err)
	require.Equal(e.T, 3, expired)
	e.resume(scopes...)
	e.requireNothing("all of it is dead")
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 3)
}

func pausedExpiredHoldsNothing(e *env) {
	e.pauses()
	e.Filled(suite.Rec(orders, "k1", withKeyAndTenant("k", "acme"), suite.WithTTL(time.Minute)), suite.Rec(orders, "k2", suite.WithKey("k")))
	e.pause(roles.PauseScope{TenantID: "acme"})
	for range 2 {
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	}
	e.Elapse(time.Hour)
	e.takes([]string{"k2"}, suite.ByKey)
}

func pausedDropped(e *env) {
	e.pauses()
	scopes := []roles.PauseScope{{Group: group}, {Topic: orders, Key: "k"}, {TenantID: "acme"}}
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k")), suite.Rec(orders, "m2", withTenant("acme")))
	e.pause(scopes[1:]...)
	e.requireNothing("all of it is paused")
	e.pause(scopes[0])
	e.requireDrop(group, 2, 0)
	requireWaiting(e, "m1", "m2")
	e.Register(group)
	e.requireNothing("the pauses are still there")
	e.resume(scopes...)
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func resumeReports(e *env) {
	p := e.pauses()
	e.pause(roles.PauseScope{Group: group}, roles.PauseScope{Group: group, Topic: orders})
	for _, scope := range []roles.PauseScope{{Topic: orders}, {Group: "others"}, {Group: group, Topic: orders, Key: "k"}} {
		ended, err := p.Resume(e.Ctx, scope)
		require.NoError(e.T, err)
		require.False(e.T, ended, "%s", scope)
	}
	left, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.Len(e.T, left, 2)
	e.resume(roles.PauseScope{Group: group})
	ended, err := p.Resume(e.Ctx, roles.PauseScope{Group: group})
	require.NoError(e.T, err)
	require.False(e.T, ended, "a second time")
}

func overlappingPauses(e *env) {
	e.pauses()
	e.Filled(suite.Rec(orders, "m1", withKeyAndTenant("k", "acme")))
	scopes := []roles.PauseScope{
		{Topic: orders, Key: "k"}, {Group: group, Topic: orders, Key: "k"}, {TenantID: "acme"}, {Group: group}, {Topic: orders},
	}
	e.pause(scopes...)
	for _, scope := range scopes {
		e.requireNothing("a pause is left")
		e.resume(scope)
	}
	e.takes([]string{"m1"}, suite.ByKey)
}

func resumeKeepsOrder(e *env) {
	e.pauses()
	for i, scope := range []roles.PauseScope{{Topic: "topic0"}, {Topic: "topic1", Key: "a"}, {TenantID: "acme"}, {Group: group}} {
		topic := fmt.Sprint("topic", i)
		var want []string
		fill := func(from, to int) {
			for n := from; n < to; n++ {
				want = append(want, fmt.Sprint("a", n))
				e.Append(suite.Rec(topic, want[n], withKeyAndTenant("a", "acme")), suite.Rec(topic, fmt.Sprint("b", n), withKeyAndTenant("b", "acme")))
			}
		}
		e.Register(group)
		fill(0, 3)
		held := e.Claim(outmill.NewOwnerToken(), suite.ByKey, suite.From(topic), suite.Limit(1))
		e.pause(scope)
		fill(3, 6)
		e.Release(held...)
		e.Claim(outmill.NewOwnerToken(), suite.ByKey, suite.From(topic))
		fill(6, 9)
		e.resume(scope)
		e.Elapse(2 * suite.LeaseOf)
		var got []string
		for _, r := range e.takeAll(18, suite.ByKey, suite.From(topic), suite.Limit(2)) {
			if r.Key == "a" {
				got = append(got, r.MessageID)
			}
		}
		require.Equal(e.T, want, got, "%s", scope)
	}
}

func resumeAgain(e *env) {
	e.pauses()
	scope := roles.PauseScope{Topic: orders, Key: "k"}
	e.Register(group)
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint("m", i))
		e.Append(suite.Keyed("k", want[i])...)
		e.pause(scope)
		e.requireNothing("paused again", func(r *outmill.ClaimRequest) { r.Limit = 1 })
		e.resume(scope)
	}
	e.takes(want, suite.ByKey, suite.Limit(1))
}

func resumeMany(e *env) {
	e.pauses()
	n := suite.Large(5000)
	for i, order := range []func(*outmill.ClaimRequest){everyOrder[0], suite.ByKey} {
		topic := fmt.Sprint("topic", i)
		e.Register(group)
		records := make([]*outmill.Record, n)
		for j := range records {
			records[j] = suite.Rec(topic, fmt.Sprint(j), withKeyAndTenant("k", "acme"))
			if j%4 == 0 {
				records[j].Key = ""
			}
		}
		e.Append(records...)
		e.pause(roles.PauseScope{TenantID: "acme"})
		for range 5 {
			require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.From(topic), order))
		}
		e.resume(roles.PauseScope{TenantID: "acme"})
		e.Append(suite.Rec(topic, "last", suite.WithKey("k")))
		tally := suite.NewTally()
		all := e.takeAll(n+1, suite.From(topic), order, suite.Limit(500))
		for _, r := range all {
			tally.Acked(r)
		}
		tally.RequireOnce(e.Env, append(suite.Names(records), "last"))
		if i == 1 {
			var want []string
			for _, r := range records {
				if r.Key != "" {
					want = append(want, r.MessageID)
				}
			}
			require.Equal(e.T, append(want, "last"), tally.Order["k"])
		}
	}
}

func hintAfterResume(e *env) {
	e.pauses()
	hints := e.hints(e.Ctx)
	e.Filled(suite.Rec(orders, "m1"))
	e.pause(roles.PauseScope{Topic: orders})
	e.settleDown(hints)
	e.resume(roles.PauseScope{Topic: orders})
	e.requireHint(hints)
}

// pausedBacklog allows many claims, because each sets aside only a bounded number of records.
func pausedBacklog(e *env) {
	e.pauses()
	n := suite.Large(20_000)
	e.Register(group)
	for _, topic := range []string{"topic0", "topic1"} {
		records := make([]*outmill.Record, n)
		for i := range records {
			records[i] = suite.Rec(topic, fmt.Sprint(i), withKeyAndTenant("k", "acme"))
			if i%2 == 0 {
				records[i].Key = fmt.Sprint("key ", i%100)
			}
		}
		e.Append(append(records, suite.Rec(topic, "behind", suite.WithKey("other")))...)
	}
	e.pause(roles.PauseScope{TenantID: "acme"})
	e.takes([]string{"behind"}, suite.From("topic0"))
	e.takes([]string{"behind"}, suite.From("topic1"), suite.ByKey)
}

func pauseTwice(e *env) {
	p := e.pauses()
	scope := roles.PauseScope{Topic: orders}
	require.NoError(e.T, p.Pause(e.Ctx, scope, "ann", "the warehouse is down"))
	first, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.Len(e.T, first, 1)
	e.RequireAbout(e.Now(), first[0].At, "the time of the pause")
	require.NoError(e.T, p.Pause(e.Ctx, scope, "bob", ""))
	again, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	first[0].By, first[0].Reason = "bob", ""
	require.Equal(e.T, first, again)
}

func pausedLists(e *env) {
	p := e.pauses()
	none, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.Empty(e.T, none)
	sorted := []roles.PauseScope{
		{TenantID: "a"}, {TenantID: "A tenant's name, with ünicode; DROP TABLE"}, {Topic: "a"}, {Topic: "a", Key: "k"},
		{Topic: "b", TenantID: "t"}, {Group: "g"},
		{Group: "g", Topic: "a", Key: "b"},
	}
	sorted[0], sorted[1] = sorted[1], sorted[0]
	for i := range sorted {
		require.NoError(e.T, p.Pause(e.Ctx, sorted[len(sorted)-1-i], "ann", strings.Repeat("ü", 1000)))
	}
	list, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	numbers := map[int64]bool{}
	got := make([]roles.PauseScope, len(list))
	for i, pause := range list {
		got[i], numbers[pause.Number] = pause.PauseScope, true
		require.Equal(e.T, "ann", pause.By)
		require.Equal(e.T, strings.Repeat("ü", 1000), pause.Reason)
		require.Positive(e.T, pause.Number)
	}
	require.Equal(e.T, sorted, got)
	require.Len(e.T, numbers, len(sorted), "each has a number of its own")
	e.resume(sorted[0])
	e.pause(sorted[0])
	list, err = p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.False(e.T, numbers[list[0].Number], "no number is used again")
}

func groupsNamePauses(e *env) {
	e.pauses()
	e.Register("one", orders)
	e.Register("two", "others")
	e.pause(roles.PauseScope{Group: "one"}, roles.PauseScope{Topic: orders, Key: "k"}, roles.PauseScope{TenantID: "acme"})
	list, err := e.pauses().Paused(e.Ctx)
	require.NoError(e.T, err)
	groups, err := e.Store.Groups(e.Ctx)
	require.NoError(e.T, err)
	require.Len(e.T, groups, 2)
	require.Equal(e.T, []string{list[0].String(), list[1].String(), list[2].String()}, groups[0].Pauses)
	require.Equal(e.T, []string{list[0].String()}, groups[1].Pauses, "the tenant's alone")
	require.Equal(e.T, fmt.Sprintf(`tenant "acme" by ann since %s: maintenance`, list[0].At.UTC().Format(time.RFC3339)), groups[1].Pauses[0])
}

func pausedStats(e *env) {
	e.pauses()
	e.Filled(suite.Rec("a", "m1", suite.WithKey("k")), suite.Rec("a", "m2"), suite.Rec("b", "m3", withTenant("acme")), suite.Rec("c", "m4"))
	oldest := func() map[string]bool {
		stats, err := e.Store.Stats(e.Ctx, 0)
		require.NoError(e.T, err)
		due := map[string]bool{}
		for _, s := range stats {
			want := 1
			if s.Topic == "a" {
				want = 2
			}
			require.Equal(e.T, want, s.Pending, s.Topic)
			due[s.Topic] = !s.OldestDue.IsZero()
		}
		return due
	}
	scopes := []roles.PauseScope{{Topic: "a", Key: "k"}, {TenantID: "acme"}, {Group: group, Topic: "c"}}
	e.pause(scopes...)
	want := map[string]bool{"a": true, "b": false, "c": false}
	require.Equal(e.T, want, oldest(), "before a claim has met the records")
	for _, order := range everyOrder {
		e.Release(e.Claim(outmill.NewOwnerToken(), order)...)
		require.Equal(e.T, want, oldest(), "after a claim")
	}
	e.resume(scopes...)
	require.Equal(e.T, map[string]bool{"a": true, "b": true, "c": true}, oldest())
}

func lastPauses(e *env) {
	p := e.pauses()
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k")), suite.Rec("others", "m2"))
	other := &env{e.On(e.Reopen())}
	found := e.ClaimNamed(outmill.NewOwnerToken())
	none := p.LastPauses()
	require.True(e.T, none.Empty())
	require.False(e.T, none.Covers(found["m1"]))
	// A look that finds nothing again and again may ask less, but not less of pauses.
	ofBoth := func(r *outmill.ClaimRequest) { r.Topics.Include = []string{orders, "others"} }
	for range 3 {
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), ofBoth))
	}
	other.pause(roles.PauseScope{Topic: orders})
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), ofBoth))
	first := p.LastPauses()
	require.NotSame(e.T, none, first)
	require.True(e.T, first.Covers(found["m1"]))
	require.False(e.T, first.Covers(found["m2"]))
	_, err := e.Store.Extend(e.Ctx, time.Minute, suite.Leases([]*outmill.Record{found["m1"]}))
	require.NoError(e.T, err)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	require.Same(e.T, first, p.LastPauses(), "nothing has changed")
	other.resume(roles.PauseScope{Topic: orders})
	other.pause(roles.PauseScope{Topic: "others"})
	_, err = e.Store.Extend(e.Ctx, time.Minute, suite.Leases([]*outmill.Record{found["m1"]}))
	require.NoError(e.T, err)
	require.False(e.T, p.LastPauses().Covers(found["m1"]))
	require.True(e.T, p.LastPauses().Covers(found["m2"]))
}

func refusePauses(e *env) {
	p := e.pauses()
	good := roles.PauseScope{Topic: orders}
	for _, scope := range []roles.PauseScope{
		{}, {Key: "k"}, {Topic: orders, Key: "k", TenantID: "acme"}, {Topic: " "}, {Group: "g\x00"}, {TenantID: strings.Repeat("x", 256)},
	} {
		require.ErrorIs(e.T, p.Pause(e.Ctx, scope, "ann", ""), outmill.ErrInvalidConfig, "%#v", scope)
		_, err := p.Resume(e.Ctx, scope)
		require.ErrorIs(e.T, err, outmill.ErrInvalidConfig, "%#v", scope)
	}
	require.ErrorIs(e.T, p.Pause(e.Ctx, good, "", ""), outmill.ErrInvalidConfig)
	require.ErrorIs(e.T, p.Pause(e.Ctx, good, " ann ", ""), outmill.ErrInvalidConfig)
	require.ErrorIs(e.T, p.Pause(e.Ctx, good, "ann", strings.Repeat("x", 1001)), outmill.ErrInvalidConfig)
	list, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.Empty(e.T, list)
}

func mostPauses(e *env) {
	e.Long("a thousand pauses")
	p := e.pauses()
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("key 7")), suite.Rec(orders, "m2", suite.WithKey("free")))
	for i := range roles.MaxPauses {
		e.pause(roles.PauseScope{Topic: orders, Key: fmt.Sprint("key ", i)})
	}
	require.ErrorIs(e.T, p.Pause(e.Ctx, roles.PauseScope{Topic: "one more"}, "ann", ""), roles.ErrTooManyPauses)
	require.NoError(e.T, p.Pause(e.Ctx, roles.PauseScope{Topic: orders, Key: "key 7"}, "bob", "again"), "a scope that is paused")
	e.takes([]string{"m2"}, suite.ByKey)
	e.resume(roles.PauseScope{Topic: orders, Key: "key 7"})
	e.takes([]string{"m1"}, suite.ByKey)
	e.pause(roles.PauseScope{Topic: "one more"})
}

func pausesEnded(e *env) {
	p := e.pauses()
	ctx, cancel := context.WithCancel(e.Ctx)
	cancel()
	scope := roles.PauseScope{Topic: orders}
	require.ErrorIs(e.T, p.Pause(ctx, scope, "ann", ""), context.Canceled)
	list, err := p.Paused(e.Ctx)
	require.NoError(e.T, err)
	require.Empty(e.T, list)
	_, err = p.Resume(ctx, scope)
	require.ErrorIs(e.T, err, context.Canceled)
	_, err = p.Paused(ctx)
	require.ErrorIs(e.T, err, context.Canceled)
	require.NoError(e.T, e.Store.Close())
	require.ErrorIs(e.T, p.Pause(e.Ctx, scope, "ann", ""), outmill.ErrClosed)
	_, err = p.Resume(e.Ctx, scope)
	require.ErrorIs(e.T, err, outmill.ErrClosed)
	_, err = p.Paused(e.Ctx)
	require.ErrorIs(e.T, err, outmill.ErrClosed)
}
