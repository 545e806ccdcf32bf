// Package mutants tests the suites: it runs a sentence of a contract against a store
// that breaks it, and requires that the sentence fails.
package mutants

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
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
// that repeats the test. The failures there make the test pass. A sentence that depends on
// chance runs for some rounds, one of which must fail.
func RequireNoticed[M ~struct {
	Name    string
	Section string
	Noticed string
	Change  func(File) outmill.Store
}](t *testing.T, sections []suite.Section, mode suite.Mode, rounds int, list []M) {
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
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=4",
		fmt.Sprint("-test.count=", rounds),
		"-rapid.nofailfile", "-rapid.shrinktime=1ms", "-rapid.checks=300")
	child.Env = append(os.Environ(), inChild+"=1")
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	require.Error(t, child.Run(), "the child passed")
	require.NotContains(t, strings.ToLower(output.String()), "panic", "a mutant failed for a reason of its own")
	for _, m := range list {
		m := Mutant(m)
		t.Run("a store that "+m.Name, func(t *testing.T) {
			t.Parallel()
			verdict := "--- FAIL: " + strings.Split(t.Name(), "/")[0] + "/" + strings.ReplaceAll(m.Name+"/"+m.Noticed, " ", "_") + " ("
			require.True(t, strings.Contains(output.String(), verdict), "not noticed by %q", m.Noticed)
		})
	}
}

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
