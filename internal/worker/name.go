package worker

import (
	"fmt"
	"os"

	"github.com/outmill/outmill/storekit"
)

// Name returns the name with which a worker registers: the configured one, or host:pid of
// this process.
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
