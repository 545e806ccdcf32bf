// Command tx-ent publishes in a transaction of a client that ent (entgo.io/ent)
// has generated. A subscriber gets the committed messages and no others.
//
//	go run ./tx-ent
//	go run ./tx-ent -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-ent -database mysql://user:password@localhost:3306
package main

import (
	"context"
	"io"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/tx-ent/ent"
)

func main() { example.Main(example.OnSQL, run) }

type shop struct {
	*example.SQL
	ent *ent.Client
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	s := &shop{db, open(db)}
	if err := s.ent.Schema.Create(ctx); err != nil {
		return err
	}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// open makes ent use the pool of the application.
func open(db *example.SQL) *ent.Client {
	name := map[string]string{example.SQLite: dialect.SQLite, example.PostgreSQL: dialect.Postgres, example.MySQL: dialect.MySQL}[db.Dialect]
	return ent.NewClient(ent.Driver(entsql.OpenDB(name, db.DB)))
}

// sell passes the *ent.Tx to WithTx. An *ent.Tx does not give access to its transaction, so
// the client is generated with the feature sql/execquery (ent/generate.go), which adds the
// methods that the outbox needs.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	tx, err := s.ent.Tx(ctx)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := tx.Sale.Create().SetItem(item).Exec(ctx); err != nil {
		return err
	}
	ctx = s.Store.WithTx(ctx, tx)
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	if err := s.Publisher.WithContext(ctx).Publish(example.Topic, msg); err != nil {
		return err
	}
	if ending != nil {
		return ending
	}
	return tx.Commit()
}
