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

const few, many = suite.Few, suite.Many

func (c settlingCall) check(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(few+many)...)...)
	records := e.ClaimN(outmill.NewOwnerToken(), few+many, suite.Limit(few+many))
	e.RequireBounded(func(s *suite.Env) { c.call(&env{s}, records[:few]) }, func(s *suite.Env) { c.call(&env{s}, records[few:]) })
}

func appendsTogether(e *env) {
	e.Register(group)
	e.Append(suite.Rec(orders, "first"))
	names := suite.Numbered(few + many)
	e.RequireBounded(
		func(e *suite.Env) { e.Append(suite.Recs(orders, suite.Plain, names[:few]...)...) },
		func(e *suite.Env) { e.Append(suite.Recs(orders, suite.Plain, names[few:]...)...) })
}
