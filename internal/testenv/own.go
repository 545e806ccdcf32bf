package testenv

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	// StartWithin limits the download and the start of an engine.
	StartWithin = 5 * time.Minute
	// Patience limits each call of a helper to an engine.
	Patience = time.Minute
)

var (
	number atomic.Int64
	binary = uuid.NewString()[:8]
)

// Suffix returns a suffix for names that no other test has, in this run or another. The
// separator stands between its two parts.
func Suffix(separator string) string {
	return binary + separator + strconv.FormatInt(number.Add(1), 10)
}

// DatabaseName returns a name for a database that no other test uses.
func DatabaseName() string { return "outmill_" + Suffix("_") }
