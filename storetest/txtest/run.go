// Package txtest tests the roles.Transactor, Inbox and Sagas of a store. It has one
// test for each sentence of their contract. Package storetest tests the queue of the same store:
//
//	func TestConformance_Transactions(t *testing.T) {
//		txtest.Run(t, storetest.Engine{New: newHarness})
//	}
//
// Names, modes, flags and settings are those of storetest.
package txtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

const (
	group     = suite.Group
	orders    = suite.Orders
	worker    = suite.Worker
	leaseOf   = suite.LeaseOf
	retention = 24 * time.Hour
)

// soon limits the duration of calls that must not wait for an open transaction.
var soon = 10 * time.Second

// env has the store and the helpers of one sentence.
type env struct{ *suite.Env }

// sentence is one rule of the contract, and its check.
type sentence struct {
	name  string
	check func(*env)
}

func bind(list []sentence) []suite.Sentence {
	bound := make([]suite.Sentence, len(list))
	for i, s := range list {
		bound[i] = suite.Sentence{Name: s.name, Check: func(e *suite.Env) { s.check(&env{e}) }}
	}
	return bound
}

// Run checks every sentence, in parallel, each with a store of its own. Each Harness that
// engine makes has a store that is a roles.Transactor, Inbox and Sagas. The section "notes"
// needs a roles.Pauses and Repairs too, and the section "steps" a roles.Joins: if the store lacks one, name the
// section in Unsupported.
func Run(t *testing.T, engine storetest.Engine) {
	t.Helper()
	suite.Suite{
		Sections:    sections(),
		Unsupported: engine.Unsupported,
		New: func(t *testing.T, options suite.Options) suite.Harness {
			t.Helper()
			return engine.New(t, storetest.Options(options))
		},
	}.Run(t)
}

func sections() []suite.Section {
	return []suite.Section{
		{Name: "transact", Sentences: bind(transactSentences()), AnyMode: true},
		{Name: "ended", Sentences: bind(endedSentences()), AnyMode: true},
		{Name: "notes", Sentences: bind(noteSentences()), BothModes: true},
		{Name: "steps", Sentences: bind(stepSentences()), BothModes: true},
		{Name: "inbox", Sentences: bind(inboxSentences()), AnyMode: true},
		{Name: "sagas", Sentences: bind(sagaSentences()), AnyMode: true},
		{Name: "retention", Sentences: bind(retentionSentences()), AnyMode: true},
	}
}

// on returns e with another store on the same database.
func (e *env) on(store outmill.Store) *env { return &env{e.On(store)} }

func (e *env) joins() roles.Joins { return e.Store.(roles.Joins) }

// steps starts a join with this number of steps, and appends the messages of the steps.
func (e *env) steps(names ...string) outmill.JoinID {
	e.T.Helper()
	join := &roles.Join{ExpectedSteps: len(names)}
	require.NoError(e.T, e.joins().StartJoin(e.Ctx, join), "StartJoin")
	e.Filled(suite.Recs(orders, func(r *outmill.Record) { r.Joins = []outmill.JoinID{join.ID} }, names...)...)
	return join.ID
}

// requireCounts checks the join's counters, and that they agree with its steps.
func (e *env) requireCounts(id outmill.JoinID, completed, failed int) {
	e.T.Helper()
	join, err := e.joins().GetJoin(e.Ctx, id)
	require.NoError(e.T, err, "GetJoin")
	require.Equal(e.T, []int{completed, failed}, []int{join.CompletedSteps, join.FailedSteps}, "steps completed, failed")
	steps, err := e.joins().ListSteps(e.Ctx, id, outmill.WorkItemID{}, 0)
	require.NoError(e.T, err, "ListSteps")
	counts := map[roles.StepStatus]int{}
	for _, step := range steps {
		counts[step.Status]++
	}
	require.Equal(e.T, []int{completed, failed}, []int{counts[roles.StepCompleted], counts[roles.StepFailed]}, "steps by their states")
}

// promptly runs fn, which must not wait for an open transaction. A call that does waits for ever, so a busy machine gets more than soon.
func (e *env) promptly(what string, fn func(e *env)) {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(e.Ctx, 3*soon)
	defer cancel()
	fn(&env{e.Under(ctx)})
	require.NoError(e.T, ctx.Err(), what)
}
