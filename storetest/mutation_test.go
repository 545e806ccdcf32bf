package storetest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inMutation tells the child process that it is to run the mutants' tests,
// which fail.
const inMutation = "OUTMILL_STORETEST_MUTANTS"

// Test_every_broken_store_is_noticed runs one sentence against a store that
// breaks it, for each mutant, in a child process: their failures are what
// makes this test pass.
func Test_every_broken_store_is_noticed(t *testing.T) {
	if os.Getenv(inMutation) != "" {
		runMutants(t)
		return
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=4",
		"-rapid.nofailfile", "-rapid.shrinktime=1ms", "-rapid.checks=300")
	child.Env = append(os.Environ(), inMutation+"=1")
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	require.Error(t, child.Run(), "the child passed")
	require.NotContains(t, strings.ToLower(output.String()), "panic", "a mutant failed for a reason of its own")
	for _, m := range mutants() {
		t.Run("a store that "+m.name, func(t *testing.T) {
			t.Parallel()
			verdict := "--- FAIL: Test_every_broken_store_is_noticed/" + strings.ReplaceAll(m.name+"/"+m.noticed, " ", "_") + " ("
			require.True(t, strings.Contains(output.String(), verdict), "not noticed by %q", m.noticed)
		})
	}
}

func runMutants(t *testing.T) {
	// The store that gives none is to be found out soon.
	hintWithin = time.Second
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			section{sentences: []sentence{findSentence(t, m.section, m.noticed)}}.run(t, sqliteHarness(m.change), modes()[0].options)
		})
	}
}

func findSentence(t *testing.T, inSection, name string) sentence {
	t.Helper()
	for _, section := range sections() {
		for _, sentence := range section.sentences {
			if section.name == inSection && sentence.name == name {
				return sentence
			}
		}
	}
	t.Fatalf("no sentence %q in %q", name, inSection)
	return sentence{}
}
