// Command tx-sql publishes in a *sql.Tx of database/sql, savepoints included. A
// subscriber gets the committed messages and no others.
//
//	go run ./tx-sql
//	go run ./tx-sql -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-sql -database mysql://user:password@localhost:3306
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
	sales := example.Savepoints[*sql.Tx]{Transaction: s.inTx, Savepoint: inSavepoint, Sell: s.sell}
	return db.Show(ctx, out, sales.Story())
}

// sell writes the sale and publishes it, both in tx. The caller commits or rolls back.
func (s *shop) sell(ctx context.Context, tx *sql.Tx, item string) error {
	if _, err := tx.ExecContext(ctx, s.InsertSale(), item); err != nil {
		return err
	}
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.Publisher.WithContext(s.Store.WithTx(ctx, tx)).Publish(example.Topic, msg)
}

func (s *shop) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return example.InTx(ctx, s.DB, fn)
}

// inSavepoint runs a part of the transaction that may fail while the rest commits.
// database/sql has no method for savepoints.
func inSavepoint(ctx context.Context, tx *sql.Tx, fn func(tx *sql.Tx) error) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT part`); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_, undo := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT part`)
		return errors.Join(err, undo)
	}
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT part`)
	return err
}
