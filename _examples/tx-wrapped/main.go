// Command tx-wrapped publishes in transactions that come wrapped: by sqlc's
// DBTX, by a type of the application's own, by bun, sqlx, gorm and ent. A
// subscriber gets what was committed and nothing else.
//
//	go run ./tx-wrapped -database postgres://user:password@localhost:5432/postgres
package main

import (
	"context"
	"database/sql"
	"io"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

func main() { example.Main(run) }

func run(ctx context.Context, db example.Database, out io.Writer) error {
	sales, err := sql.Open("pgx", db.URL)
	if err != nil {
		return err
	}
	defer func() { _ = sales.Close() }()
	// Subscribers and forwarders use a pool of the store's own; what is appended
	// in a transaction needs no connection but the transaction's.
	store, err := postgres.Open(ctx, db.URL, postgres.Config{Schema: db.Schema}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the sale is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()

	orm, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: sales}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	shop := &shop{
		db:    sales,
		bun:   bun.NewDB(sales, pgdialect.New()),
		sqlx:  sqlx.NewDb(sales, "pgx"),
		gorm:  orm,
		ent:   entsql.OpenDB(dialect.Postgres, sales),
		store: store,
		pub:   pub,
	}
	if err := shop.open(ctx); err != nil {
		return err
	}
	if err := shop.sellAll(ctx, out); err != nil {
		return err
	}
	sold, err := shop.sold(ctx)
	if err != nil {
		return err
	}
	told, err := example.Listen(ctx, sub, topic)
	if err != nil {
		return err
	}
	return example.Compare(out, []string{"book", "chair", "clock", "lamp", "plant", "vase"},
		example.Column{Name: "in the table", Seen: sold}, example.Column{Name: "delivered", Seen: told})
}

func (s *shop) open(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE sales (item text PRIMARY KEY)`)
	return err
}

func (s *shop) sold(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT item FROM sales`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var items []string
	for rows.Next() {
		var item string
		if err := rows.Scan(&item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, rows.Err()
}
