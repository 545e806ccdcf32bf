// Command quickstart runs the main job of an outbox from end to end. An order service places
// orders in transactions, and some of them roll back. A router handler handles the committed
// orders, and a forwarder moves them to Kafka. A watermill-kafka subscriber reads them back from
// Kafka and checks them.
//
// By default everything runs in this process: SQLite in a temporary file, and franz-go's kfake as
// the Kafka broker. A store that the flags name keeps its orders in the table (or collection)
// quickstart_orders.
//
//	go run ./quickstart
//	go run ./quickstart -orders 100000
//	go run ./quickstart -kafka localhost:9092
//	go run ./quickstart -store postgres://postgres@localhost:5432/postgres
//	go run ./quickstart -store 'mongodb://localhost:27017/orders?replicaSet=rs0'
//	go run ./quickstart -store 'sqlserver://sa:password@localhost:1433?database=orders&encrypt=disable'
//	OUTMILL_SOURCES_QUICKSTART_POSTGRES_CONNECTION_STRING=postgres://… go run ./quickstart
//
// The last line counts messages. The exit code is 1 if a message was lost, or if a rolled back
// order was delivered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

type options struct {
	orders  int
	kafka   string
	store   string
	db      string
	verbose bool
}

var errInterrupted = errors.New("interrupted")

func main() {
	var opts options
	flag.IntVar(&opts.orders, "orders", 2000, "how many orders to place, rolled back ones included")
	flag.StringVar(&opts.kafka, "kafka", "", "host:port of a Kafka broker (default: one in this process)")
	flag.StringVar(&opts.store, "store", "",
		"URL of the store to use, as connect.Open takes it: postgres://…, mongodb://…, mysql://…, sqlserver://…, sqlite:… (default: the setting "+
			"OUTMILL_SOURCES_QUICKSTART_<PROVIDER>_CONNECTION_STRING, else a temporary SQLite file)")
	flag.StringVar(&opts.db, "db", "", "SQLite file to use, kept afterwards (default: a temporary one)")
	flag.BoolVar(&opts.verbose, "v", false, "log what the libraries log")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sum, err := run(ctx, opts)
	stop()
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

	db, described, cleanUp, err := openDatabase(ctx, opts, logger)
	if err != nil {
		return summary{}, err
	}
	defer cleanUp()
	defer func() { _ = db.Close() }()
	if err := db.Ensure(ctx); err != nil {
		return summary{}, err
	}

	kafka, err := startKafka(ctx, opts.kafka)
	if err != nil {
		return summary{}, err
	}
	defer kafka.close()

	names := newNames()
	fmt.Printf("%s\nKafka:  %s, topic %s\n", described, kafka.brokers[0], kafka.topic)
	sum, err := placeAndFollow(ctx, names, db, kafka, opts.orders, logger)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	// After a loss the database stays, so that the user can look into it.
	if err != nil || sum.ok() {
		err = errors.Join(err, names.leave(ctx, db), kafka.deleteTopic(ctx))
	}
	return sum, err
}

func placeAndFollow(ctx context.Context, names names, db database, kafka *broker, orders int, logger watermill.LoggerAdapter) (summary,
	error) {
	audit := newAudit(orders)
	pipes, err := startPipes(ctx, names, db, kafka, audit, logger)
	if err != nil {
		return summary{}, err
	}
	stopProgress := audit.printProgress(2 * time.Second)
	err = placeOrders(ctx, names, db, orders, audit, logger)
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
