package storekit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestDecide_StoreAway(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("publish: %w", errors.Join(errors.New("eof"), storekit.ErrStoreAway))

	t.Run("a store that is away counts no attempt, also after the last one", func(t *testing.T) {
		t.Parallel()
		for _, attempts := range []int{0, 9, 100} {
			verdict := storekit.Decide(outmill.RetryPolicy{}, attempts, away)
			require.True(t, verdict.Snooze)
			require.False(t, verdict.Dead)
			require.GreaterOrEqual(t, verdict.Delay, time.Second)
			require.LessOrEqual(t, verdict.Delay, 10*time.Second)
		}
	})

	t.Run("what the handler says itself comes first", func(t *testing.T) {
		t.Parallel()
		require.True(t, storekit.Decide(outmill.RetryPolicy{}, 0, outmill.Permanent(away)).Dead)
		require.Equal(t, storekit.Verdict{Snooze: true, Delay: time.Minute},
			storekit.Decide(outmill.RetryPolicy{}, 0, errors.Join(away, outmill.Snooze(time.Minute))))
	})
}
