package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// TestMain finds goroutines that a test has left running. A test that needs another process
// starts this binary again with the step at which it is killed.
func TestMain(m *testing.M) {
	if step := os.Getenv(stepVariable); step != "" {
		os.Exit(moveUntil(step))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := postgrestest.DropTemplates(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}
