// Command migrate-from-watermill moves the unread messages of watermill-sql's tables
// into an Outmill outbox in PostgreSQL, while old and new writers and readers run
// side by side. README.md in this directory has the steps.
//
//	go run ./migrate-from-watermill -source postgres://… -topic forwarder_topic -enveloped
//	go run ./migrate-from-watermill -source postgres://… -topic orders -topic payments -consumer-group billing -once
//
// It reads with watermill-sql's own subscriber, so it continues at the offset of the
// consumer group, and shares the work with readers of the group that still run. The
// last line has the counts of messages. The exit code is 0 if the tool was told to
// stop or has moved all messages, and 1 if it stopped for another reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "migrate-from-watermill:", err)
		os.Exit(1)
	}
}
