//go:build outmill_crash

package crash_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
)

// stopped stops the first process at the step, lets the leases of its messages end, starts another
// one, and lets the first one go on once the other has one of its messages. alone: the database has
// one writer, so the other one may wait for the first.
func stopped(at, topic string, alone bool) interruption {
	return func(t *testing.T, store outmill.Store, address string, env ...string) {
		t.Helper()
		first, ended := started(t, address, append(env, crash.EnvStop+"="+at)...)
		soon := func(what string, condition func(found []*outmill.Record) bool) {
			require.Eventually(t, func() bool {
				found, err := store.List(context.WithoutCancel(t.Context()), outmill.ListQuery{Content: true, Topic: topic, Limit: 100})
				return err == nil && condition(found)
			}, patience, 10*time.Millisecond, what)
		}
		soon("a lease ends", func(found []*outmill.Record) bool {
			for _, r := range found {
				if r.Status == outmill.StatusLeased && r.LeaseUntil.Before(time.Now()) {
					return true
				}
			}
			return false
		})
		other := make(chan error, 1)
		go func() { other <- child(t, address, env...) }()
		if !alone {
			soon("another process has claimed it", func(found []*outmill.Record) bool {
				for _, r := range found {
					if r.Claims < 2 {
						return false
					}
				}
				return true
			})
		}
		require.NoError(t, first.Process.Signal(syscall.SIGCONT))
		require.NoError(t, <-other)
		require.NoError(t, <-ended)
	}
}

// started starts a process, and returns when it has stopped itself.
func started(t *testing.T, address string, env ...string) (cmd *exec.Cmd, ended <-chan error) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), envStore+"="+address), env...)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	stops, result := make(chan struct{}), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if strings.Contains(lines.Text(), crash.Stopped) {
				close(stops)
			} else {
				t.Log(lines.Text())
			}
		}
		result <- cmd.Wait()
	}()
	select {
	case <-stops:
	case err := <-result:
		require.FailNow(t, "the process has not stopped at the step", "%v", err)
	}
	// It stops some time after it has said so. A signal to go on would be lost before that.
	var status syscall.WaitStatus
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		_, err = syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	require.NoError(t, err)
	require.True(t, status.Stopped(), "it has ended: %v", status)
	return cmd, result
}
