package storetest

import (
	"fmt"
	"time"

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

func keyOrder(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3", "m4")...)
	e.requireNames([]string{"m1", "m2"}, e.claimAcked(2))
	e.requireNames([]string{"m3", "m4"}, e.claimAcked(2))
}

// claimAcked claims by key and acks.
func (e *env) claimAcked(n int) []*outmill.Record {
	e.t.Helper()
	found := e.claimN(outmill.NewOwnerToken(), n, byKey)
	e.ack(found...)
	return found
}

func keyOrderAcrossAppends(e *env) {
	e.register(group)
	other := e.reopen()
	e.append(keyed("k", "m1")...)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, keyed("k", "m2", "m3")...))
	commit()
	require.NoError(e.t, other.Append(e.ctx, keyed("k", "m4")...))
	e.append(keyed("k", "m5")...)
	e.requireNames([]string{"m1", "m2", "m3", "m4", "m5"}, e.claimAll(byKey, limit(1)))
}

func keyOrderIsOfAppends(e *env) {
	e.register(group)
	for i := range 5 {
		e.append(rec(orders, fmt.Sprintf("m%d", 9-i), withKey("k"), func(r *outmill.Record) {
			r.ID = outmill.WorkItemID{byte(200 - i), 15: 1}
		}))
	}
	e.requireNames([]string{"m9", "m8", "m7", "m6", "m5"}, e.claimAll(byKey))
}

func heldKey(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	e.ack(r)
	e.claimOne(outmill.NewOwnerToken(), "m2", byKey)
}

func holderClaimsMore(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	e.claimOne(owner, "m1", byKey)
	e.claimOne(owner, "m2", byKey)
	e.append(keyed("k", "m4")...)
	e.requireNames([]string{"m3", "m4"}, e.claimOn(owner, byKey))
}

func keyHeldToTheLast(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	found := e.claimN(outmill.NewOwnerToken(), 2, byKey)
	e.ack(found[0])
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey), "m2 is held")
	e.ack(found[1])
	e.claimOne(outmill.NewOwnerToken(), "m3", byKey)
}

func unorderedLeaseHolds(e *env) {
	e.filled(keyed("k", "m1")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.append(keyed("k", "m2")...)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	e.ack(r)
	e.claimOne(outmill.NewOwnerToken(), "m2", byKey)
}

func sameKeyElsewhere(e *env) {
	e.register("one")
	e.register("two")
	e.append(rec("a", "m1", withKey("k")), rec("b", "m2", withKey("k")))
	for _, g := range []string{"one", "two"} {
		e.claimOne(outmill.NewOwnerToken(), "m1", byKey, ofGroup(g), from("a"))
		e.claimOne(outmill.NewOwnerToken(), "m2", byKey, ofGroup(g))
	}
}

func topicsAndKeysApart(e *env) {
	e.register(group)
	for _, separator := range []string{" ", ":", "/", "|", ".", ",", "\x1f", "\x01", "\n", "::", "\\"} {
		left, right := "a"+separator+"b", "b"+separator+"c"
		e.append(rec(left, "m1", withKey("c")), rec("a", "m2", withKey(right)))
		e.claimOne(outmill.NewOwnerToken(), "m1", byKey, from(outmill.Exact(left)))
		e.claimOne(outmill.NewOwnerToken(), "m2", byKey)
	}
}

func keylessIsUnordered(e *env) {
	e.filled(recs(orders, plain, "m1", "m2", "m3")...)
	var got []string
	for range 3 {
		r := e.claim(outmill.NewOwnerToken(), byKey, limit(1))
		got = append(got, names(r)...)
	}
	require.ElementsMatch(e.t, []string{"m1", "m2", "m3"}, got)
}

func otherKeysPass(e *env) {
	e.filled(keyed("held", "h1", "h2", "h3")...)
	e.claimOne(outmill.NewOwnerToken(), "h1", byKey)
	e.append(keyed("free", "f1")...)
	e.append(rec(orders, "no key"))
	found := e.claimAll(byKey)
	require.ElementsMatch(e.t, []string{"f1", "no key"}, names(found))
}

func blockedAndLarge(e *env) {
	e.filled(keyed("held", "h1")...)
	owner := outmill.NewOwnerToken()
	e.claimOne(outmill.NewOwnerToken(), "h1", byKey)
	for range 3 {
		e.append(&outmill.Record{Topic: orders, Key: "held", Payload: make([]byte, 2<<20)})
	}
	e.append(rec(orders, "free"))
	e.requireNames([]string{"free"}, e.claimOn(owner, byKey, limit(1), maxBytes(1)))
}

func blockedBacklog(e *env) {
	backlog := numbered(large(10_000))
	e.filled(keyed("blocked", backlog...)...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), backlog[0], byKey))
	e.append(keyed("free", "f1")...)
	e.append(rec(orders, "no key"))
	found := e.claimAll(byKey, limit(10))
	require.ElementsMatch(e.t, []string{"f1", "no key"}, names(found))
	e.ack(found...)
	e.append(keyed("late", "l1")...)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "l1", byKey))
	e.elapse(61 * time.Minute)
	e.requireNames(backlog[:50], e.claimN(outmill.NewOwnerToken(), 50, byKey))
}

func orderAfterExpiry(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	lost := e.claimN(outmill.NewOwnerToken(), 2, byKey)
	e.elapse(leaseOf + time.Minute)
	owner := outmill.NewOwnerToken()
	first := e.claimOne(owner, "m1", byKey)
	e.ack(lost...)
	e.requireStatus(outmill.StatusLeased, first)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	e.requireNames([]string{"m2", "m3"}, e.claimOn(owner, byKey))
}

func orderAfterOwnExpiry(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	e.claimN(owner, 2, byKey)
	e.elapse(leaseOf + time.Minute)
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimOn(owner, byKey))
}

func orderAfterRelease(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	found := e.claimN(outmill.NewOwnerToken(), 2, byKey)
	e.release(found[0])
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey), "m2 is held")
	e.release(found[1])
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimAll(byKey))
}

func delayedDoesNotHold(e *env) {
	e.filled(rec(orders, "delayed", withKey("k"), withDelay(time.Hour)))
	e.append(keyed("k", "m2", "m3")...)
	e.requireNames([]string{"m2", "m3"}, e.claimAll(byKey))
}

func expiredDoesNotHold(e *env) {
	e.filled(rec(orders, "expired", withKey("k"), withTTL(30*time.Minute)))
	e.append(keyed("k", "m2", "m3")...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "expired", byKey))
	require.Empty(e.t, e.claimAll(byKey))
	e.elapse(31 * time.Minute)
	e.requireNames([]string{"m2", "m3"}, e.claimAll(byKey))
}

func expiredWhileHeld(e *env) {
	for i, end := range []func(*outmill.Record){
		func(r *outmill.Record) { e.ack(r); e.elapse(31 * time.Minute) },
		func(r *outmill.Record) { e.elapse(31 * time.Minute); e.ack(r) },
		func(r *outmill.Record) { e.delete(r); e.elapse(31 * time.Minute) },
		func(r *outmill.Record) { e.elapse(31 * time.Minute); e.delete(r) },
	} {
		key := fmt.Sprintf("k%d", i)
		e.filled(keyed(key, "m1")...)
		r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey, leased(time.Hour))
		e.append(rec(orders, "held, then expired", withKey(key), withTTL(30*time.Minute)))
		require.Empty(e.t, e.claimAll(byKey))
		end(r)
		e.append(keyed(key, "m3")...)
		// Acked, because otherwise it comes again in the next round when its lease is over.
		e.ack(e.claimOne(outmill.NewOwnerToken(), "m3", byKey))
	}
}

func heldHasNoNextAttempt(e *env) {
	records := keyed("k", "m1", "m2")
	e.filled(records...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", byKey))
	require.Empty(e.t, e.claimAll(byKey))
	require.True(e.t, e.get(records[1]).NextAttemptAt.IsZero())
	require.False(e.t, e.get(records[0]).NextAttemptAt.IsZero())
	e.elapse(61 * time.Minute)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", byKey))
	e.release(e.claimOne(outmill.NewOwnerToken(), "m2", byKey))
	require.False(e.t, e.get(records[1]).NextAttemptAt.IsZero(), "nothing is before it")
}

func delayedTakesItsPlace(e *env) {
	e.filled(rec(orders, "delayed", withKey("k"), withDelay(time.Hour)))
	e.append(keyed("k", "m2", "m3")...)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m2", byKey))
	e.elapse(61 * time.Minute)
	e.requireNames([]string{"delayed", "m3"}, e.claimAll(byKey))
}

func snoozedBlocks(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	e.snooze(time.Hour, e.claimOne(owner, "m1", byKey))
	e.requireBlockedUntil(owner, "m1", outmill.KeyBlock)
}

func retryBlocks(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	e.abandon(time.Hour, e.claimOne(owner, "m1", byKey))
	e.requireBlockedUntil(owner, "m1", outmill.KeyBlock)
}

func retryParkBlocks(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	park := inOrder(outmill.OrderKey, outmill.KeyPark)
	e.abandon(time.Hour, e.claimOne(owner, "m1", park))
	e.requireBlockedUntil(owner, "m1", outmill.KeyPark)
}

// requireBlockedUntil checks that the key is held for an hour, and then goes on
// with the record.
func (e *env) requireBlockedUntil(owner outmill.OwnerToken, first string, policy outmill.KeyPolicy) {
	e.t.Helper()
	change := inOrder(outmill.OrderKey, policy)
	for range 3 {
		require.Empty(e.t, e.claim(owner, change), "the owner that gave it back")
		require.Empty(e.t, e.claim(outmill.NewOwnerToken(), change), "another owner")
		e.elapse(19 * time.Minute)
	}
	e.append(keyed("k", "appended later")...)
	require.Empty(e.t, e.claim(owner, change))
	e.elapse(5 * time.Minute)
	e.requireNames([]string{first, "m2", "appended later"}, e.claimOn(owner, change))
}

func retrySkips(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	skip := inOrder(outmill.OrderKey, outmill.KeySkip)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", skip))
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m2", skip))
	e.elapse(61 * time.Minute)
	e.requireNames([]string{"m1", "m3"}, e.claimAll(skip))
}

func snoozedSkips(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	skip := inOrder(outmill.OrderKey, outmill.KeySkip)
	e.snooze(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", skip))
	e.claimOne(outmill.NewOwnerToken(), "m2", skip)
}

func heldKeySkip(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	skip := inOrder(outmill.OrderKey, outmill.KeySkip)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", skip)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), skip))
	e.ack(r)
	e.claimOne(outmill.NewOwnerToken(), "m2", skip)
}

func deadLetsGoOn(policy outmill.KeyPolicy) func(*env) {
	return func(e *env) {
		e.filled(keyed("k", "m1", "m2")...)
		change := inOrder(outmill.OrderKey, policy)
		e.fail(e.claimOne(outmill.NewOwnerToken(), "m1", change))
		e.append(keyed("k", "m3")...)
		e.requireNames([]string{"m2", "m3"}, e.claimAll(change))
	}
}

func requeuedTakesItsPlace(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.fail(r)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m2", byKey))
	require.Equal(e.t, 1, e.requeue(r))
	e.requireNames([]string{"m1", "m3"}, e.claimAll(byKey))
}

// blockerEnd is one way in which a record stops to hold up its key.
type blockerEnd struct {
	name  string
	check func(*env)
}

func blockerEnds() []blockerEnd {
	leasedThen := func(end func(*env, *outmill.Record)) func(*env) {
		return func(e *env) {
			e.filled(keyed("k", "m1", "m2", "m3")...)
			r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
			require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
			end(e, r)
			e.requireNames([]string{"m2", "m3"}, e.claimAll(byKey))
		}
	}
	retriedThen := func(end func(*env, *outmill.Record)) func(*env) {
		return func(e *env) {
			e.filled(rec(orders, "m1", withKey("k"), withTTL(30*time.Minute)))
			e.append(keyed("k", "m2", "m3")...)
			r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
			e.abandon(time.Hour, r)
			require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
			end(e, r)
			e.requireNames([]string{"m2", "m3"}, e.claimAll(byKey))
		}
	}
	return []blockerEnd{
		{"acked", leasedThen(func(e *env, r *outmill.Record) { e.ack(r) })},
		{"failed", leasedThen(func(e *env, r *outmill.Record) { e.fail(r) })},
		{"deleted while it is leased", leasedThen(func(e *env, r *outmill.Record) { e.delete(r) })},
		{"deleted while it waits for its retry", retriedThen(func(e *env, r *outmill.Record) { e.delete(r) })},
		{"expired while it waits for its retry", retriedThen(func(e *env, r *outmill.Record) {
			e.elapse(31 * time.Minute)
			require.Equal(e.t, 1, e.did(e.store.ExpireDue, 10))
		})},
	}
}

func unorderedAfterOrdered(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", byKey))
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	require.ElementsMatch(e.t, []string{"m2", "m3"}, names(e.claimAll()))
}

func ordersInTurn(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	e.append(keyed("other", "m3")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.abandon(time.Hour, r)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic), "the topic waits for m1")
	e.claimOne(outmill.NewOwnerToken(), "m3", byKey)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey), "m2 waits for m1")
	e.claimOne(outmill.NewOwnerToken(), "m2", inOrder(outmill.OrderKey, outmill.KeySkip))
	e.elapse(61 * time.Minute)
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimAll(byTopic))
}

func heldElsewhere(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	other := e.on(e.reopen())
	require.Empty(e.t, other.claimAll(byKey))
	e.elapse(leaseOf + time.Minute)
	e.requireNames([]string{"m1", "m2"}, other.claimAll(byKey))
}

func upkeepKeepsKeys(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", byKey))
	e.register(group)
	e.register("others")
	e.tidy()
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	e.elapse(61 * time.Minute)
	e.tidy()
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimAll(byKey))
}

// tidy does a janitor's round.
func (e *env) tidy() {
	e.t.Helper()
	e.reap(1000)
	e.did(e.store.ExpireDue, 1000)
	e.did(e.store.DeleteProcessed, 1000)
	e.did(e.store.DeleteDedupKeys, 1000)
}
