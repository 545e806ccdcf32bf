// Command tx-pgx writes business data and publishes messages in one pgx
// transaction, savepoints included. A subscriber gets what was committed and
// nothing else.
//
//	go run ./tx-pgx -database postgres://user:password@localhost:5432/postgres
package main

import (
	"context"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

func main() { example.Main(run) }

func run(ctx context.Context, db example.Database, out io.Writer) error {
	pool, err := pgxpool.New(ctx, db.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	// The outbox lives in the database of the application and shares its pool.
	store, err := postgres.New(pool, postgres.Config{Schema: db.Schema}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the sale is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()

	shop := &shop{pool: pool, store: store, pub: pub}
	if err := shop.open(ctx); err != nil {
		return err
	}
	if err := shop.sellAll(ctx, out); err != nil {
		return err
	}
	sold, err := shop.sold(ctx)
	if err != nil {
		return err
	}
	told, err := example.Listen(ctx, sub, topic)
	if err != nil {
		return err
	}
	return example.Compare(out, []string{"book", "lamp", "bulb", "vase"},
		example.Column{Name: "in the table", Seen: sold}, example.Column{Name: "delivered", Seen: told})
}

func (s *shop) open(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `CREATE TABLE sales (item text PRIMARY KEY)`)
	return err
}

func (s *shop) sold(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT item FROM sales`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
