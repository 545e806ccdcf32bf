// Command mongo is a shop on MongoDB: its orders and its outbox are written in
// one transaction, of which some are aborted; a router handler works on what
// was committed, and a forwarder moves it to Kafka, a broker in this process.
//
//	go run ./mongo -database 'mongodb://localhost:27017/?replicaSet=rs0'
//
// The last line is that of the quickstart. The exit code is 1 if an order was
// lost, or one was seen that was rolled back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/shop"
	outmillmongo "github.com/outmill/outmill/mongo"
)

const dropWithin = 15 * time.Second

func main() {
	url := flag.String("database", "mongodb://localhost:27017/?replicaSet=rs0", "URL of a MongoDB that is a replica set; the example leaves nothing in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mongo:", err)
		os.Exit(1)
	}
}

// run works in a database of its own, which it drops afterwards, also when ctx
// has ended.
func run(ctx context.Context, url string, out io.Writer) (err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", outmill.RedactURL(url), err)
	}
	db := client.Database("outmill_example_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", ""))
	defer func() { err = errors.Join(err, leave(context.WithoutCancel(ctx), db)) }()

	// The outbox lives in the database of the application and shares its
	// client.
	store, err := outmillmongo.New(client, outmillmongo.Config{Database: db.Name()}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	return sellAndFollow(ctx, db, store, out)
}

func leave(ctx context.Context, db *mongo.Database) error {
	ctx, cancel := context.WithTimeout(ctx, dropWithin)
	defer cancel()
	return errors.Join(db.Drop(ctx), db.Client().Disconnect(ctx))
}

func sellAndFollow(ctx context.Context, db *mongo.Database, store *outmillmongo.Store, out io.Writer) error {
	count := shop.NewCount()
	pipes, err := shop.StartPipes(ctx, store, count)
	if err != nil {
		return err
	}
	defer pipes.Close()
	app, err := newApplication(ctx, db, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "MongoDB: database %s\nKafka:   %s, topic %s\n", db.Name(), pipes.Brokers[0], shop.Topic)
	if err := shop.PlaceAll(ctx, count, app.place); err != nil {
		return err
	}
	if err := count.Wait(ctx); err != nil {
		return err
	}
	pipes.Close()
	kept, err := app.kept(ctx)
	if err != nil {
		return err
	}
	return count.Report(out, kept)
}
