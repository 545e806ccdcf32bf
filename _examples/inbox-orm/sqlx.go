package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/inbox"
)

func withSQLX(db *example.SQL) library {
	// The name of the driver says which placeholders its statements have.
	driver := map[string]string{example.SQLite: "sqlite3", example.PostgreSQL: "pgx", example.MySQL: "mysql"}[db.Dialect]
	pool := sqlx.NewDb(db.DB, driver)
	return library{
		name: "sqlx",
		transact: inbox.Begin(
			func(ctx context.Context) (*sqlx.Tx, error) { return pool.BeginTxx(ctx, nil) },
			func(ctx context.Context, tx *sqlx.Tx) context.Context {
				return context.WithValue(db.Store.WithTx(ctx, tx), txKey{}, tx)
			}),
		sell: func(ctx context.Context, item string) error {
			tx := ctx.Value(txKey{}).(*sqlx.Tx)
			_, err := tx.NamedExecContext(ctx, `INSERT INTO sales (item) VALUES (:item)`, map[string]any{"item": item})
			return err
		},
	}
}
