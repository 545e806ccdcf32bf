// Command tx-bun publishes in a transaction of bun (github.com/uptrace/bun). A
// subscriber gets the committed messages and no others.
//
//	go run ./tx-bun
//	go run ./tx-bun -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-bun -database mysql://user:password@localhost:3306
package main

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/outmill/outmill/_examples/internal/example"
)

func main() { example.Main(example.OnSQL, run) }

// Sale is a model of bun, in the table sales.
type Sale struct {
	Item string `bun:",pk"`
}

type shop struct {
	*example.SQL
	bun *bun.DB
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	s := &shop{db, open(db)}
	if _, err := s.bun.NewCreateTable().Model((*Sale)(nil)).Exec(ctx); err != nil {
		return err
	}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// open makes bun use the pool of the application.
func open(db *example.SQL) *bun.DB {
	switch db.Dialect {
	case example.PostgreSQL:
		return bun.NewDB(db.DB, pgdialect.New())
	case example.MySQL:
		return bun.NewDB(db.DB, mysqldialect.New())
	}
	return bun.NewDB(db.DB, sqlitedialect.New())
}

// sell passes bun's Tx to WithTx. The methods of bun's Tx need question marks in place of $1, so the
// outbox uses the *sql.Tx that it embeds.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return s.bun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&Sale{Item: item}).Exec(ctx); err != nil {
			return err
		}
		ctx = s.Store.WithTx(ctx, tx)
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
		if err := s.Publisher.WithContext(ctx).Publish(example.Topic, msg); err != nil {
			return err
		}
		return ending
	})
}
