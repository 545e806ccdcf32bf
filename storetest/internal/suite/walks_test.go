package suite

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// childEnv has TestMakeWalks_Child fail.
const childEnv = "OUTMILL_TEST_FAILING_WALK"

// TestMakeWalks_Child is for TestMakeWalks. It fails twice, so that rapid has a failure, and then no more: a fault that
// depends on the walks before is like that.
func TestMakeWalks_Child(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("it is for TestMakeWalks")
	}
	failures := 0
	MakeWalks(&Env{T: t}, 3, func(w *Walk) map[string]func(*rapid.T) {
		return map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(*rapid.T) {
			if failures++; failures <= 2 {
				require.Equal(w.T, "model", "store", "what the two say")
			}
		}}
	})
}

func TestMakeWalks(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMakeWalks_Child$", "-test.v", "-rapid.nofailfile")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "walk 1 fails after step:")
	require.Contains(t, string(out), "what the two say")
	require.Contains(t, string(out), `expected: "model"`)
}
