package storetest

import (
	"testing"

	"github.com/outmill/outmill/storetest/internal/suite"
)

const (
	group   = suite.Group
	orders  = suite.Orders
	leaseOf = suite.LeaseOf
	worker  = suite.Worker
)

// Run checks every sentence of the contract of a queue, in parallel, each with a store
// of its own. With the flag -storetest.list it prints the sentences instead.
func Run(t *testing.T, engine Engine) {
	t.Helper()
	engine.suite().Run(t)
}

func (e Engine) suite() suite.Suite {
	return suite.Suite{Sections: sections(), New: e.open, Unsupported: e.Unsupported}
}

func (e Engine) open(t *testing.T, options suite.Options) suite.Harness {
	t.Helper()
	return e.New(t, Options(options))
}

// WalkInSteps makes the random walks of Run over stores of which a claim puts only a
// few records at a time in line that have become due, and Fail parks only a few of
// those behind. A store does so where there are many, which a walk never has: engine
// returns stores that do it sooner. It checks that handing out between such steps is
// the same as having claimed earlier, and that Requeue, which brings a parked key back
// in such steps, brings back all of it while claims park.
func WalkInSteps(t *testing.T, engine Engine) {
	t.Helper()
	for _, mode := range suite.Modes() {
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			suite.RandomWalks(suite.NewEnv(t, engine.open, mode.Options), true)
			requeueBesideClaims(&env{suite.NewEnv(t, engine.open, mode.Options)})
		})
	}
}

// env is what one sentence works with.
type env struct{ *suite.Env }

// sentence is one promise of the contract and the check of it.
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

func sections() []suite.Section {
	return []suite.Section{
		{Name: "append", Sentences: bind(appendSentences()), AnyMode: true},
		{Name: "receipt", Sentences: bind(receiptSentences())},
		{Name: "limits", Sentences: bind(limitSentences()), AnyMode: true},
		{Name: "transactions", Sentences: bind(transactionSentences()), AnyMode: true},
		{Name: "groups", Sentences: bind(groupSentences())},
		{Name: "worker names", Sentences: bind(workerNameSentences()), AnyMode: true},
		{Name: "registrations", Sentences: bind(registrationSentences())},
		{Name: "topics", Sentences: bind(topicSentences()), AnyMode: true},
		{Name: "dedup", Sentences: bind(dedupSentences())},
		{Name: "time", Sentences: bind(timeSentences())},
		{Name: "clock", Sentences: bind(clockSentences()), AnyMode: true},
		{Name: "round trips", Sentences: bind(roundTripSentences()), AnyMode: true},
		{Name: "claim", Sentences: bind(claimSentences())},
		{Name: "settle", Sentences: bind(settleSentences())},
		{Name: "suspects", Sentences: bind(suspectSentences())},
		{Name: "reap", Sentences: bind(reapSentences())},
		{Name: "order", Sentences: bind(orderSentences())},
		{Name: "park", Sentences: bind(parkSentences())},
		{Name: "topic order", Sentences: bind(topicOrderSentences())},
		{Name: "inspect", Sentences: bind(inspectSentences()), BothModes: true},
		{Name: "find", Sentences: bind(findSentences()), BothModes: true},
		{Name: "janitor", Sentences: bind(janitorSentences()), BothModes: true},
		{Name: "wake", Sentences: bind(wakeSentences()), AnyMode: true},
		{Name: "schema", Sentences: bind(schemaSentences()), AnyMode: true},
		{Name: "calls", Sentences: bind(callSentences()), AnyMode: true},
		{Name: "workers", Sentences: bind(workerSentences())},
		{Name: "model", Sentences: bind(modelSentences())},
		{Name: "stress", Sentences: bind(stressSentences())},
	}
}

func modelSentences() []sentence {
	return []sentence{{"random walks leave the store as the model of a queue", randomWalks}}
}

func randomWalks(e *env) { suite.RandomWalks(e.Env, false) }
