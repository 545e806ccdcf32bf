package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestJoin(t *testing.T) {
	t.Run("each customer is transformed when all its extracts are there", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, `Ada: to be transformed when customers, orders and products are extracted
Bob: to be transformed when customers, orders and products are extracted
Ada: transformed, 3 of 3 steps
Bob: not transformed, 2 of 3 steps, 1 failed: steps failed
dead: extract.products of Bob: the source has no catalogue
OK: each customer was dealt with once, when its extracts had ended
`, out.String())
		requireNothingLeft(t)
	})

	t.Run("an interruption ends it and leaves nothing behind", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		require.ErrorIs(t, run(ctx, interrupter(interrupt)), context.Canceled)
		requireNothingLeft(t)
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
