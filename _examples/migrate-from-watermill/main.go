// Command migrate-from-watermill moves what the tables of watermill-sql still
// hold into an Outmill outbox in PostgreSQL, while old and new writers and
// readers run side by side. README.md in this directory tells the steps.
//
//	go run ./migrate-from-watermill -source postgres://… -topic forwarder_topic -enveloped
//	go run ./migrate-from-watermill -source postgres://… -topic orders -topic payments -consumer-group billing -once
//
// It reads with watermill-sql's own subscriber, so it goes on where the
// consumer group stands and shares the work with readers of the group that
// still run. The last line counts messages. The exit code is 1 where the tool
// stopped for another reason than being told to, or that all was moved.
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
