//go:build unix

package proc

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// OwnSession keeps signals of the terminal from a child, because the process that started
// the child ends it.
func OwnSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// KillSession kills the processes of a session of its own that are in its first group.
func KillSession(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// LockFile waits for an exclusive lock between processes. The lock ends with
// the process that holds it.
func LockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if err := Wait(ctx, 100*time.Millisecond); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}
