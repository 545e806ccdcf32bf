package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func roundTripSentences() []sentence {
	list := []sentence{{"an Append of a hundred records takes about as many round trips as one of ten", appendsTogether}}
	for _, c := range settlingCalls() {
		list = append(list, sentence{c.name + " of a hundred leases takes about as many round trips as of ten", c.check})
	}
	return list
}

type settlingCall struct {
	name string
	call func(e *env, records []*outmill.Record)
}

func settlingCalls() []settlingCall {
	return []settlingCall{
		{"Ack", func(e *env, records []*outmill.Record) { e.Ack(records...) }},
		{"Abandon", func(e *env, records []*outmill.Record) { e.Abandon(time.Minute, records...) }},
		{"Fail", func(e *env, records []*outmill.Record) { e.Fail(records...) }},
		{"Release", func(e *env, records []*outmill.Record) { e.Release(records...) }},
		{"Snooze", func(e *env, records []*outmill.Record) { e.Snooze(time.Minute, records...) }},
		{"Extend", func(e *env, records []*outmill.Record) {
			e.T.Helper()
			extended, err := e.Store.Extend(e.Ctx, time.Hour, suite.Leases(records))
			require.NoError(e.T, err)
			require.Len(e.T, extended, len(records))
		}},
	}
}

const few, many = 10, 100

func (c settlingCall) check(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(few+many)...)...)
	records := e.ClaimN(outmill.NewOwnerToken(), few+many, suite.Limit(few+many))
	e.requireBounded(func(e *env) { c.call(e, records[:few]) }, func(e *env) { c.call(e, records[few:]) })
}

func appendsTogether(e *env) {
	e.Register(group)
	e.Append(suite.Rec(orders, "first"))
	names := suite.Numbered(few + many)
	e.requireBounded(
		func(e *env) { e.Append(suite.Recs(orders, suite.Plain, names[:few]...)...) },
		func(e *env) { e.Append(suite.Recs(orders, suite.Plain, names[few:]...)...) })
}

// requireBounded checks that a call for many records takes only a few more round trips than a
// call for few. Some more are allowed, because a store may write large calls in another way.
func (e *env) requireBounded(forFew, forMany func(e *env)) {
	e.T.Helper()
	trips := func(call func(e *env)) int {
		tapped, sent := e.tap()
		call(tapped)
		return len(sent())
	}
	small := trips(forFew)
	require.Positive(e.T, small, "nothing was noted")
	large := trips(forMany)
	require.LessOrEqual(e.T, large, 3*small+few/2, "round trips for %d, of %d for %d", many, small, few)
}
