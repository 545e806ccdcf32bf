package storetest

import (
	"slices"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
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

// WalkInSteps runs the random walks of Run with stores that do large work in small steps: a
// claim makes only a few due records ready at a time, and Fail parks only a few later records
// of a key. A real store works in steps only if there are many records, which a walk never
// has, so engine must return stores with small steps. WalkInSteps checks that a claim between
// two steps returns the records that an earlier claim would have returned, and that Requeue
// brings back all records of a parked key while claims park others, and before later records of the
// key. If the store has the role
// roles.Pauses, it also checks that claims bring back in order what they had set aside; if it
// has the role roles.Repairs, that Skip releases a key in order while claims park records, and
// that repairs at once lose nothing. WalkInSteps ignores engine.Unsupported.
func WalkInSteps(t *testing.T, engine Engine) {
	t.Helper()
	for i, mode := range suite.Modes() {
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			if i > 0 && !suite.All() {
				t.Skip("skipped: small steps in the mode " + mode.Name + "; " + suite.EnvAll + "=1 has them run")
			}
			for _, s := range inSteps() {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					if s.long && !suite.All() {
						t.Skip("skipped: " + s.name + "; " + suite.EnvAll + "=1 has them run")
					}
					e := &env{suite.NewEnv(t, engine.open, mode.Options)}
					if s.needs != nil && !s.needs(e) {
						t.Skip("not supported by this store")
					}
					s.check(e)
				})
			}
		})
	}
}

// stepped is a check of a store that works in small steps.
type stepped struct {
	sentence
	needs func(*env) bool
	long  bool
}

func inSteps() []stepped {
	pauses := func(e *env) bool { _, ok := outmill.As[roles.Pauses](e.Store); return ok }
	walks := func(e *env) { suite.RandomWalks(e.Env, true) }
	inParts := func(e *env) { suite.RandomWalksInParts(e.parted("*").Env, true) }
	return []stepped{
		{sentence: sentence{"random walks", walks}},
		{sentence: sentence{"random walks in parts", inParts}, needs: (*env).hasParts},
		{sentence: sentence{"a requeue beside claims", requeueBesideClaims}},
		{sentence: sentence{"a requeue before a record that no claim has met", requeueBeforeUnmet}},
		{sentence: sentence{"a record that ended before a later one", endedBeforeLater}},
		{sentence: sentence{"a skip beside claims", skipBesideClaims}, needs: (*env).hasRepairs},
		{sentence: sentence{"repairs at once", repairsInSteps}, needs: (*env).hasRepairs, long: true},
		{sentence: sentence{"a resume keeps the order", resumeKeepsOrder}, needs: pauses},
		{sentence: sentence{"a resume that is made again", resumeAgain}, needs: pauses},
		{sentence: sentence{"a resume of thousands", resumeMany}, needs: pauses},
		{sentence: sentence{"a backlog that is paused", pausedBacklog}, needs: pauses},
		{sentence: sentence{"pauses beside claims", pausesAndClaims}, needs: pauses, long: true},
	}
}

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

func sections() []suite.Section {
	return []suite.Section{
		{Name: "append", Sentences: bind(appendSentences()), AnyMode: true},
		{Name: "receipt", Sentences: bind(receiptSentences())},
		{Name: "copies", Sentences: bind(copySentences())},
		{Name: "limits", Sentences: bind(limitSentences()), AnyMode: true},
		{Name: "transactions", Sentences: bind(transactionSentences()), AnyMode: true},
		{Name: "groups", Sentences: bind(groupSentences())},
		{Name: "holding", Sentences: bind(holdingSentences())},
		{Name: "giving back", Sentences: bind(givingBackSentences())},
		{Name: "worker names", Sentences: bind(workerNameSentences()), AnyMode: true},
		{Name: "registrations", Sentences: bind(registrationSentences())},
		{Name: "stopped", Sentences: bind(stoppedSentences()), AnyMode: true},
		{Name: "topics", Sentences: bind(topicSentences()), AnyMode: true},
		{Name: "topic age", Sentences: bind(topicAgeSentences()), AnyMode: true},
		{Name: "dedup", Sentences: bind(dedupSentences())},
		{Name: "time", Sentences: bind(timeSentences())},
		{Name: "clock", Sentences: bind(clockSentences()), AnyMode: true},
		{Name: "round trips", Sentences: bind(roundTripSentences()), AnyMode: true},
		{Name: "claim", Sentences: bind(claimSentences())},
		{Name: "settle", Sentences: bind(settleSentences())},
		{Name: "attempts", Sentences: bind(attemptSentences())},
		{Name: "heads", Sentences: bind(headSentences())},
		{Name: "memory", Sentences: bind(memorySentences()), AnyMode: true},
		{Name: "sizes", Sentences: bind(sizeSentences())},
		{Name: "unreadable", Sentences: bind(unreadableSentences())},
		{Name: "suspects", Sentences: bind(suspectSentences())},
		{Name: "reap", Sentences: bind(reapSentences())},
		{Name: "order", Sentences: bind(orderSentences())},
		{Name: "park", Sentences: bind(parkSentences())},
		{Name: "topic order", Sentences: bind(topicOrderSentences())},
		{Name: "parts", Sentences: bind(partSentences())},
		{Name: "pause", Sentences: bind(pauseSentences())},
		{Name: "inspect", Sentences: bind(inspectSentences()), BothModes: true},
		{Name: "waiting", Sentences: bind(waitingSentences()), AnyMode: true},
		{Name: "find", Sentences: bind(slices.Concat(findSentences(), contractSentences())), BothModes: true},
		{Name: "edit", Sentences: bind(editSentences()), AnyMode: true},
		{Name: "skip", Sentences: bind(skipSentences()), BothModes: true},
		{Name: "dead letters", Sentences: bind(letterSentences()), BothModes: true},
		{Name: "audit", Sentences: bind(slices.Concat(auditSentences(), commandSentences())), BothModes: true},
		{Name: "janitor", Sentences: bind(janitorSentences()), BothModes: true},
		{Name: "rest", Sentences: bind(restSentences()), BothModes: true},
		{Name: "wake", Sentences: bind(wakeSentences()), AnyMode: true},
		{Name: "schema", Sentences: bind(schemaSentences()), AnyMode: true},
		{Name: "calls", Sentences: bind(callSentences()), AnyMode: true},
		{Name: "workers", Sentences: bind(workerSentences())},
		{Name: "model", Sentences: bind(modelSentences())},
		{Name: "stress", Sentences: bind(stressSentences())},
	}
}

func modelSentences() []sentence {
	return []sentence{
		{"random walks leave the store as the model of a queue", randomWalks},
		{"random walks over fair topics leave the store as the model of a queue", randomWalksInParts},
	}
}

func randomWalks(e *env) { suite.RandomWalks(e.Env, false) }

func randomWalksInParts(e *env) { suite.RandomWalksInParts(e.parted("*").Env, false) }
