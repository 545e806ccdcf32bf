package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// childArgs has, in a child process, the tool's arguments, one on each line.
const childArgs = "OUTMILL_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if args := os.Getenv(childArgs); args != "" {
		os.Exit(runUntilKilled(strings.Split(args, "\n")))
	}
	goleak.VerifyTestMain(m,
		// sarama's metrics have one for the whole process, which never ends.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func runUntilKilled(args []string) (exitCode int) {
	go func() {
		// The parent has ended.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := run(context.Background(), args, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
