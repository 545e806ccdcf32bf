package main

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/tx-sqlc/sales"
	"github.com/outmill/outmill/inbox"
)

// withSQLC is for plain database/sql too: its transaction is a *sql.Tx.
func withSQLC(db *example.SQL) library {
	queries := sales.New(db.DB)
	return library{
		name: "sqlc",
		transact: inbox.Begin(
			func(ctx context.Context) (*sql.Tx, error) { return db.DB.BeginTx(ctx, nil) },
			func(ctx context.Context, tx *sql.Tx) context.Context {
				return context.WithValue(db.Store.WithTx(ctx, tx), txKey{}, queries.WithTx(tx))
			}),
		sell: func(ctx context.Context, item string) error {
			queries := ctx.Value(txKey{}).(*sales.Queries)
			return queries.InsertSale(ctx, item)
		},
	}
}
