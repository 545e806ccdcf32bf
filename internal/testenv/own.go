package testenv

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	// StartWithin bounds the download and the start of an engine.
	StartWithin = 5 * time.Minute
	// Patience bounds each call to an engine that a helper makes.
	Patience = time.Minute
)

var (
	number atomic.Int64
	binary = uuid.NewString()[:8]
)

// Suffix returns characters that no other test puts after a name, in this run or
// another, with the separator between their two parts.
func Suffix(separator string) string {
	return binary + separator + strconv.FormatInt(number.Add(1), 10)
}

// DatabaseName returns a name for a database that no other test uses.
func DatabaseName() string { return "outmill_" + Suffix("_") }
