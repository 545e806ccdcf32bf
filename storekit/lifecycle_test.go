package storekit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	errOutdated := errors.New("outdated")
	t.Run("Ready checks until it has succeeded once, and again after CheckAgain", func(t *testing.T) {
		t.Parallel()
		var life storekit.Lifecycle
		checks := 0
		check := func(err error) func(context.Context) error {
			return func(context.Context) error { checks++; return err }
		}
		require.ErrorIs(t, life.Ready(t.Context(), check(errOutdated)), errOutdated)
		require.NoError(t, life.Ready(t.Context(), check(nil)))
		require.NoError(t, life.Ready(t.Context(), check(errOutdated)))
		require.Equal(t, 2, checks)
		life.CheckAgain()
		require.ErrorIs(t, life.Ready(t.Context(), check(errOutdated)), errOutdated)
	})
	t.Run("all errors of a closed store say that it is closed", func(t *testing.T) {
		t.Parallel()
		var life storekit.Lifecycle
		require.NoError(t, life.Usable(t.Context()))
		require.Equal(t, errOutdated, life.Explain(errOutdated))
		require.True(t, life.End())
		require.False(t, life.End(), "it was closed before")
		require.ErrorIs(t, life.Usable(t.Context()), outmill.ErrClosed)
		require.ErrorIs(t, life.Explain(errOutdated), outmill.ErrClosed)
		require.ErrorIs(t, life.Explain(errOutdated), errOutdated)
		require.NoError(t, life.Explain(nil))
	})
	t.Run("a context that has ended is an error", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, new(storekit.Lifecycle).Usable(ctx), context.Canceled)
	})
}
