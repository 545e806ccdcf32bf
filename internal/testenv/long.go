package testenv

import (
	"os"
	"testing"
)

// EnvAll names the environment variable that makes all tests run: also long random walks,
// chaos, plans at a million records, and each suite in all its variants. Without it, go
// test ./... takes minutes and lists the skipped tests only with -v; make test prints that
// list at its end.
const EnvAll = "OUTMILL_TEST_ALL"

// All reports whether all tests must run, including the long ones.
func All() bool { return os.Getenv(EnvAll) != "" && !testing.Short() }

// Long skips the test unless All returns true. leftOut describes the skipped work, such as
// "two minutes of chaos".
func Long(tb testing.TB, leftOut string) {
	tb.Helper()
	if !All() {
		tb.Skip(Shorter(leftOut))
	}
}

// Steps returns the number of steps of a random walk: few, unless All returns true.
func Steps(few, many int) int {
	if All() {
		return many
	}
	return few
}

// Shorter returns the log line of a test that runs in a shorter form unless All returns
// true.
func Shorter(leftOut string) string {
	return "skipped: " + leftOut + "; " + EnvAll + "=1 runs it"
}
