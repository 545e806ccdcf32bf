package worker

import (
	"fmt"
	"os"

	"github.com/outmill/outmill/storekit"
)

// Name is the name by which a worker registers: the configured one, or that of
// this process, host:pid.
func Name(configured string) string {
	if configured != "" {
		return configured
	}
	host, err := os.Hostname()
	if name := fmt.Sprintf("%s:%d", host, os.Getpid()); err == nil && storekit.CheckWorker(name) == nil {
		return name
	}
	return fmt.Sprintf("pid:%d", os.Getpid())
}
