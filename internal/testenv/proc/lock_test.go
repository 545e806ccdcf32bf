//go:build unix

package proc_test

import (
	"context"
	"os/exec"
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

func Test_a_command_that_its_context_ends_takes_its_children_with_it(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	// The output ends when the last process that may write to it has ended.
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 600 & echo up; wait")
	proc.EndWithChildren(cmd)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	cancel()
	_, err = out.Read(make([]byte, 1))
	require.Error(t, err)
	require.Error(t, cmd.Wait())
}
