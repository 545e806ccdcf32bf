package main

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/tx-sqlc/sales"
	"github.com/outmill/outmill/_examples/tx-sqlc/sales/mysql"
	"github.com/outmill/outmill/inbox"
)

// queries are those that sqlc has generated for either database.
type queries interface {
	InsertSale(ctx context.Context, item string) error
}

// withSQLC is for plain database/sql too: its transaction is a *sql.Tx.
func withSQLC(db *example.SQL) library {
	in := func(tx *sql.Tx) queries { return sales.New(db.DB).WithTx(tx) }
	if db.Dialect == example.MySQL {
		in = func(tx *sql.Tx) queries { return mysql.New(db.DB).WithTx(tx) }
	}
	return library{
		name: "sqlc",
		transact: inbox.Begin(
			func(ctx context.Context) (*sql.Tx, error) { return db.DB.BeginTx(ctx, nil) },
			func(ctx context.Context, tx *sql.Tx) context.Context {
				return context.WithValue(db.Store.WithTx(ctx, tx), txKey{}, in(tx))
			}),
		sell: func(ctx context.Context, item string) error {
			return ctx.Value(txKey{}).(queries).InsertSale(ctx, item)
		},
	}
}
