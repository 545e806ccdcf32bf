package proc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/proc"
)

func TestProc(t *testing.T) {
	t.Parallel()

	t.Run("a pid is read only from a file that holds one", func(t *testing.T) {
		t.Parallel()
		pid, err := proc.ReadPid(file(t, "4711\n"))
		require.NoError(t, err)
		require.Equal(t, 4711, pid)
		for _, text := range []string{"", "word", "1", "0", "-4711", "47 11"} {
			_, err := proc.ReadPid(file(t, text))
			require.ErrorContains(t, err, "does not hold a process id", "%q", text)
		}
		_, err = proc.ReadPid(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})

	t.Run("of a log the end is shown", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "short\n", proc.LastLines(file(t, "short\n")))
		require.Equal(t, strings.Repeat("b", 600), proc.LastLines(file(t, "a"+strings.Repeat("b", 600))))
		none := filepath.Join(t.TempDir(), "none")
		require.Contains(t, proc.LastLines(none), none)
	})

	t.Run("of output the last line is shown", func(t *testing.T) {
		t.Parallel()
		for out, want := range map[string]string{"": "", "one": "one", "one\ntwo\n\n": "two"} {
			require.Equal(t, want, proc.LastLine([]byte(out)))
		}
	})
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}
