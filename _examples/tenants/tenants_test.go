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

func TestTenants(t *testing.T) {
	t.Run("each order is handled once, and as its own tenant's", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, `The catalogue names [ada bob]
Too early: outmill/tenants: no tenant has the key "cyd"
The catalogue names [ada bob cyd]
tenants=3 committed=258 rolled_back=42 handled=258 misplaced=0 lost=0 duplicated=0
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
