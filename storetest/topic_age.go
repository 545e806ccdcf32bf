package storetest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func topicAgeSentences() (list []sentence) {
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		list = append(list,
			sentence{fmt.Sprint("thousands of topics of one message delay one that came last by three claims at most, with the order ", order),
				func(e *env) { lastTopic(e, order) }},
			sentence{fmt.Sprint("the topics that have been due longest are in the next claim, with the order ", order),
				func(e *env) { oldestTopics(e, order) }},
			sentence{fmt.Sprint("all topics are served, each about once, with the order ", order), func(e *env) { allTopics(e, order) }})
	}
	return list
}

// fillTopics appends a message to each of n topics, those with the later names first. Twenty at a time become due together.
func (e *env) fillTopics(n int) (names []string) {
	e.T.Helper()
	e.Register(suite.Group)
	for i := range n {
		names = append(names, fmt.Sprintf("topic %06d", n-i))
	}
	for part := range slices.Chunk(names, 20) {
		var list []*outmill.Record
		for _, name := range part {
			list = append(list, suite.Rec(name, name, suite.WithKey("k")))
		}
		e.Append(list...)
	}
	return names
}

func lastTopic(e *env, order outmill.Order) {
	e.fillTopics(suite.Large(20_000))
	e.Append(suite.Rec("z, the last topic", "last"))
	owner := outmill.NewOwnerToken()
	for range 3 {
		if slices.Contains(suite.Names(e.Claim(owner, suite.InOrder(order, outmill.KeyBlock), suite.Limit(100))), "last") {
			return
		}
	}
	require.Fail(e.T, "three claims of 100 have not returned the message of the last topic")
}

func oldestTopics(e *env, order outmill.Order) {
	names := e.fillTopics(suite.Large(3000))
	found := e.Claim(outmill.NewOwnerToken(), suite.InOrder(order, outmill.KeyBlock), suite.Limit(100))
	require.Len(e.T, found, 100)
	require.Subset(e.T, suite.Names(found), names[:40])
}

// allTopics counts claims: a claim that meets the same empty topics again and again returns less.
func allTopics(e *env, order outmill.Order) {
	n := suite.Large(3000)
	e.fillTopics(n)
	owner, seen := outmill.NewOwnerToken(), map[string]bool{}
	for range 3 * n / 100 {
		found := e.Claim(owner, suite.InOrder(order, outmill.KeyBlock), suite.Limit(100))
		e.Ack(found...)
		for _, r := range found {
			seen[r.MessageID] = true
		}
		if len(seen) == n {
			return
		}
	}
	require.Failf(e.T, "topics are left", "%d claims have served %d of %d topics", 3*n/100, len(seen), n)
}
