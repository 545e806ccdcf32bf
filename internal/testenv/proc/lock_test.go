//go:build unix

package proc_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/proc"
)

func Test_a_lock_is_held_by_one_at_a_time_and_waited_for_as_long_as_the_context_lasts(t *testing.T) {
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
}
