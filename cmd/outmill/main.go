// Command outmill is the operator's tool for outboxes: it creates schemas, shows how many
// records wait and which failed, requeues and deletes records, and forwards them to a broker.
//
//	outmill schema ensure sqlite:orders.db
//	outmill status sqlite:orders.db
//	outmill list sqlite:orders.db --status dead
//	outmill requeue sqlite:orders.db --topic orders
//	outmill forward sqlite:orders.db --to kafka://localhost:9092
//
// The URL's scheme selects the kind of store. The exit code is 0 for success, 1 for failure
// and 2 for wrong usage. docs/cli.md describes every command.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal a second one ends the tool at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}
