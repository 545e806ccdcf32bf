package storetest

import (
	"fmt"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func topicSentences() []sentence {
	return []sentence{
		{"OBX-010 topics are compared case-sensitively", topicsAreCaseSensitive},
		{"keys are compared case-sensitively", keysAreCaseSensitive},
		{"a claim takes from the topics that its patterns match and no others", claimPatterns},
		{"a registration routes the topics that its patterns match and no others", registrationPatterns},
		{"a claim from a list of names takes from these only", claimNames},
		{"a claim leaves out what is excluded, whatever is included", claimExclude},
		{"a claim of a selection that matches nothing gets nothing", claimNothingSelected},
		{"a claim takes a selection of hundreds of names", claimManyNames},
	}
}

// hostileTopics has topics that a store would confuse with each other, or with a part of a
// query, if it builds or compares texts carelessly.
func hostileTopics() []string {
	return []string{
		"orders", "Orders", "ORDERS", "orders.eu", "order_", "orderX", "order",
		"100%", "100x", "%", "_", "a*b", "axb", "ab", `a\*b`, `a\b`, `a\\b`, "*", `\`,
		"[ab]", "a", "b", "a?b", "^a$", "{a,b}", "(a|b)", "a.b", "$topic", "a,b",
		"it's", `"quoted"`, "`tick`", "orders'; DROP TABLE outmill_records; --", "orders\nb",
		"ä", "a\u0308", "日本.東京", "日本.大阪", "😀", "😀😀", "ß", "ss", "ı", "i", "null", "0",
	}
}

func hostilePatterns() []string {
	patterns := []string{
		"*", "**", "orders*", "*.eu", "o*s", "order*", "ORDER*", "order_*", "%*", "_*", "100%*",
		"a*b", `a\*b`, `a\**`, `a\\*`, `*\**`, `*\\*`, `\\`, `\**`, "[ab]*", "a?b*", "^a*", "a.*", "*.*",
		"*'*", `*"*`, "*--", "日本.*", "*京", "*😀", "😀*😀", "ä*", "a*\u0308", "x*", `*\`, "*\n*",
	}
	for _, topic := range hostileTopics() {
		patterns = append(patterns, outmill.Exact(topic))
	}
	return patterns
}

func hostileRecords() []*outmill.Record {
	var list []*outmill.Record
	for _, topic := range hostileTopics() {
		list = append(list, suite.Rec(topic, topic))
	}
	return list
}

func matching(topics outmill.Topics) []string {
	list := []string{}
	for _, topic := range hostileTopics() {
		if topics.Match(topic) {
			list = append(list, topic)
		}
	}
	return list
}

func topicsAreCaseSensitive(e *env) {
	e.Register("lower", "order.created")
	e.Register("upper", "Order.Created")
	e.Append(suite.Rec("order.created", "lower"), suite.Rec("Order.Created", "upper"))
	require.Equal(e.T, []string{"lower"}, suite.Names(e.ClaimAll(suite.OfGroup("lower"))))
	require.Equal(e.T, []string{"upper"}, suite.Names(e.ClaimAll(suite.OfGroup("upper"))))
	require.Equal(e.T, []string{"lower"}, suite.Names(e.List(outmill.ListQuery{Topic: "order.created"})))
}

func keysAreCaseSensitive(e *env) {
	e.Filled(suite.Rec(orders, "lower", suite.WithKey("k")), suite.Rec(orders, "upper", suite.WithKey("K")))
	e.ClaimOne(outmill.NewOwnerToken(), "lower", suite.ByKey)
	e.ClaimOne(outmill.NewOwnerToken(), "upper", suite.ByKey)
}

func claimPatterns(e *env) {
	e.Filled(hostileRecords()...)
	owner := outmill.NewOwnerToken()
	seen := map[string]bool{}
	for _, pattern := range hostilePatterns() {
		matched := fmt.Sprint(matching(outmill.Topics{Include: []string{pattern}}))
		if seen[matched] && !suite.All() {
			continue
		}
		seen[matched] = true
		found := e.ClaimOn(owner, suite.From(pattern))
		require.ElementsMatch(e.T, matching(outmill.Topics{Include: []string{pattern}}), suite.Names(found), "pattern %q", pattern)
		e.Release(found...)
	}
}

func selected(topics outmill.Topics) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Topics = topics }
}

func registrationPatterns(e *env) {
	patterns := hostilePatterns()
	for i, pattern := range patterns {
		e.Register(fmt.Sprintf("g%d", i), pattern)
	}
	e.Append(hostileRecords()...)
	for i, pattern := range patterns {
		got := e.List(groupQuery(fmt.Sprintf("g%d", i)))
		require.ElementsMatch(e.T, matching(outmill.Topics{Include: []string{pattern}}), suite.Names(got), "pattern %q", pattern)
	}
}

func claimNames(e *env) {
	e.Filled(hostileRecords()...)
	topics := outmill.Topics{Include: []string{"orders", outmill.Exact("a*b"), "orders", "absent", "it's"}}
	require.ElementsMatch(e.T, []string{"orders", "a*b", "it's"}, suite.Names(e.ClaimAll(selected(topics))))
}

func claimExclude(e *env) {
	e.Filled(hostileRecords()...)
	for _, topics := range []outmill.Topics{
		{Exclude: []string{"o*"}},
		{Exclude: []string{"*"}},
		{Include: []string{"o*"}, Exclude: []string{"orders", "*_"}},
		{Include: []string{"orders", "Orders"}, Exclude: []string{"Orders"}},
		{Include: []string{"*"}, Exclude: []string{`*\**`, `*\\*`, "*'*", "%", "_"}},
	} {
		found := e.ClaimAll(selected(topics))
		require.ElementsMatch(e.T, matching(topics), suite.Names(found), "%+v", topics)
		e.Release(found...)
	}
}

func claimNothingSelected(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, topics := range []outmill.Topics{
		{Include: []string{orders}, Exclude: []string{orders}},
		{Include: []string{"absent"}},
		{Include: []string{"absent*"}},
	} {
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			found := e.Claim(outmill.NewOwnerToken(), selected(topics), suite.InOrder(order, outmill.KeyBlock))
			require.Empty(e.T, found, "%+v, order %s", topics, order)
		}
	}
}

func claimManyNames(e *env) {
	var include []string
	for i := range 500 {
		include = append(include, fmt.Sprintf("topic.%d", i))
	}
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: include}}))
	e.Append(suite.Rec("topic.0", "first"), suite.Rec("topic.499", "last"), suite.Rec("topic.500", "none"))
	require.ElementsMatch(e.T, []string{"first", "last"}, suite.Names(e.ClaimAll(suite.From(include...))))
}
