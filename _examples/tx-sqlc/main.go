// Command tx-sqlc publishes in the transaction of queries that sqlc (github.com/sqlc-dev/sqlc) has
// generated. A subscriber gets the committed messages and no others.
//
//	go run ./tx-sqlc
//	go run ./tx-sqlc -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-sqlc -database mysql://user:password@localhost:3306
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
	"github.com/outmill/outmill/_examples/tx-sqlc/sales/mysql"
)

func main() { example.Main(example.OnSQL, run) }

// SQLite takes the statements and the schema of PostgreSQL.
var (
	//go:embed sales/schema.sql
	schema string
	//go:embed sales/mysql/schema.sql
	mysqlSchema string
)

// queries are those that sqlc has generated for either database.
type queries interface {
	InsertSale(ctx context.Context, item string) error
}

type shop struct {
	*example.SQL
	// in returns the queries in a transaction.
	in func(tx *sql.Tx) queries
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	s, tables := &shop{db, func(tx *sql.Tx) queries { return sales.New(db.DB).WithTx(tx) }}, schema
	if db.Dialect == example.MySQL {
		tables, s.in = mysqlSchema, func(tx *sql.Tx) queries { return mysql.New(db.DB).WithTx(tx) }
	}
	if _, err := db.DB.ExecContext(ctx, tables); err != nil {
		return err
	}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// sell gives the queries and the outbox the same *sql.Tx.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return example.InTx(ctx, s.DB, func(tx *sql.Tx) error {
		if err := s.in(tx).InsertSale(ctx, item); err != nil {
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
