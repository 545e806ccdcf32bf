//go:build !unix

package postgresengine

import "syscall"

func childAttributes(*account) *syscall.SysProcAttr { return nil }
