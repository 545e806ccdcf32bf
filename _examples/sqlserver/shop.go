package main

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/_examples/internal/shop"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlserver"
)

const (
	createOrders = `CREATE TABLE dbo.Orders (Id INT NOT NULL PRIMARY KEY, Customer NVARCHAR(100) NOT NULL, Cents INT NOT NULL)`
	insertOrder  = `INSERT INTO dbo.Orders (Id, Customer, Cents) VALUES (@p1, @p2, @p3)`
	countOrders  = `SELECT COUNT(*) FROM dbo.Orders`
)

// application is the shop on SQL Server.
type application struct {
	db    *sql.DB
	store *sqlserver.Store
	pub   *publisher.Publisher
}

func newApplication(ctx context.Context, store *sqlserver.Store) (*application, error) {
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the order is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return nil, err
	}
	_, err = store.DB().ExecContext(ctx, createOrders)
	return &application{store.DB(), store, pub}, err
}

// place writes the orders and publishes them in one transaction.
func (s *application) place(ctx context.Context, cart []shop.Order, declined bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, o := range cart {
		if _, err := tx.ExecContext(ctx, insertOrder, o.ID, o.Customer, o.Cents); err != nil {
			return err
		}
	}
	if err := s.publish(s.store.WithTx(ctx, tx), cart); err != nil {
		return err
	}
	if declined {
		return shop.ErrCardDeclined
	}
	return tx.Commit()
}

// publish takes the transaction from the context.
func (s *application) publish(ctx context.Context, cart []shop.Order) error {
	messages, err := shop.Messages(cart)
	if err != nil {
		return err
	}
	return s.pub.WithContext(ctx).Publish(shop.Topic, messages...)
}

// kept is how many orders are in the database.
func (s *application) kept(ctx context.Context) (int, error) {
	var n int
	err := s.db.QueryRowContext(ctx, countOrders).Scan(&n)
	return n, err
}
