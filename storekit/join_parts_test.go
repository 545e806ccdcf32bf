package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestJoinParts(t *testing.T) {
	t.Parallel()

	t.Run("a join with many steps counts in more parts than one with few", func(t *testing.T) {
		t.Parallel()
		for expected, parts := range map[int]int{1: 1, 2: 1, 7: 1, 8: 2, 63: 15, 64: 16, 100_000: 16} {
			require.Equal(t, parts, storekit.CountParts(&roles.Join{ExpectedSteps: expected}), expected)
		}
		require.Equal(t, 16, storekit.CountParts(&roles.Join{Unsealed: true}), "nobody knows how many there will be")
	})
}
