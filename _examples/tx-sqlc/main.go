// Command tx-sqlc publishes in the transaction of queries that sqlc (github.com/sqlc-dev/sqlc) has
// generated. A subscriber gets the committed messages and no others.
//
//	go run ./tx-sqlc
//	go run ./tx-sqlc -database postgres://user:password@localhost:5432/postgres
package main

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/tx-sqlc/sales"
)

func main() { example.Main(example.OnSQL, run) }

//go:embed sales/schema.sql
var schema string

type shop struct {
	*example.SQL
	queries *sales.Queries
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	if _, err := db.DB.ExecContext(ctx, schema); err != nil {
		return err
	}
	s := &shop{db, sales.New(db.DB)}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// sell gives the queries and the outbox the same *sql.Tx.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return example.InTx(ctx, s.DB, func(tx *sql.Tx) error {
		if err := s.queries.WithTx(tx).InsertSale(ctx, item); err != nil {
			return err
		}
		ctx := s.Store.WithTx(ctx, tx)
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
		if err := s.Publisher.WithContext(ctx).Publish(example.Topic, msg); err != nil {
			return err
		}
		return ending
	})
}
