// Package joinstest tests the role roles.Joins of a store. It has one test for each
// sentence of its contract. Package storetest tests the queue of the same store:
//
//	func TestConformance_Joins(t *testing.T) {
//		joinstest.Run(t, storetest.Engine{New: newHarness})
//	}
//
// Names, modes, flags and settings are those of storetest.
package joinstest

import (
	"testing"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

const (
	group   = suite.Group
	orders  = suite.Orders
	leaseOf = suite.LeaseOf
)

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

// Run checks every sentence of the contract of joins, in parallel, each with a store of
// its own. Each Harness that engine makes has a store that is a roles.Joins.
func Run(t *testing.T, engine storetest.Engine) {
	t.Helper()
	suite.Suite{
		Sections:    sections(),
		Unsupported: engine.Unsupported,
		New: func(t *testing.T, options suite.Options) suite.Harness {
			t.Helper()
			harness := engine.New(t, storetest.Options(options))
			if _, ok := harness.Store().(roles.Joins); !ok {
				t.Fatal("joinstest: the store is not a roles.Joins")
			}
			return harness
		},
	}.Run(t)
}
