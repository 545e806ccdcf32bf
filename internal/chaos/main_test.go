//go:build unix

package chaos_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the test binary as a program with a role, if the test has started it as one.
func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}
