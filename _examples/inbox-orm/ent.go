package main

import (
	"context"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/tx-ent/ent"
	"github.com/outmill/outmill/inbox"
)

// withEnt needs a client that was generated with the feature sql/execquery: see tx-ent.
func withEnt(db *example.SQL) library {
	name := map[string]string{example.SQLite: dialect.SQLite, example.PostgreSQL: dialect.Postgres, example.MySQL: dialect.MySQL}[db.Dialect]
	client := ent.NewClient(ent.Driver(entsql.OpenDB(name, db.DB)))
	return library{
		name: "ent",
		transact: inbox.Begin(client.Tx, func(ctx context.Context, tx *ent.Tx) context.Context {
			return ent.NewTxContext(db.Store.WithTx(ctx, tx), tx)
		}),
		sell: func(ctx context.Context, item string) error {
			return ent.TxFromContext(ctx).Sale.Create().SetItem(item).Exec(ctx)
		},
	}
}
