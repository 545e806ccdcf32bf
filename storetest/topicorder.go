package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func topicOrderSentences() []sentence {
	return []sentence{
		{"all records of a topic come in the order in which they were appended, whatever their keys", topicOrder},
		{"a topic that an owner holds is not handed to another owner", heldTopic},
		{"the holder of a topic may claim more of it", topicHolderClaimsMore},
		{"a held topic does not hold up other topics", otherTopicsPass},
		{"a record that waits for a retry holds its topic under Block", retryBlocksTopic},
		{"a record that waits for a retry lets its topic go on under Skip", retrySkipsTopic},
		{"a dead record lets its topic go on under Block", deadLetsTopicGoOn},
		{"a delayed record does not hold up its topic", delayedDoesNotHoldTopic},
		{"after a lease has ended the topic begins again with its oldest record", topicOrderAfterExpiry},
		{"after a release the topic begins again with the released record", topicOrderAfterRelease},
		{"a lease claimed by key holds its topic too", keyLeaseHoldsTopic},
		{"a record that a claim by key has passed over comes behind all that were appended before it", topicOrderOverHeld},
	}
}

func mixedKeys() []*outmill.Record {
	return []*outmill.Record{rec(orders, "m1", withKey("a")), rec(orders, "m2"), rec(orders, "m3", withKey("b")), rec(orders, "m4")}
}

func topicOrder(e *env) {
	e.filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimN(owner, 3, byTopic))
	e.requireNames([]string{"m4"}, e.claimN(owner, 1, byTopic))
}

func heldTopic(e *env) {
	e.filled(mixedKeys()...)
	found := e.claimN(outmill.NewOwnerToken(), 2, byTopic)
	e.requireNames([]string{"m1", "m2"}, found)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic))
	e.ack(found[0])
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic), "m2 is held")
	e.ack(found[1])
	e.requireNames([]string{"m3", "m4"}, e.claimAll(byTopic))
}

func topicHolderClaimsMore(e *env) {
	e.filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	for _, want := range []string{"m1", "m2", "m3", "m4"} {
		e.claimOne(owner, want, byTopic)
	}
}

func otherTopicsPass(e *env) {
	e.filled(mixedKeys()...)
	e.append(rec("invoices", "i1"), rec("invoices", "i2"))
	e.claimOne(outmill.NewOwnerToken(), "m1", byTopic, from(orders))
	e.requireNames([]string{"i1", "i2"}, e.claimAll(byTopic))
}

func retryBlocksTopic(e *env) {
	e.filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	e.abandon(time.Hour, e.claimOne(owner, "m1", byTopic))
	require.Empty(e.t, e.claim(owner, byTopic))
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic))
	e.elapse(61 * time.Minute)
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(byTopic))
}

func retrySkipsTopic(e *env) {
	e.filled(mixedKeys()...)
	skip := inOrder(outmill.OrderTopic, outmill.KeySkip)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", skip))
	e.requireNames([]string{"m2", "m3", "m4"}, e.claimAll(skip))
}

func deadLetsTopicGoOn(e *env) {
	e.filled(mixedKeys()...)
	e.fail(e.claimOne(outmill.NewOwnerToken(), "m1", byTopic))
	e.requireNames([]string{"m2", "m3", "m4"}, e.claimAll(byTopic))
}

func delayedDoesNotHoldTopic(e *env) {
	e.filled(rec(orders, "delayed", withDelay(time.Hour)))
	e.append(mixedKeys()...)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", byTopic))
	e.elapse(61 * time.Minute)
	e.requireNames([]string{"delayed", "m2", "m3", "m4"}, e.claimAll(byTopic))
}

func topicOrderAfterExpiry(e *env) {
	e.filled(mixedKeys()...)
	e.claimN(outmill.NewOwnerToken(), 2, byTopic)
	e.elapse(leaseOf + time.Minute)
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(byTopic))
}

func topicOrderAfterRelease(e *env) {
	e.filled(mixedKeys()...)
	found := e.claimN(outmill.NewOwnerToken(), 2, byTopic)
	e.release(found[0])
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic), "m2 is held")
	e.release(found[1])
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(byTopic))
}

func keyLeaseHoldsTopic(e *env) {
	e.filled(mixedKeys()...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic))
	e.ack(r)
	e.requireNames([]string{"m2", "m3", "m4"}, e.claimAll(byTopic))
}

// topicOrderOverHeld: the record that has expired is the whole of what a claim for one
// record reads first of the line.
func topicOrderOverHeld(e *env) {
	e.filled(rec(orders, "hot", withKey("k")), rec(orders, "short", withTTL(time.Minute)), rec(orders, "m3"), rec(orders, "passed over", withKey("k")))
	hot := e.claimOne(outmill.NewOwnerToken(), "hot", byKey)
	free := e.claimOn(outmill.NewOwnerToken(), byKey)
	e.requireNames([]string{"short", "m3"}, free)
	e.release(free...)
	e.ack(hot)
	e.elapse(2 * time.Minute)
	owner := outmill.NewOwnerToken()
	e.claimOne(owner, "m3", byTopic)
	e.claimOne(owner, "passed over", byTopic)
}
