package joinstest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func undeliverableSentences() []sentence {
	return []sentence{
		{"a step whose record cannot be decoded fails with the claim that makes it dead, and a requeue takes it back", unreadableStep},
		{"a step whose record is too large for its reader fails with the claim that makes it dead", tooLargeStep},
		{"a step whose record is a suspect without attempts left fails with the claim that makes it dead", exhaustedStep},
	}
}

func unreadableStep(e *env) {
	b, ok := e.Harness.(storetest.Breaker)
	if !ok {
		e.T.Skip("the harness is no storetest.Breaker")
	}
	for _, column := range b.Columns() {
		id := e.startJoin(2)
		r := e.members(id, "m1")[0]
		b.Break(e.Store, r.ID, column)
		require.Empty(e.T, e.ClaimAll(), column)
		e.requireDeadStep(id, r)
		require.Equal(e.T, 1, e.Requeue(r), column)
		e.requireCounts(id, 0, 0)
		for _, again := range e.ClaimAll() {
			e.Ack(again)
			e.requireCounts(id, 1, 0)
			r = nil
		}
		if r != nil {
			e.requireDeadStep(id, r)
			e.Delete(r)
			e.requireCounts(id, 0, 1)
		}
	}
}

// requireDeadStep checks a step of which a claim has made the record dead.
func (e *env) requireDeadStep(id outmill.JoinID, r *outmill.Record) {
	e.T.Helper()
	e.RequireStatus(outmill.StatusDead, r)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, roles.StepFailed)
}

func tooLargeStep(e *env) {
	id := e.startJoin(2)
	large := suite.Rec(orders, "large", withJoins(id))
	large.Payload = []byte(strings.Repeat("x", 40_000))
	e.Filled(large)
	require.Empty(e.T, e.ClaimAll(func(r *outmill.ClaimRequest) { r.MaxRecord = 20_000 }))
	e.requireDeadStep(id, large)
}

func exhaustedStep(e *env) {
	id := e.startJoin(2)
	r := e.members(id, "m1")[0]
	upTo := func(r *outmill.ClaimRequest) { r.MaxAttempts = 1 }
	for range outmill.SuspectExpiries + 1 {
		require.Len(e.T, e.ClaimAll(upTo), 1)
		e.Elapse(leaseOf + time.Minute)
	}
	require.Empty(e.T, e.ClaimAll(upTo))
	e.requireDeadStep(id, r)
}
