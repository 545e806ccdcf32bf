package testenv

import (
	"os"
	"testing"
)

// EnvAll names the environment variable that has all tests run: also long random
// walks, chaos, plans at a million records, and each suite in all its variants.
// Unless it is set, go test ./... takes minutes, and says what it has left out
// with -v only: make test prints that at its end.
const EnvAll = "OUTMILL_TEST_ALL"

// All tells whether all tests are to run, the long ones too.
func All() bool { return os.Getenv(EnvAll) != "" && !testing.Short() }

// Long skips the test unless all tests are to run. The reason says what is left
// out, such as "two minutes of chaos".
func Long(tb testing.TB, leftOut string) {
	tb.Helper()
	if !All() {
		tb.Skip(Shorter(leftOut))
	}
}

// Steps is how many steps a random walk takes: few, unless all tests are to run.
func Steps(few, many int) int {
	if All() {
		return many
	}
	return few
}

// Shorter is what a test logs that is not left out as a whole, but is shorter
// unless all tests are to run.
func Shorter(leftOut string) string {
	return "skipped: " + leftOut + "; " + EnvAll + "=1 has it run"
}
