package postgres_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

// TestMain finds goroutines that a test has left running. A test that needs another process
// starts this binary again with the step at which it is killed.
func TestMain(m *testing.M) {
	if step := os.Getenv(stepVariable); step != "" {
		os.Exit(moveUntil(step))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m)
}
