//go:build unix

package proc_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/proc"
)

func TestLock(t *testing.T) {
	t.Parallel()

	t.Run("a lock is held by one at a time and waited for as long as the context lasts", func(t *testing.T) {
		t.Parallel()
		name := filepath.Join(t.TempDir(), "lock")
		unlock, err := proc.LockFile(within(t), name)
		require.NoError(t, err)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = proc.LockFile(gone, name)
		require.ErrorIs(t, err, context.Canceled)
		unlock()
		unlock, err = proc.LockFile(within(t), name)
		require.NoError(t, err)
		unlock()
	})
}
