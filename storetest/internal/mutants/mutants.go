// Package mutants tests the suites: it runs a sentence of a contract against a store
// that breaks it, and requires that the sentence fails.
package mutants

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// inChild tells the child process to run the sentences, which fail.
const inChild = "OUTMILL_STORETEST_MUTANTS"

// Mutant is a store that breaks one promise, and the sentence that must notice.
type Mutant struct {
	Name    string
	Section string
	Noticed string
	Change  func(File) outmill.Store
}

// RequireNoticed runs one sentence of the sections for each mutant, in a child process
// that repeats the test. The failures there make the test pass. Another child runs the
// sentences that passed again, because a walk need not meet the fault, and neither need
// calls at the same time: see rounds.
func RequireNoticed[M ~struct {
	Name    string
	Section string
	Noticed string
	Change  func(File) outmill.Store
}](t *testing.T, sections []suite.Section, mode suite.Mode, list []M) {
	t.Helper()
	if os.Getenv(inChild) != "" {
		for _, m := range list {
			m := Mutant(m)
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				section, err := m.section(sections)
				require.NoError(t, err)
				suite.Suite{New: harness(m.Change)}.Check(t, section, mode)
			})
		}
		return
	}
	t.Parallel()
	missed := map[string]int{}
	for _, m := range list {
		missed[Mutant(m).Name] = Mutant(m).rounds()
	}
	for round := 1; len(missed) > 0; round++ {
		output := runChild(t, missed)
		for _, m := range list {
			m := Mutant(m)
			last, searched := missed[m.Name]
			if !searched {
				continue
			}
			noticed := strings.Contains(output, "--- FAIL: "+subtest(t.Name()+"/"+m.Name+"/"+m.Noticed)+" (")
			if !noticed && round < last {
				continue
			}
			delete(missed, m.Name)
			t.Run("a store that "+m.Name, func(t *testing.T) {
				require.True(t, noticed, "not noticed by %q in %d rounds", m.Noticed, round)
			})
		}
	}
}

// rounds is how often a sentence has the chance to notice its mutant. A round of walks
// misses one mutant in five at worst, so that a red test means a blind sentence.
func (m Mutant) rounds() int {
	if m.Section == "model" || m.Section == "stress" {
		return 15
	}
	return 3
}

// runChild runs the sentences of the named mutants, one of which must fail.
func runChild(t *testing.T, names map[string]int) string {
	t.Helper()
	var patterns []string
	for name := range names {
		patterns = append(patterns, regexp.QuoteMeta(subtest(name)))
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$/^("+strings.Join(patterns, "|")+")$",
		"-test.v", "-test.parallel=4", "-rapid.nofailfile", "-rapid.shrinktime=1ms", "-rapid.checks=300")
	child.Env = append(os.Environ(), inChild+"=1")
	output, err := child.CombinedOutput()
	require.Truef(t, err == nil || child.ProcessState.ExitCode() == 1, "the child ends with %v:\n%s", err, output)
	require.NotContains(t, string(output), "no tests to run")
	if at := strings.Index(strings.ToLower(string(output)), "panic"); at >= 0 {
		require.Fail(t, "a mutant failed for a reason of its own", "%s", output[max(0, at-2000):min(len(output), at+4000)])
	}
	return string(output)
}

// subtest is how the testing package writes the name of a subtest.
func subtest(name string) string { return strings.ReplaceAll(name, " ", "_") }

// section has only the sentence that must notice.
func (m Mutant) section(sections []suite.Section) (suite.Section, error) {
	for _, section := range sections {
		for _, sentence := range section.Sentences {
			if section.Name == m.Section && sentence.Name == m.Noticed {
				return suite.Section{Name: section.Name, Sentences: []suite.Sentence{sentence}}, nil
			}
		}
	}
	return suite.Section{}, fmt.Errorf("no sentence %q in %q", m.Noticed, m.Section)
}

// RequireDistinct checks that the names of sections and sentences, which become names of tests,
// are distinct.
func RequireDistinct(t *testing.T, sections []suite.Section) {
	t.Helper()
	seen := map[string]bool{}
	for _, section := range sections {
		require.NotEmpty(t, section.Sentences, section.Name)
		for _, sentence := range section.Sentences {
			name := section.Name + ": " + sentence.Name
			require.False(t, seen[name], name)
			require.NotContains(t, name, "/", "the name of a subtest")
			seen[name] = true
		}
	}
}
