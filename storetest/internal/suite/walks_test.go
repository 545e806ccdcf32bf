package suite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// failingWalk returns what the child says. It runs in the directory.
func failingWalk(t *testing.T, dir string) string {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMakeWalks_Child$", "-test.v", "-rapid.nofailfile")
	child.Env, child.Dir = append(os.Environ(), childEnv+"=1"), dir
	out, err := child.CombinedOutput()
	require.Error(t, err)
	return string(out)
}

func TestMakeWalks(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]int{
		"the first failure of the walks is logged": 0, "what failed long ago and means nothing now is no failure": 2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			saved := filepath.Join(dir, "testdata", "rapid", "TestMakeWalks_Child")
			require.NoError(t, os.MkdirAll(saved, 0o755))
			for i := range files {
				// Too few bits for a walk.
				file := filepath.Join(saved, fmt.Sprintf("TestMakeWalks_Child-%d.fail", i))
				require.NoError(t, os.WriteFile(file, []byte("v0.4.8#1\n0x1"), 0o600))
			}
			out := failingWalk(t, dir)
			require.Equal(t, files, strings.Count(out, "is no longer valid"), "rapid has read the files")
			require.Equal(t, 1, strings.Count(out, " fails after "), "one walk is logged")
			require.Contains(t, out, "walk 1 fails after step:")
			require.Contains(t, out, "subtract 0 from the seed")
			require.Contains(t, out, "what the two say")
			require.Contains(t, out, `expected: "model"`)
		})
	}
}
