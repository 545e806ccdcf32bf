package storetest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

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
	return []*outmill.Record{suite.Rec(orders, "m1", suite.WithKey("a")), suite.Rec(orders, "m2"), suite.Rec(orders, "m3", suite.WithKey("b")),
		suite.Rec(orders, "m4")}
}

func topicOrder(e *env) {
	e.Filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimN(owner, 3, suite.ByTopic))
	e.RequireNames([]string{"m4"}, e.ClaimN(owner, 1, suite.ByTopic))
}

func heldTopic(e *env) {
	e.Filled(mixedKeys()...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByTopic)
	e.RequireNames([]string{"m1", "m2"}, found)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic))
	e.Ack(found[0])
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic), "m2 is held")
	e.Ack(found[1])
	e.RequireNames([]string{"m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func topicHolderClaimsMore(e *env) {
	e.Filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	for _, want := range []string{"m1", "m2", "m3", "m4"} {
		e.ClaimOne(owner, want, suite.ByTopic)
	}
}

func otherTopicsPass(e *env) {
	e.Filled(mixedKeys()...)
	e.Append(suite.Rec("invoices", "i1"), suite.Rec("invoices", "i2"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByTopic, suite.From(orders))
	e.RequireNames([]string{"i1", "i2"}, e.ClaimAll(suite.ByTopic))
}

func retryBlocksTopic(e *env) {
	e.Filled(mixedKeys()...)
	owner := outmill.NewOwnerToken()
	e.Abandon(time.Hour, e.ClaimOne(owner, "m1", suite.ByTopic))
	require.Empty(e.T, e.Claim(owner, suite.ByTopic))
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic))
	e.Elapse(61 * time.Minute)
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func retrySkipsTopic(e *env) {
	e.Filled(mixedKeys()...)
	skip := suite.InOrder(outmill.OrderTopic, outmill.KeySkip)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", skip))
	e.RequireNames([]string{"m2", "m3", "m4"}, e.ClaimAll(skip))
}

func deadLetsTopicGoOn(e *env) {
	e.Filled(mixedKeys()...)
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByTopic))
	e.RequireNames([]string{"m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func delayedDoesNotHoldTopic(e *env) {
	e.Filled(suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)))
	e.Append(mixedKeys()...)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByTopic))
	e.Elapse(61 * time.Minute)
	e.RequireNames([]string{"delayed", "m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func topicOrderAfterExpiry(e *env) {
	e.Filled(mixedKeys()...)
	e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByTopic)
	e.Elapse(leaseOf + time.Minute)
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func topicOrderAfterRelease(e *env) {
	e.Filled(mixedKeys()...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ByTopic)
	e.Release(found[0])
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic), "m2 is held")
	e.Release(found[1])
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

func keyLeaseHoldsTopic(e *env) {
	e.Filled(mixedKeys()...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic))
	e.Ack(r)
	e.RequireNames([]string{"m2", "m3", "m4"}, e.ClaimAll(suite.ByTopic))
}

// topicOrderOverHeld has an expired record as the only record that a claim with limit 1 reads
// first.
func topicOrderOverHeld(e *env) {
	e.Filled(suite.Rec(orders, "hot", suite.WithKey("k")), suite.Rec(orders, "short", suite.WithTTL(time.Minute)), suite.Rec(orders, "m3"),
		suite.Rec(orders, "passed over", suite.WithKey("k")))
	hot := e.ClaimOne(outmill.NewOwnerToken(), "hot", suite.ByKey)
	free := e.ClaimOn(outmill.NewOwnerToken(), suite.ByKey)
	e.RequireNames([]string{"short", "m3"}, free)
	e.Release(free...)
	e.Ack(hot)
	e.Elapse(2 * time.Minute)
	owner := outmill.NewOwnerToken()
	e.ClaimOne(owner, "m3", suite.ByTopic)
	e.ClaimOne(owner, "passed over", suite.ByTopic)
}
