package storetest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func orderSentences() []sentence {
	list := []sentence{
		{"records of one key come in the order in which they were appended", keyOrder},
		{"records of one key come in order across appends, transactions and processes", keyOrderAcrossAppends},
		{"the order of a key is that of the appends, not of ids or message ids", keyOrderIsOfAppends},
		{"a key that an owner holds is not handed to another owner", heldKey},
		{"the holder of a key may claim more of it", holderClaimsMore},
		{"a key is held until its last record is settled", keyHeldToTheLast},
		{"an unordered lease holds its key too", unorderedLeaseHolds},
		{"the same key in another topic or group is another key", sameKeyElsewhere},
		{"topics and keys are not run together", topicsAndKeysApart},
		{"records without a key are not ordered", keylessIsUnordered},
		{"a held key does not hold up other keys", otherKeysPass},
		{"a huge backlog behind one blocked key does not hold up other keys", blockedBacklog},
		{"a record that is given back behind many blocked ones comes before the held ones of its key", givenBackBehindMany},
		{"blocked records that are larger than the bytes of a claim hold up no other keys", blockedAndLarge},
		{"after a lease has ended the key begins again with its oldest record", orderAfterExpiry},
		{"after a lease has ended its own holder begins again too", orderAfterOwnExpiry},
		{"after a release the released record comes first again", orderAfterRelease},
		{"a delayed record does not hold up its key", delayedDoesNotHold},
		{"a delayed record comes before later ones once it is due", delayedTakesItsPlace},
		{"an expired record does not hold up its key, even before the janitor comes", expiredDoesNotHold},
		{"a record that expired while it was held up does not hold up its key", expiredWhileHeld},
		{"NextAttemptAt is zero for a record that was found behind another one of its key", heldHasNoNextAttempt},
		{"a snoozed record holds its key under Block, until its time", snoozedBlocks},
		{"a record that waits for a retry holds its key under Block, from its holder too", retryBlocks},
		{"a record that waits for a retry holds its key under Park", retryParkBlocks},
		{"a record that waits for a retry lets its key go on under Skip", retrySkips},
		{"a snoozed record lets its key go on under Skip", snoozedSkips},
		{"a key that another owner holds is not handed out under Skip either", heldKeySkip},
		{"a dead record lets its key go on under Block", deadLetsGoOn(outmill.KeyBlock)},
		{"a dead record lets its key go on under Skip", deadLetsGoOn(outmill.KeySkip)},
		{"a dead record that was not parked lets its key go on under Park", deadLetsGoOn(outmill.KeyPark)},
		{"a requeued record takes its place in the order again", requeuedTakesItsPlace},
		{"records that an ordered claim held up come to an unordered one", unorderedAfterOrdered},
		{"records that one order held up come in another order", ordersInTurn},
		{"a key that is held up is held up for every process", heldElsewhere},
		{"registering, reaping and the janitor do not disturb a held key", upkeepKeepsKeys},
	}
	for _, end := range blockerEnds() {
		list = append(list, sentence{"records behind a blocker come when it is " + end.name, end.check})
	}
	return list
}

// givenBackBehindMany: a store may read the due records by pages, and the held ones at once. It must not take a held
// record before it has read the due records that are earlier.
func givenBackBehindMany(e *env) {
	blocked := suite.Numbered(60)
	e.Filled(suite.Keyed("y", blocked...)...)
	e.Append(suite.Keyed("k", "k1", "k2", "k3", "k4")...)
	first := e.ClaimN(outmill.NewOwnerToken(), len(blocked)+2, suite.ByKey)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey), "all keys are held")
	e.Release(first[1:]...)
	var got []string
	owner := outmill.NewOwnerToken()
	for {
		found := e.Claim(owner, suite.ByKey, suite.Limit(40))
		if len(found) == 0 {
			break
		}
		got = append(got, suite.Names(found)...)
	}
	require.Equal(e.T, []string{"k1", "k2", "k3", "k4"}, got)
}

func keyOrder(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3", "m4")...)
	e.RequireNames([]string{"m1", "m2"}, e.ClaimAcked(2))
	e.RequireNames([]string{"m3", "m4"}, e.ClaimAcked(2))
}

func keyOrderAcrossAppends(e *env) {
	e.Register(group)
	other := e.Reopen()
	e.Append(suite.Keyed("k", "m1")...)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Keyed("k", "m2", "m3")...))
	commit()
	require.NoError(e.T, other.Append(e.Ctx, suite.Keyed("k", "m4")...))
	e.Append(suite.Keyed("k", "m5")...)
	e.RequireNames([]string{"m1", "m2", "m3", "m4", "m5"}, e.ClaimAll(suite.ByKey, suite.Limit(1)))
}

func keyOrderIsOfAppends(e *env) {
	e.Register(group)
	for i := range 5 {
		e.Append(suite.Rec(orders, fmt.Sprintf("m%d", 9-i), suite.WithKey("k"), func(r *outmill.Record) {
			r.ID = outmill.WorkItemID{byte(200 - i), 15: 1}
		}))
	}
	e.RequireNames([]string{"m9", "m8", "m7", "m6", "m5"}, e.ClaimAll(suite.ByKey))
}

func heldKey(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	e.Ack(r)
	e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey)
}

func holderClaimsMore(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	e.ClaimOne(owner, "m1", suite.ByKey)
	e.ClaimOne(owner, "m2", suite.ByKey)
	e.Append(suite.Keyed("k", "m4")...)
	e.RequireNames([]string{"m3", "m4"}, e.ClaimOn(owner, suite.ByKey))
}

func keyHeldToTheLast(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByKey)
	e.Ack(found[0])
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey), "m2 is held")
	e.Ack(found[1])
	e.ClaimOne(outmill.NewOwnerToken(), "m3", suite.ByKey)
}

func unorderedLeaseHolds(e *env) {
	e.Filled(suite.Keyed("k", "m1")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Append(suite.Keyed("k", "m2")...)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	e.Ack(r)
	e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey)
}

func sameKeyElsewhere(e *env) {
	e.Register("one")
	e.Register("two")
	e.Append(suite.Rec("a", "m1", suite.WithKey("k")), suite.Rec("b", "m2", suite.WithKey("k")))
	for _, g := range []string{"one", "two"} {
		e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey, suite.OfGroup(g), suite.From("a"))
		e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey, suite.OfGroup(g))
	}
}

func topicsAndKeysApart(e *env) {
	e.Register(group)
	for _, separator := range []string{" ", ":", "/", "|", ".", ",", "\x1f", "\x01", "\n", "::", "\\"} {
		left, right := "a"+separator+"b", "b"+separator+"c"
		e.Append(suite.Rec(left, "m1", suite.WithKey("c")), suite.Rec("a", "m2", suite.WithKey(right)))
		e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey, suite.From(outmill.Exact(left)))
		e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey)
	}
}

func keylessIsUnordered(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "m1", "m2", "m3")...)
	var got []string
	for range 3 {
		r := e.Claim(outmill.NewOwnerToken(), suite.ByKey, suite.Limit(1))
		got = append(got, suite.Names(r)...)
	}
	require.ElementsMatch(e.T, []string{"m1", "m2", "m3"}, got)
}

func otherKeysPass(e *env) {
	e.Filled(suite.Keyed("held", "h1", "h2", "h3")...)
	e.ClaimOne(outmill.NewOwnerToken(), "h1", suite.ByKey)
	e.Append(suite.Keyed("free", "f1")...)
	e.Append(suite.Rec(orders, "no key"))
	found := e.ClaimAll(suite.ByKey)
	require.ElementsMatch(e.T, []string{"f1", "no key"}, suite.Names(found))
}

func blockedAndLarge(e *env) {
	e.Filled(suite.Keyed("held", "h1")...)
	owner := outmill.NewOwnerToken()
	e.ClaimOne(outmill.NewOwnerToken(), "h1", suite.ByKey)
	for range 3 {
		e.Append(&outmill.Record{Topic: orders, Key: "held", Payload: make([]byte, 2<<20)})
	}
	e.Append(suite.Rec(orders, "free"))
	e.RequireNames([]string{"free"}, e.ClaimOn(owner, suite.ByKey, suite.Limit(1), maxBytes(1)))
}

func blockedBacklog(e *env) {
	backlog := suite.Numbered(suite.Large(10_000))
	e.Filled(suite.Keyed("blocked", backlog...)...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), backlog[0], suite.ByKey))
	e.Append(suite.Keyed("free", "f1")...)
	e.Append(suite.Rec(orders, "no key"))
	found := e.ClaimAll(suite.ByKey, suite.Limit(10))
	require.ElementsMatch(e.T, []string{"f1", "no key"}, suite.Names(found))
	e.Ack(found...)
	e.Append(suite.Keyed("late", "l1")...)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "l1", suite.ByKey))
	e.Elapse(61 * time.Minute)
	e.RequireNames(backlog[:50], e.ClaimN(outmill.NewOwnerToken(), 50, suite.ByKey))
}

func orderAfterExpiry(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	lost := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByKey)
	e.Elapse(leaseOf + time.Minute)
	owner := outmill.NewOwnerToken()
	first := e.ClaimOne(owner, "m1", suite.ByKey)
	e.Ack(lost...)
	e.RequireStatus(outmill.StatusLeased, first)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	e.RequireNames([]string{"m2", "m3"}, e.ClaimOn(owner, suite.ByKey))
}

func orderAfterOwnExpiry(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	e.ClaimN(owner, 2, suite.ByKey)
	e.Elapse(leaseOf + time.Minute)
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimOn(owner, suite.ByKey))
}

func orderAfterRelease(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByKey)
	e.Release(found[0])
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey), "m2 is held")
	e.Release(found[1])
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimAll(suite.ByKey))
}

func delayedDoesNotHold(e *env) {
	e.Filled(suite.Rec(orders, "delayed", suite.WithKey("k"), suite.WithDelay(time.Hour)))
	e.Append(suite.Keyed("k", "m2", "m3")...)
	e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(suite.ByKey))
}

func expiredDoesNotHold(e *env) {
	e.Filled(suite.Rec(orders, "expired", suite.WithKey("k"), suite.WithTTL(30*time.Minute)))
	e.Append(suite.Keyed("k", "m2", "m3")...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "expired", suite.ByKey))
	require.Empty(e.T, e.ClaimAll(suite.ByKey))
	e.Elapse(31 * time.Minute)
	e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(suite.ByKey))
}

func expiredWhileHeld(e *env) {
	for i, end := range []func(*outmill.Record){
		func(r *outmill.Record) { e.Ack(r); e.Elapse(31 * time.Minute) },
		func(r *outmill.Record) { e.Elapse(31 * time.Minute); e.Ack(r) },
		func(r *outmill.Record) { e.Delete(r); e.Elapse(31 * time.Minute) },
		func(r *outmill.Record) { e.Elapse(31 * time.Minute); e.Delete(r) },
	} {
		key := fmt.Sprintf("k%d", i)
		e.Filled(suite.Keyed(key, "m1")...)
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey, leased(time.Hour))
		e.Append(suite.Rec(orders, "held, then expired", suite.WithKey(key), suite.WithTTL(30*time.Minute)))
		require.Empty(e.T, e.ClaimAll(suite.ByKey))
		end(r)
		e.Append(suite.Keyed(key, "m3")...)
		// Without the ack it would be delivered again in the next round, when its lease has ended.
		e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m3", suite.ByKey))
	}
}

func heldHasNoNextAttempt(e *env) {
	records := suite.Keyed("k", "m1", "m2")
	e.Filled(records...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey))
	require.Empty(e.T, e.ClaimAll(suite.ByKey))
	require.True(e.T, e.Get(records[1]).NextAttemptAt.IsZero())
	require.False(e.T, e.Get(records[0]).NextAttemptAt.IsZero())
	e.Elapse(61 * time.Minute)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey))
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey))
	require.False(e.T, e.Get(records[1]).NextAttemptAt.IsZero(), "nothing is before it")
}

func delayedTakesItsPlace(e *env) {
	e.Filled(suite.Rec(orders, "delayed", suite.WithKey("k"), suite.WithDelay(time.Hour)))
	e.Append(suite.Keyed("k", "m2", "m3")...)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey))
	e.Elapse(61 * time.Minute)
	e.RequireNames([]string{"delayed", "m3"}, e.ClaimAll(suite.ByKey))
}

func snoozedBlocks(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	e.Snooze(time.Hour, e.ClaimOne(owner, "m1", suite.ByKey))
	e.requireBlockedUntil(owner, "m1", outmill.KeyBlock)
}

func retryBlocks(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	e.Abandon(time.Hour, e.ClaimOne(owner, "m1", suite.ByKey))
	e.requireBlockedUntil(owner, "m1", outmill.KeyBlock)
}

func retryParkBlocks(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	park := suite.InOrder(outmill.OrderKey, outmill.KeyPark)
	e.Abandon(time.Hour, e.ClaimOne(owner, "m1", park))
	e.requireBlockedUntil(owner, "m1", outmill.KeyPark)
}

// requireBlockedUntil checks that the key is held for an hour, and then continues with the
// record.
func (e *env) requireBlockedUntil(owner outmill.OwnerToken, first string, policy outmill.KeyPolicy) {
	e.T.Helper()
	change := suite.InOrder(outmill.OrderKey, policy)
	for range 3 {
		require.Empty(e.T, e.Claim(owner, change), "the owner that gave it back")
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), change), "another owner")
		e.Elapse(19 * time.Minute)
	}
	e.Append(suite.Keyed("k", "appended later")...)
	require.Empty(e.T, e.Claim(owner, change))
	e.Elapse(5 * time.Minute)
	e.RequireNames([]string{first, "m2", "appended later"}, e.ClaimOn(owner, change))
}

func retrySkips(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	skip := suite.InOrder(outmill.OrderKey, outmill.KeySkip)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", skip))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m2", skip))
	e.Elapse(61 * time.Minute)
	e.RequireNames([]string{"m1", "m3"}, e.ClaimAll(skip))
}

func snoozedSkips(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	skip := suite.InOrder(outmill.OrderKey, outmill.KeySkip)
	e.Snooze(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", skip))
	e.ClaimOne(outmill.NewOwnerToken(), "m2", skip)
}

func heldKeySkip(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	skip := suite.InOrder(outmill.OrderKey, outmill.KeySkip)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", skip)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), skip))
	e.Ack(r)
	e.ClaimOne(outmill.NewOwnerToken(), "m2", skip)
}

func deadLetsGoOn(policy outmill.KeyPolicy) func(*env) {
	return func(e *env) {
		e.Filled(suite.Keyed("k", "m1", "m2")...)
		change := suite.InOrder(outmill.OrderKey, policy)
		e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1", change))
		e.Append(suite.Keyed("k", "m3")...)
		e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(change))
	}
}

func requeuedTakesItsPlace(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.Fail(r)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ByKey))
	require.Equal(e.T, 1, e.Requeue(r))
	e.RequireNames([]string{"m1", "m3"}, e.ClaimAll(suite.ByKey))
}

// blockerEnd is one way in which a record stops blocking its key.
type blockerEnd struct {
	name  string
	check func(*env)
}

func blockerEnds() []blockerEnd {
	leasedThen := func(end func(*env, *outmill.Record)) func(*env) {
		return func(e *env) {
			e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
			r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
			require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
			end(e, r)
			e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(suite.ByKey))
		}
	}
	retriedThen := func(end func(*env, *outmill.Record)) func(*env) {
		return func(e *env) {
			e.Filled(suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithTTL(30*time.Minute)))
			e.Append(suite.Keyed("k", "m2", "m3")...)
			r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
			e.Abandon(time.Hour, r)
			require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
			end(e, r)
			e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(suite.ByKey))
		}
	}
	return []blockerEnd{
		{"acked", leasedThen(func(e *env, r *outmill.Record) { e.Ack(r) })},
		{"failed", leasedThen(func(e *env, r *outmill.Record) { e.Fail(r) })},
		{"deleted while it is leased", leasedThen(func(e *env, r *outmill.Record) { e.Delete(r) })},
		{"deleted while it waits for its retry", retriedThen(func(e *env, r *outmill.Record) { e.Delete(r) })},
		{"expired while it waits for its retry", retriedThen(func(e *env, r *outmill.Record) {
			e.Elapse(31 * time.Minute)
			require.Equal(e.T, 1, e.Did(e.Store.ExpireDue, 10))
		})},
	}
}

func unorderedAfterOrdered(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey))
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	require.ElementsMatch(e.T, []string{"m2", "m3"}, suite.Names(e.ClaimAll()))
}

func ordersInTurn(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	e.Append(suite.Keyed("other", "m3")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.Abandon(time.Hour, r)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic), "the topic waits for m1")
	e.ClaimOne(outmill.NewOwnerToken(), "m3", suite.ByKey)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey), "m2 waits for m1")
	e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.InOrder(outmill.OrderKey, outmill.KeySkip))
	e.Elapse(61 * time.Minute)
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimAll(suite.ByTopic))
}

func heldElsewhere(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	other := &env{e.On(e.Reopen())}
	require.Empty(e.T, other.ClaimAll(suite.ByKey))
	e.Elapse(leaseOf + time.Minute)
	e.RequireNames([]string{"m1", "m2"}, other.ClaimAll(suite.ByKey))
}

func upkeepKeepsKeys(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey))
	e.Register(group)
	e.Register("others")
	e.tidy()
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	e.Elapse(61 * time.Minute)
	e.tidy()
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimAll(suite.ByKey))
}

// tidy does one round of the work of a janitor.
func (e *env) tidy() {
	e.T.Helper()
	e.Reap(1000)
	e.Did(e.Store.ExpireDue, 1000)
	e.Did(e.Store.DeleteProcessed, 1000)
	e.Did(e.Store.DeleteDedupKeys, 1000)
}
