package main

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/outmill/outmill/_examples/internal/example"
)

func withBun(db *example.SQL) library {
	pool := bun.NewDB(db.DB, sqlitedialect.New())
	switch db.Dialect {
	case example.PostgreSQL:
		pool = bun.NewDB(db.DB, pgdialect.New())
	case example.MySQL:
		pool = bun.NewDB(db.DB, mysqldialect.New())
	}
	return library{
		name: "bun",
		transact: func(ctx context.Context, fn func(ctx context.Context) error) error {
			return pool.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return fn(context.WithValue(db.Store.WithTx(ctx, tx), txKey{}, tx))
			})
		},
		sell: func(ctx context.Context, item string) error {
			tx := ctx.Value(txKey{}).(bun.Tx)
			_, err := tx.NewInsert().Model(&Sale{Item: item}).Exec(ctx)
			return err
		},
	}
}
