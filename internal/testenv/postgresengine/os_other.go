//go:build !unix

package postgresengine

import (
	"context"
	"errors"
	"syscall"
)

func childAttributes(*account) *syscall.SysProcAttr { return nil }

func lockFile(context.Context, string) (func(), error) {
	return nil, errors.New("starting a server is supported on Unix only")
}
