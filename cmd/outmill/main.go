// Command outmill is the operator's tool for outboxes.
//
//	outmill schema [-ensure | -from VERSION] URL    print a store's schema for the engine's shell, or create it
//
// The URL's scheme selects the kind of store, for example sqlite:orders.db. The exit
// code is 0 for success, 1 for failure and 2 for wrong usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
