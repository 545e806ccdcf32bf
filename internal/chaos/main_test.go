//go:build unix

package chaos_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes of the test binary a program that reads the outbox, where the
// test starts it as one.
func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}
