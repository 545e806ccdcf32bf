// Command tx-pgx writes business data and publishes messages in one pgx
// transaction, savepoints included. A subscriber gets the committed messages and
// no others.
//
//	go run ./tx-pgx -database postgres://user:password@localhost:5432/postgres
package main

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

func main() { example.Main(example.OnPostgres, run) }

type shop struct {
	pool  *pgxpool.Pool
	store *postgres.Store
	pub   *publisher.Publisher
}

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
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE sales (item text PRIMARY KEY)`); err != nil {
		return err
	}
	s := &shop{pool, store, pub}
	sales := example.Savepoints[pgx.Tx]{Transaction: s.inTx, Savepoint: inSavepoint, Sell: s.sell}
	return sales.Story().Show(ctx, out, store, s.sold)
}

// sell writes the sale and publishes it, both in tx, which may be a transaction or a
// savepoint. The caller commits or rolls back.
func (s *shop) sell(ctx context.Context, tx pgx.Tx, item string) error {
	if _, err := tx.Exec(ctx, `INSERT INTO sales (item) VALUES ($1)`, item); err != nil {
		return err
	}
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.pub.WithContext(s.store.WithTx(ctx, tx)).Publish(example.Topic, msg)
}

func (s *shop) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, fn)
}

// inSavepoint begins a transaction within tx, which pgx makes a savepoint.
func inSavepoint(ctx context.Context, tx pgx.Tx, fn func(savepoint pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, tx, fn)
}

func (s *shop) sold(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT item FROM sales`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
