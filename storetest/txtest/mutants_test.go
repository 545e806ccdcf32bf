package txtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// mutant is a store in memory that breaks a promise, and the sentences that notice.
type mutant struct {
	name    string
	change  func(mutants.Memory) outmill.Store
	noticed []string
}

func exactly(list []mutant) []mutants.Exact {
	exact := make([]mutants.Exact, len(list))
	for i, m := range list {
		exact[i] = mutants.Exact{Name: m.name, Noticed: m.noticed, New: mutants.InMemory(m.change)}
	}
	return exact
}

// inMemory returns the sections that a store without joins can keep.
func inMemory() []suite.Section {
	return slices.DeleteFunc(sections(), func(s suite.Section) bool { return s.Name == "steps" })
}

func broken() []mutant {
	return slices.Concat(brokenTransact(), brokenEnded(), brokenNotes(), brokenInboxes(), brokenSagas(), brokenRetentions())
}

// hurry has stores that wait take less time, where nothing slows down those that do not.
func hurry() {
	if !suite.UnderRace && !suite.All() {
		soon = 2 * time.Second
	}
}

func TestRun_BrokenStores(t *testing.T) {
	hurry()
	mutants.RequireExactly(t, inMemory(), suite.Modes()[0], exactly(broken()))
}

// TestRun_BrokenSteps uses the store of SQLite, because the store in memory has no joins.
func TestRun_BrokenSteps(t *testing.T) {
	hurry()
	steps := slices.DeleteFunc(sections(), func(s suite.Section) bool { return s.Name != "steps" })
	var list []mutants.Exact
	for _, m := range brokenSteps() {
		list = append(list, mutants.Exact{Name: m.name, Noticed: m.noticed, New: mutants.InFile(m.change)})
	}
	mutants.RequireExactly(t, steps, suite.Modes()[1], list)
}

func TestRun_EverySentenceIsFailedByAStore(t *testing.T) {
	t.Parallel()
	noticed := map[string]bool{}
	for _, m := range broken() {
		for _, name := range m.noticed {
			noticed[name] = true
		}
	}
	for _, m := range brokenSteps() {
		for _, name := range m.noticed {
			noticed[name] = true
		}
	}
	for _, section := range sections() {
		for _, sentence := range section.Sentences {
			require.True(t, noticed[section.Name+": "+sentence.Name], "no mutant fails %q of %q", sentence.Name, section.Name)
		}
	}
}
