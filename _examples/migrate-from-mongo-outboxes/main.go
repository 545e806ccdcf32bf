// Command migrate-from-mongo-outboxes drains the collection of another outbox
// on MongoDB into Outmill's: that of outbox-event-bus (TypeScript), or that of
// Koan (.NET). Each document is appended and deleted in one transaction, oldest
// first. README.md in this directory describes the steps.
//
//	go run ./migrate-from-mongo-outboxes -store 'mongodb://…/shop?replicaSet=rs0' -layout outbox-event-bus
//	go run ./migrate-from-mongo-outboxes -store 'mongodb://…/shop?replicaSet=rs0' -layout koan -database Koan
//
// The last line counts documents. The exit code is 0 if no document is left to
// move.
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
		fmt.Fprintln(os.Stderr, "migrate-from-mongo-outboxes:", err)
		os.Exit(1)
	}
}
