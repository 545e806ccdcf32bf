// Command saga takes orders through payment and shipping. An order is a saga: its state
// and the messages that it sends commit together, and a timeout cancels it if nobody pays. If
// a paid order cannot be shipped, the payment is refunded, which is the compensation.
//
// Of ten customers, one has a card that is declined, one never pays, one pays after the order
// was cancelled, and one orders an item that is not in stock. Every message is published
// twice, and handled once. The program needs only SQLite, in a temporary file:
//
//	go run ./saga
//	go run ./saga -orders 1000
//
// The last line has the counts. The exit code is 1 if an order has no end or two ends, or if
// a paid order was neither shipped nor refunded.
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
	"syscall"
	"time"

	"github.com/outmill/outmill/sqlite"
)

type options struct {
	orders int
	// payWithin is how long an order waits for its payment.
	payWithin time.Duration
}

func main() {
	opts := options{payWithin: 2 * time.Second}
	flag.IntVar(&opts.orders, "orders", 200, "how many orders to place")
	flag.DurationVar(&opts.payWithin, "pay-within", opts.payWithin, "how long an order waits for its payment")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sum, err := run(ctx, os.Stdout, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "saga:", err)
		os.Exit(1)
	}
	fmt.Println(sum)
	if !sum.ok() {
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, opts options) (sum summary, err error) {
	if opts.orders < 1 || opts.payWithin <= 0 {
		return summary{}, errors.New("-orders wants 1 or more, and -pay-within more than 0")
	}
	dir, err := os.MkdirTemp("", "outmill-saga-")
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Commits need not wait for the disk, because this program kills nothing.
	store, err := sqlite.Open(ctx, "file:"+filepath.Join(dir, "orders.db")+"?_pragma=synchronous(NORMAL)", sqlite.Config{}, nil)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ensure(ctx); err != nil {
		return summary{}, err
	}
	if _, err := store.DB().ExecContext(ctx, createTables); err != nil {
		return summary{}, err
	}
	shop, err := startShop(ctx, store, opts)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	if err := shop.place(ctx, opts.orders); err != nil {
		return summary{}, err
	}
	fmt.Fprintf(out, "placed %d orders, each of which waits %s for its payment\n", opts.orders, opts.payWithin)
	if err := shop.wait(ctx); err != nil {
		return summary{}, err
	}
	return count(ctx, store.DB())
}
