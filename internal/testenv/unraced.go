package testenv

import (
	"regexp"
	"testing"
)

// unraced matches the names of the tests that .ci/run has run without the race detector.
var unraced = regexp.MustCompile(`^Test\w*_(Million|Large)(/|$)`)

// Unraced is Long for a test in which the race detector has nothing to find, because the work is that of a server, or of one
// goroutine, or needs too much memory. It skips the test under the race detector. .ci/run has a step without it, which finds the
// packages by their calls of Unraced, and the tests by their names.
func Unraced(tb testing.TB, leftOut string) {
	tb.Helper()
	Long(tb, leftOut)
	if !unraced.MatchString(tb.Name()) {
		tb.Fatalf("the name %q does not match %s, so .ci/run never has the test run", tb.Name(), unraced)
	}
	if UnderRace {
		tb.Skip("skipped: " + leftOut + ": the race detector has nothing to find there; .ci/run runs this without it")
	}
}
