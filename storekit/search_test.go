package storekit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestCeilTime(t *testing.T) {
	t.Parallel()

	t.Run("compares as the time did with what a database keeps", func(t *testing.T) {
		t.Parallel()
		kept := time.Date(2026, 1, 2, 3, 4, 5, 6_000, time.UTC)
		require.Equal(t, kept, storekit.CeilTime(kept, time.Microsecond))
		require.Equal(t, kept.Add(time.Microsecond), storekit.CeilTime(kept.Add(1), time.Microsecond))
		require.True(t, storekit.CeilTime(time.Time{}, time.Microsecond).IsZero())
	})
}
