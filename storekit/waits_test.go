package storekit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestWaits(t *testing.T) {
	t.Parallel()
	t.Run("grow to the longest, and begin again after Reset", func(t *testing.T) {
		t.Parallel()
		waits := storekit.NewWaits(10*time.Millisecond, 100*time.Millisecond)
		for range 2 {
			for _, around := range []time.Duration{10, 20, 40, 80, 100, 100} {
				around *= time.Millisecond
				next := waits.Next()
				require.GreaterOrEqual(t, next, around/2)
				require.LessOrEqual(t, next, min(around*3/2, 100*time.Millisecond))
			}
			waits.Reset()
		}
	})
	t.Run("are never over a longest that is under the first", func(t *testing.T) {
		t.Parallel()
		require.LessOrEqual(t, storekit.NewWaits(time.Hour, time.Millisecond).Next(), time.Millisecond)
	})
	t.Run("end with the context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, storekit.NewWaits(time.Hour, time.Hour).Wait(ctx), context.Canceled)
	})
}
