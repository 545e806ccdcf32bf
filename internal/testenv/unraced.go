package testenv

import (
	"os"
	"regexp"
	"testing"
)

// unraced matches the names of the tests that .ci/run has run without the race detector. A variant is a suite over a store that is
// configured in another way; the suite runs over it with the sizes that it has under the race detector: see Brief.
var unraced = regexp.MustCompile(`^Test\w*_(Million|Many|Large|Variant)(/|$)`)

// Unraced is Long for a test in which the race detector has nothing to find, because the work is that of a server, or of one
// goroutine, or needs too much memory, or because another test runs the same code under it.
func Unraced(tb testing.TB, leftOut string) {
	tb.Helper()
	Long(tb, leftOut)
	WithoutRace(tb, leftOut)
}

// WithoutRace skips the test under the race detector if all tests run. .ci/run then runs it without: it finds the packages by their
// calls of Unraced and WithoutRace, and the tests by their names.
func WithoutRace(tb testing.TB, leftOut string) {
	tb.Helper()
	if !unraced.MatchString(tb.Name()) {
		tb.Fatalf("the name %q does not match %s, so .ci/run never has the test run", tb.Name(), unraced)
	}
	if UnderRace && All() {
		tb.Skip("skipped: " + leftOut + ": the race detector has nothing to find there; .ci/run runs this without it")
	}
}

// Brief reports whether all tests run, but suites with the sizes that they have under the race detector: with EnvAll=brief.
func Brief() bool { return UnderRace || os.Getenv(EnvAll) == "brief" }
