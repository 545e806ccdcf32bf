package storekit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// late is a context whose deadline has passed, and whose timer has not run yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }

func TestMarkAway(t *testing.T) {
	t.Parallel()
	never := func(error) bool { return false }

	t.Run("an error after the deadline is that of the context, also before its timer has run", func(t *testing.T) {
		t.Parallel()
		for _, ctx := range []context.Context{late{t.Context()}, ended(t)} {
			require.Error(t, storekit.Ended(ctx))
			require.NotErrorIs(t, storekit.MarkAway(ctx, io.EOF, never), storekit.ErrStoreAway)
		}
	})

	t.Run("a connection that breaks before the deadline is a store that is away", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), ctx} {
			require.NoError(t, storekit.Ended(ctx))
			require.ErrorIs(t, storekit.MarkAway(ctx, io.EOF, never), storekit.ErrStoreAway)
		}
	})
}

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
