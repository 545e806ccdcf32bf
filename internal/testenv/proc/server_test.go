//go:build unix

package proc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// server is a shell that writes a file when it has started.
func server(t *testing.T, script string) proc.Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "server")
	require.NoError(t, os.Mkdir(dir, 0o755))
	return proc.Server{Dir: dir, Line: []string{"sh", "-c", script}, EndSignal: "KILL"}
}

func isUp(s proc.Server) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(filepath.Join(s.Dir, "up"))
		return err
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestServer(t *testing.T) {
	t.Parallel()

	t.Run("the error for a server that ends before it is ready has the end of its log", func(t *testing.T) {
		t.Parallel()
		s := server(t, "echo no such flag; exit 1")
		run, err := s.Supervise(within(t))
		require.NoError(t, err)
		defer run.End()
		err = run.AwaitReady(within(t), isUp(s))
		require.ErrorIs(t, err, proc.ErrEnded)
		require.ErrorContains(t, err, "no such flag")
	})

	t.Run("the error for a server that is not ready in time has the reason", func(t *testing.T) {
		t.Parallel()
		s := server(t, "exec sleep 600")
		run, err := s.Supervise(within(t))
		require.NoError(t, err)
		defer run.End()
		ctx, cancel := context.WithCancel(within(t))
		err = run.AwaitReady(ctx, func(context.Context) error {
			cancel()
			return errors.New("it is busy")
		})
		require.ErrorContains(t, err, "it is busy")
		require.NotErrorIs(t, err, proc.ErrEnded)
	})

	t.Run("a server is stopped and left with its files and started again", func(t *testing.T) {
		t.Parallel()
		s := server(t, "echo once >>starts; touch up; exec sleep 600")
		for range 2 {
			run, err := s.Supervise(within(t))
			require.NoError(t, err)
			require.NoError(t, run.AwaitReady(within(t), isUp(s)))
			require.NoError(t, run.Stop(within(t), syscall.SIGTERM))
			require.NoError(t, run.Stop(within(t), syscall.SIGTERM))
			require.NoError(t, run.Leave())
			require.NoError(t, os.Remove(filepath.Join(s.Dir, "up")))
		}
		starts, err := os.ReadFile(filepath.Join(s.Dir, "starts"))
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(starts), "once"))
	})

	t.Run("a server that ends is tidied up after and its directory is removed", func(t *testing.T) {
		t.Parallel()
		s := server(t, "touch up; exec sleep 600")
		s.TidyUp = "cat pid >../pid"
		run, err := s.Supervise(within(t))
		require.NoError(t, err)
		require.NoError(t, run.AwaitReady(within(t), isUp(s)))
		pid, err := proc.ReadPid(s.PidFile())
		require.NoError(t, err)
		run.End()
		require.NoDirExists(t, s.Dir)
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		tidied, err := proc.ReadPid(filepath.Join(filepath.Dir(s.Dir), "pid"))
		require.NoError(t, err)
		require.Equal(t, pid, tidied)
	})

	t.Run("none has nothing to stop", func(t *testing.T) {
		t.Parallel()
		var none *proc.Supervised
		require.NoError(t, none.Stop(t.Context(), syscall.SIGTERM))
		require.NoError(t, none.Leave())
		none.End()
	})
}
