//go:build !unix

package proc

import (
	"context"
	"errors"
	"syscall"
)

// OwnSession does nothing here.
func OwnSession() *syscall.SysProcAttr { return nil }

// KillSession does nothing here.
func KillSession(int) {}

// LockFile fails here.
func LockFile(context.Context, string) (func(), error) {
	return nil, errors.New("starting a server is supported on Unix only")
}
