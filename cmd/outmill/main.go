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
	ctx, stop := untilSignal(context.Background())
	code := run(ctx, os.Args[1:], terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// untilSignal returns a context that ends with the first SIGINT, whose cause is errInterrupted, or
// SIGTERM. A second signal ends the tool at once.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var cause error
		select {
		case got := <-signals:
			if got == os.Interrupt {
				cause = errInterrupted
			}
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel(cause)
	}()
	return ctx, func() { cancel(nil) }
}
