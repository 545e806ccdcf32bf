package storetest

import (
	"fmt"

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

// hostileTopics would be mistaken for each other, or for a query, by a store
// that splices or compares carelessly.
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
		list = append(list, rec(topic, topic))
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
	e.register("lower", "order.created")
	e.register("upper", "Order.Created")
	e.append(rec("order.created", "lower"), rec("Order.Created", "upper"))
	require.Equal(e.t, []string{"lower"}, names(e.claimAll(ofGroup("lower"))))
	require.Equal(e.t, []string{"upper"}, names(e.claimAll(ofGroup("upper"))))
	require.Equal(e.t, []string{"lower"}, names(e.list(outmill.ListQuery{Topic: "order.created"})))
}

func keysAreCaseSensitive(e *env) {
	e.filled(rec(orders, "lower", withKey("k")), rec(orders, "upper", withKey("K")))
	e.claimOne(outmill.NewOwnerToken(), "lower", byKey)
	e.claimOne(outmill.NewOwnerToken(), "upper", byKey)
}

func claimPatterns(e *env) {
	e.filled(hostileRecords()...)
	owner := outmill.NewOwnerToken()
	seen := map[string]bool{}
	for _, pattern := range hostilePatterns() {
		matched := fmt.Sprint(matching(outmill.Topics{Include: []string{pattern}}))
		if seen[matched] && !all() {
			continue
		}
		seen[matched] = true
		found := e.claimOn(owner, from(pattern))
		require.ElementsMatch(e.t, matching(outmill.Topics{Include: []string{pattern}}), names(found), "pattern %q", pattern)
		e.release(found...)
	}
}

func selected(topics outmill.Topics) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Topics = topics }
}

func registrationPatterns(e *env) {
	patterns := hostilePatterns()
	for i, pattern := range patterns {
		e.register(fmt.Sprintf("g%d", i), pattern)
	}
	e.append(hostileRecords()...)
	for i, pattern := range patterns {
		got := e.list(groupQuery(fmt.Sprintf("g%d", i)))
		require.ElementsMatch(e.t, matching(outmill.Topics{Include: []string{pattern}}), names(got), "pattern %q", pattern)
	}
}

func claimNames(e *env) {
	e.filled(hostileRecords()...)
	topics := outmill.Topics{Include: []string{"orders", outmill.Exact("a*b"), "orders", "absent", "it's"}}
	require.ElementsMatch(e.t, []string{"orders", "a*b", "it's"}, names(e.claimAll(selected(topics))))
}

func claimExclude(e *env) {
	e.filled(hostileRecords()...)
	for _, topics := range []outmill.Topics{
		{Exclude: []string{"o*"}},
		{Exclude: []string{"*"}},
		{Include: []string{"o*"}, Exclude: []string{"orders", "*_"}},
		{Include: []string{"orders", "Orders"}, Exclude: []string{"Orders"}},
		{Include: []string{"*"}, Exclude: []string{`*\**`, `*\\*`, "*'*", "%", "_"}},
	} {
		found := e.claimAll(selected(topics))
		require.ElementsMatch(e.t, matching(topics), names(found), "%+v", topics)
		e.release(found...)
	}
}

func claimNothingSelected(e *env) {
	e.filled(rec(orders, "m1"))
	for _, topics := range []outmill.Topics{
		{Include: []string{orders}, Exclude: []string{orders}},
		{Include: []string{"absent"}},
		{Include: []string{"absent*"}},
	} {
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			found := e.claim(outmill.NewOwnerToken(), selected(topics), inOrder(order, outmill.KeyBlock))
			require.Empty(e.t, found, "%+v, order %s", topics, order)
		}
	}
}

func claimManyNames(e *env) {
	var include []string
	for i := range 500 {
		include = append(include, fmt.Sprintf("topic.%d", i))
	}
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: include}}))
	e.append(rec("topic.0", "first"), rec("topic.499", "last"), rec("topic.500", "none"))
	require.ElementsMatch(e.t, []string{"first", "last"}, names(e.claimAll(from(include...))))
}
