//go:build !unix

package kafkaengine

import (
	"context"
	"errors"
	"syscall"
)

func ownSession() *syscall.SysProcAttr { return nil }

func lockFile(context.Context, string) (func(), error) {
	return nil, errors.New("starting a broker is supported on Unix only")
}
