// Command sqlserver publishes in a *sql.Tx of Microsoft's driver. A subscriber gets the committed
// messages and no others, also if the server itself has ended a transaction (XACT_ABORT).
//
//	go run ./sqlserver -database 'sqlserver://sa:password@localhost:1433?encrypt=disable'
package main

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlserver"
)

func main() { example.Main(onSQLServer, run) }

type shop struct {
	db    *sql.DB
	store *sqlserver.Store
	pub   *publisher.Publisher
}

func run(ctx context.Context, db database, out io.Writer) error {
	// The outbox lives in the database of the application and shares its pool.
	store, err := sqlserver.New(db.DB, sqlserver.Config{}, nil)
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
	if _, err := db.ExecContext(ctx, `CREATE TABLE sales (item NVARCHAR(100) NOT NULL PRIMARY KEY)`); err != nil {
		return err
	}
	s := &shop{db.DB, store, pub}
	story := example.TwoSales(s.sell)
	story.Steps = append(story.Steps, example.Step{
		Happens: "book, a second time: the server has rolled back, primary key", Do: s.sellBookAgain,
	})
	return story.Show(ctx, out, store, func(ctx context.Context) ([]string, error) { return example.Sold(ctx, db.DB) })
}

// sell writes the sale and publishes it, both in tx.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return example.InTx(ctx, s.db, func(tx *sql.Tx) error {
		if err := s.write(ctx, tx, item); err != nil {
			return err
		}
		if err := s.publish(ctx, tx, item); err != nil {
			return err
		}
		return ending
	})
}

// sellBookAgain publishes before it writes, and the write fails. With XACT_ABORT the server then
// rolls back the whole transaction, with the message, so nothing can be committed. Without
// XACT_ABORT an error of Publish goes back to a savepoint, and the transaction goes on.
func (s *shop) sellBookAgain(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `SET XACT_ABORT ON`); err != nil {
		return err
	}
	if err := s.publish(ctx, tx, "book"); err != nil {
		return err
	}
	if s.write(ctx, tx, "book") == nil {
		return errors.New("want an error about the primary key, got none")
	}
	if tx.Commit() == nil {
		return errors.New("want an error of the commit, because the server has rolled back, got none")
	}
	return ctx.Err()
}

func (s *shop) write(ctx context.Context, tx *sql.Tx, item string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO sales (item) VALUES (@p1)`, item)
	return err
}

func (s *shop) publish(ctx context.Context, tx *sql.Tx, item string) error {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.pub.WithContext(s.store.WithTx(ctx, tx)).Publish(example.Topic, msg)
}
