package next_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

// A process of many tenants asks each of them again and again.
func TestDriver_AnswersStand(t *testing.T) {
	t.Parallel()
	h := suiteOn(t, 0).New(t, storetest.Options{}).(harness)
	s := h.store
	rests := func(ctx context.Context, store opened) bool {
		_, self := store.IdleWith()
		resting, err := store.AreIdle(ctx, []any{self})
		require.NoError(t, err)
		return resting[0]
	}
	commands := func() int {
		ctx, sent := h.Tap(t.Context())
		require.True(t, rests(ctx, s))
		return len(sent())
	}
	require.Equal(t, 1, commands(), "a question is one command")
	require.Equal(t, 1, commands(), "without a change stream no answer stands")

	s.Wake(t.Context(), func(string) {})
	require.Eventually(t, func() bool { return commands() == 0 }, time.Minute, time.Millisecond, "an answer stands while the stream is open")
	other := h.Reopen().(opened)
	require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	delayed := &outmill.Record{Topic: "orders", Delay: time.Hour}
	require.NoError(t, other.Append(t.Context(), delayed))
	require.Eventually(t, func() bool { return !rests(t.Context(), s) }, time.Minute, time.Millisecond, "what is not due yet ends it, too")
	_, err := other.Delete(t.Context(), delayed.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rests(t.Context(), s) && commands() == 0 }, time.Minute, time.Millisecond)
}
