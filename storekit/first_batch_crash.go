//go:build outmill_crash

package storekit

import (
	"os"
	"strconv"
)

// firstBatch is smaller in programs that tests kill between two steps, so that a requeue of a few
// records takes several transactions. See internal/crash.
var firstBatch = func() int {
	if n, err := strconv.Atoi(os.Getenv("OUTMILL_CRASH_BATCH")); err == nil && n > 0 {
		return n
	}
	return atOnce
}()
