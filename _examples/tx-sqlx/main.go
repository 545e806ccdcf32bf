// Command tx-sqlx publishes in a transaction of sqlx (github.com/jmoiron/sqlx). A
// subscriber gets the committed messages and no others.
//
//	go run ./tx-sqlx
//	go run ./tx-sqlx -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-sqlx -database mysql://user:password@localhost:3306
package main

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"

	"github.com/outmill/outmill/_examples/internal/example"
)

func main() { example.Main(example.OnSQL, run) }

type sale struct {
	Item string `db:"item"`
}

type shop struct {
	*example.SQL
	sqlx *sqlx.DB
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	s := &shop{db, open(db)}
	if _, err := s.sqlx.ExecContext(ctx, example.CreateSales); err != nil {
		return err
	}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// open makes sqlx use the pool of the application. sqlx needs the name of the driver to
// choose between question marks and $1.
func open(db *example.SQL) *sqlx.DB {
	return sqlx.NewDb(db.DB, map[string]string{example.SQLite: "sqlite3", example.PostgreSQL: "pgx", example.MySQL: "mysql"}[db.Dialect])
}

// sell passes the *sqlx.Tx to WithTx.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	tx, err := s.sqlx.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NamedExecContext(ctx, `INSERT INTO sales (item) VALUES (:item)`, sale{item}); err != nil {
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
