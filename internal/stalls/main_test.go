package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("runs the tests of a package of the checkout once for each seed, and says how they ended", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		err := run(t.Context(), []string{"-C", "../..", "-seed", "7", "-runs", "2", "-share", "500", "./internal/testenv/journal"}, &out, &out)
		require.NoError(t, err, out.String())
		require.Contains(t, out.String(), "seed 7: passed\n")
		require.Contains(t, out.String(), "seed 8: passed\n")
	})

	t.Run("names the seeds with which tests fail", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		err := run(t.Context(), []string{"-C", "../..", "-seed", "9", "./internal/testenv/journal", "--", "-timeout", "no time"}, &out, &out)
		require.ErrorContains(t, err, "the seeds 9 of 1")
		require.Contains(t, out.String(), "seed 9: FAILED\n")
	})

	t.Run("refuses a call without packages, and numbers that make no sense", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{}, {"-runs", "0", "./x"}, {"-share", "1001", "./x"}, {"-share", "0", "./x"}} {
			require.ErrorContains(t, run(t.Context(), args, t.Output(), t.Output()), "name packages")
		}
		require.Error(t, run(t.Context(), []string{"-unknown"}, t.Output(), t.Output()))
	})
}

func TestTestArgs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"test", "-vet=off", "-count=1", "-timeout=30m", "-overlay=o", "-race", "-run", "X", "./a", "./b"},
		testArgs([]string{"./a", "./b", "--", "-race", "-run", "X"}, "o"))
}
