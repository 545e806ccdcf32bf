//go:build unix

package postgresengine

import (
	"syscall"

	"github.com/outmill/outmill/internal/testenv/proc"
)

func childAttributes(a *account) *syscall.SysProcAttr {
	attributes := proc.OwnSession()
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attributes
}
