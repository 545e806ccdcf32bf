// Command tx-wrapped publishes in a transaction that a type of the application's
// own wraps, and that sees the statements of the outbox. A subscriber gets what was
// committed and nothing else.
//
//	go run ./tx-wrapped
//	go run ./tx-wrapped -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-wrapped -database mysql://user:password@localhost:3306
package main

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/_examples/internal/example"
)

func main() { example.Main(example.OnSQL, run) }

type shop struct{ *example.SQL }

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	if _, err := db.DB.ExecContext(ctx, example.CreateSales); err != nil {
		return err
	}
	s := &shop{db}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// sell passes on the wrapper, whose methods the outbox then uses.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return example.InTx(ctx, s.DB, func(tx *sql.Tx) error {
		counted := &countingTx{tx: tx}
		if _, err := counted.ExecContext(ctx, s.InsertSale(), item); err != nil {
			return err
		}
		before := counted.statements
		ctx := s.Store.WithTx(ctx, counted)
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
		if err := s.Publisher.WithContext(ctx).Publish(example.Topic, msg); err != nil {
			return err
		}
		if counted.statements == before {
			return errors.New("the outbox went past the wrapper")
		}
		return ending
	})
}
