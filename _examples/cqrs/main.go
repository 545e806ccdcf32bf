// Command cqrs runs Watermill's CQRS component over an outbox. A command handler writes an order
// and publishes an event in one transaction, with the plain EventBus.Publish(ctx, event). If the
// handler fails, both are rolled back. Two event handlers get each committed event.
//
//	go run ./cqrs -database postgres://user:password@localhost:5432/postgres
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/postgres"
)

func main() { example.Main(example.OnPostgres, run) }

func run(ctx context.Context, db example.Database, out io.Writer) error {
	store, err := postgres.Open(ctx, db.URL, postgres.Config{Schema: db.Schema}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	if _, err := store.Pool().Exec(ctx, `CREATE TABLE orders (item text PRIMARY KEY)`); err != nil {
		return err
	}

	app, err := startApp(ctx, store)
	if err != nil {
		return err
	}
	defer app.close()
	for _, item := range []string{"book", "lamp", "unicorn"} {
		if err := app.commands.Send(ctx, &PlaceOrder{Item: item}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "sent:         a book; a lamp, which fails once; a unicorn, which fails for good")
	if err := app.settle(ctx); err != nil {
		return err
	}
	app.close()

	ordered, err := orders(ctx, store)
	if err != nil {
		return err
	}
	dead, err := store.List(ctx, outmill.ListQuery{Status: outmill.StatusDead, Content: true})
	if err != nil {
		return err
	}
	for _, rec := range dead {
		fmt.Fprintf(out, "dead:         %s, %s\n", rec.Payload, rec.LastError)
	}
	if len(dead) != 1 {
		return fmt.Errorf("want 1 dead command, got %d", len(dead))
	}
	fmt.Fprintf(out, "rolled back:  %d times\n", app.shop.failures.Load())
	return example.Compare(out, []string{"book", "lamp"},
		example.Column{Name: "in the table", Seen: ordered},
		example.Column{Name: "billed", Seen: app.billed.list()},
		example.Column{Name: "mailed", Seen: app.mailed.list()})
}

func orders(ctx context.Context, store *postgres.Store) ([]string, error) {
	rows, err := store.Pool().Query(ctx, `SELECT item FROM orders`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
