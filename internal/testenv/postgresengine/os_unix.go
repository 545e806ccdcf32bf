//go:build unix

package postgresengine

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// childAttributes keeps signals of the terminal from the child: who started it
// ends it.
func childAttributes(a *account) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attributes
}

// lockFile waits for an exclusive lock between processes. The lock ends with
// the process that holds it.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
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
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}
