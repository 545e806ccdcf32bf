// Command join extracts the data of each customer in three steps that run side by side, and
// transforms them when all three are done. It shows the fan-in of the outbox: the application
// starts a join, publishes its steps and waits for them, all in one transaction. The handlers of
// the steps know nothing of the join.
//
// It runs on SQLite in a temporary file, so it needs Go only:
//
//	go run ./join
//
// The exit code is 1 if a customer was transformed before all its extracts were done, or was not
// transformed although they were.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "outmill-join-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "etl.db"), sqlite.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	return transformAll(ctx, store, out)
}

func transformAll(ctx context.Context, store *sqlite.Store, out io.Writer) error {
	etl, err := startETL(ctx, store)
	if err != nil {
		return err
	}
	defer etl.close()
	for _, customer := range []string{"Ada", "Bob"} {
		if err := etl.begin(ctx, customer); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: to be transformed when customers, orders and products are extracted\n", customer)
	}
	var ends []string
	for range 2 {
		select {
		case end := <-etl.ends:
			ends = append(ends, end)
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
	etl.close()

	slices.Sort(ends)
	fmt.Fprintln(out, strings.Join(ends, "\n"))
	dead, err := store.List(ctx, outmill.ListQuery{Status: outmill.StatusDead, Content: true})
	if err != nil {
		return err
	}
	for _, rec := range dead {
		fmt.Fprintf(out, "dead: %s of %s: %s\n", rec.Topic, rec.Payload, rec.LastError)
	}
	want := []string{"Ada: transformed, 3 of 3 steps", "Bob: not transformed, 2 of 3 steps, 1 failed: steps failed"}
	if !slices.Equal(ends, want) {
		return fmt.Errorf("want %q, got %q", want, ends)
	}
	fmt.Fprintln(out, "OK: each customer was dealt with once, when its extracts had ended")
	return nil
}
