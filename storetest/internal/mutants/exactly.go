package mutants

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storetest/internal/suite"
)

// Exact is a store that breaks a promise, and the sentences that must notice, as
// "section: sentence". All others must hold.
type Exact struct {
	Name    string
	Noticed []string
	New     func(*testing.T, suite.Options) suite.Harness
}

// RequireExactly runs all sentences of the sections for each mutant, in a child process that
// repeats the test, and checks which of them fail.
func RequireExactly(t *testing.T, sections []suite.Section, mode suite.Mode, list []Exact) {
	t.Helper()
	if os.Getenv(inChild) != "" {
		for _, m := range list {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				for _, section := range sections {
					t.Run(section.Name, func(t *testing.T) { suite.Suite{New: m.New}.Check(t, section, mode) })
				}
			})
		}
		return
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=8", "-test.timeout=20m")
	child.Env = append(os.Environ(), inChild+"=1")
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	require.Error(t, child.Run(), "the child passed")
	require.NotContains(t, output.String(), "panic: runtime error", "a mutant failed for a reason of its own")
	for _, m := range list {
		t.Run("a store that "+m.Name, func(t *testing.T) {
			t.Parallel()
			want := slices.Sorted(slices.Values(m.Noticed))
			require.Equal(t, want, failures(output.String(), strings.Split(t.Name(), "/")[0], m.Name, sections))
		})
	}
}

// failures are the sentences that failed for the mutant, sorted.
func failures(output, test, mutant string, sections []suite.Section) []string {
	var list []string
	for _, section := range sections {
		for _, sentence := range section.Sentences {
			name := strings.ReplaceAll(test+"/"+mutant+"/"+section.Name+"/"+sentence.Name, " ", "_")
			if strings.Contains(output, "--- FAIL: "+name+" (") {
				list = append(list, section.Name+": "+sentence.Name)
			}
		}
	}
	slices.Sort(list)
	return list
}
