package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestRun(t *testing.T) {
	t.Run("each order has one end, and is paid for if it is shipped", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		var out bytes.Buffer
		sum, err := run(t.Context(), &out, options{orders: 30, payWithin: 2 * time.Second})
		require.NoError(t, err)
		require.True(t, sum.ok(), sum)
		require.Equal(t, 30, sum.shipped+sum.cancelled)
		// A machine that is too slow to take a payment in time cancels more.
		require.GreaterOrEqual(t, sum.cancelled, 12, sum)
		require.GreaterOrEqual(t, sum.refunded, 6, sum)
		requireNothingLeft(t)
	})
	t.Run("an interruption ends it and leaves nothing behind", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		_, err := run(ctx, interrupter(interrupt), options{orders: 3, payWithin: time.Hour})
		require.ErrorIs(t, err, context.Canceled)
		requireNothingLeft(t)
	})
	t.Run("options that make no sense are refused", func(t *testing.T) {
		for _, opts := range []options{{orders: 0, payWithin: 1}, {orders: 1}} {
			_, err := run(t.Context(), &bytes.Buffer{}, opts)
			require.ErrorContains(t, err, "wants")
		}
	})
}

func TestSummary(t *testing.T) {
	t.Parallel()
	t.Run("has the form that scripts read", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "orders=6 shipped=5 cancelled=4 refunded=3 lost=2 wrong=1", summary{6, 5, 4, 3, 2, 1}.String())
	})
	t.Run("is not in order where an order is lost or wrong", func(t *testing.T) {
		t.Parallel()
		require.False(t, summary{lost: 1}.ok())
		require.False(t, summary{wrong: 1}.ok())
	})
}

// interrupter ends the program when it has begun to print.
type interrupter func()

func (i interrupter) Write(p []byte) (int, error) {
	i()
	return len(p), nil
}

func requireNothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}
