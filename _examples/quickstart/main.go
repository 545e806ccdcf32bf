// Command quickstart runs the main job of an outbox from end to end: an order
// service places orders in transactions, some of which roll back; a router
// handler works on the committed ones, and a forwarder moves them to Kafka,
// where a watermill-kafka subscriber reads them back and checks them.
//
// By default everything runs in this process: SQLite in a temporary file and a
// Kafka broker made of franz-go's kfake.
//
//	go run ./quickstart
//	go run ./quickstart -orders 100000
//	go run ./quickstart -kafka localhost:9092
//
// The last line counts messages; the exit code is 1 if one was lost, or if a
// rolled back order was seen anywhere.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/sqlite"
)

type options struct {
	orders  int
	kafka   string
	db      string
	verbose bool
}

func main() {
	var opts options
	flag.IntVar(&opts.orders, "orders", 2000, "how many orders to place, rolled back ones included")
	flag.StringVar(&opts.kafka, "kafka", "", "host:port of a Kafka broker (default: one in this process)")
	flag.StringVar(&opts.db, "db", "", "SQLite file to use, kept afterwards (default: a temporary one)")
	flag.BoolVar(&opts.verbose, "v", false, "log what the libraries log")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sum, err := run(ctx, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
	fmt.Println(sum)
	if !sum.ok() {
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) (summary, error) {
	if opts.orders < 1 {
		return summary{}, errors.New("-orders wants 1 or more")
	}
	logger := newLogger(opts.verbose)

	dbFile, cleanUp, err := databaseFile(opts.db)
	if err != nil {
		return summary{}, err
	}
	defer cleanUp()
	store, err := sqlite.Open(ctx, dbFile, sqlite.Config{}, logger)
	if err != nil {
		return summary{}, err
	}
	defer store.Close()
	if err := store.Ensure(ctx); err != nil {
		return summary{}, err
	}

	kafka, err := startKafka(ctx, opts.kafka)
	if err != nil {
		return summary{}, err
	}
	defer kafka.close()

	audit := newAudit(opts.orders)
	pipes, err := startPipes(ctx, store, kafka, audit, logger)
	if err != nil {
		return summary{}, err
	}
	fmt.Printf("SQLite: %s\nKafka:  %s, topic %s\n", dbFile, kafka.brokers[0], kafka.topic)

	stopProgress := audit.printProgress(2 * time.Second)
	err = placeOrders(ctx, store, opts.orders, audit, logger)
	if err == nil {
		err = audit.wait(ctx, 30*time.Second)
	}
	stopProgress()
	return audit.summary(), errors.Join(err, pipes.close())
}

func newLogger(verbose bool) watermill.LoggerAdapter {
	if !verbose {
		return watermill.NopLogger{}
	}
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func databaseFile(path string) (string, func(), error) {
	if path != "" {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "outmill-quickstart-")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "orders.db"), func() { _ = os.RemoveAll(dir) }, nil
}
