// Command sqlserver is a shop on SQL Server: its orders and its outbox are
// written in one transaction, of which some are rolled back; a router handler
// works on what was committed, and a forwarder moves it to Kafka, a broker in
// this process.
//
//	go run ./sqlserver -database 'sqlserver://sa:password@localhost:1433?encrypt=disable'
//
// The last line is that of the quickstart. The exit code is 1 if an order was
// lost, or one was seen that was rolled back.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/shop"
	"github.com/outmill/outmill/sqlserver"
)

const dropWithin = 15 * time.Second

func main() {
	url := flag.String("database", "sqlserver://sa@localhost:1433", "URL of a SQL Server, for a user who may create databases; the example leaves nothing in it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sqlserver:", err)
		os.Exit(1)
	}
}

// run works in a database of its own, which it drops afterwards, also when ctx
// has ended.
func run(ctx context.Context, url string, out io.Writer) (err error) {
	server, err := openPool(url, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	database := "outmill_example_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return fmt.Errorf("%s: create a database: %w", outmill.RedactURL(url), err)
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx), server, database)) }()
	db, err := openPool(url, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	// The outbox lives in the database of the application and shares its pool.
	store, err := sqlserver.New(db, sqlserver.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	return sellAndFollow(ctx, database, store, out)
}

func drop(ctx context.Context, server *sql.DB, database string) error {
	ctx, cancel := context.WithTimeout(ctx, dropWithin)
	defer cancel()
	_, err := server.ExecContext(ctx, "DROP DATABASE "+database)
	return err
}

func sellAndFollow(ctx context.Context, database string, store *sqlserver.Store, out io.Writer) error {
	count := shop.NewCount()
	pipes, err := shop.StartPipes(ctx, store, count)
	if err != nil {
		return err
	}
	defer pipes.Close()
	app, err := newApplication(ctx, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "SQL Server: database %s\nKafka:      %s, topic %s\n", database, pipes.Brokers[0], shop.Topic)
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
