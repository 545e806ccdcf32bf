package testenv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

func TestLong(t *testing.T) {
	t.Run("a long test runs where all are asked for and else says what is left out", func(t *testing.T) {
		if testing.Short() {
			t.Skip("skipped: nothing long runs under -short")
		}
		for value, want := range map[string]bool{"": false, "1": true} {
			t.Setenv(testenv.EnvAll, value)
			ran := false
			t.Run("asked for: "+value, func(t *testing.T) {
				testenv.Long(t, "what this test skips to show that it can")
				ran = true
			})
			require.Equal(t, want, ran)
			require.Equal(t, want, testenv.All())
		}
		require.Equal(t, "skipped: two minutes; OUTMILL_TEST_ALL=1 runs it", testenv.Shorter("two minutes"))
	})
}
