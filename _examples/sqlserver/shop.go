package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlserver"
)

const (
	topic = "orders"
	// carts of cartSize orders are placed, each in a transaction.
	carts    = 30
	cartSize = 10

	createOrders = `CREATE TABLE dbo.Orders (Id INT NOT NULL PRIMARY KEY, Customer NVARCHAR(100) NOT NULL, Cents INT NOT NULL)`
	insertOrder  = `INSERT INTO dbo.Orders (Id, Customer, Cents) VALUES (@p1, @p2, @p3)`
	countOrders  = `SELECT COUNT(*) FROM dbo.Orders`
)

type order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var errCardDeclined = errors.New("card declined")

// shop is the application.
type shop struct {
	db    *sql.DB
	store *sqlserver.Store
	pub   *publisher.Publisher
}

func newShop(ctx context.Context, store *sqlserver.Store) (*shop, error) {
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the order is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return nil, err
	}
	_, err = store.DB().ExecContext(ctx, createOrders)
	return &shop{store.DB(), store, pub}, err
}

// place writes the orders and publishes them in one transaction.
func (s *shop) place(ctx context.Context, cart []order, declined bool) error {
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
		return errCardDeclined
	}
	return tx.Commit()
}

// publish takes the transaction from the context.
func (s *shop) publish(ctx context.Context, cart []order) error {
	var messages []*message.Message
	for _, o := range cart {
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessage(watermill.NewUUID(), payload)
		outmill.SetKey(msg, o.Customer)
		messages = append(messages, msg)
	}
	return s.pub.WithContext(ctx).Publish(topic, messages...)
}

func (s *shop) placeAll(ctx context.Context, count *count) error {
	for i := range carts {
		cart, declined := fill(i), i%7 == 3
		err := s.place(ctx, cart, declined)
		switch {
		case declined && errors.Is(err, errCardDeclined):
			count.rolledBack(cart)
		case err != nil:
			return err
		default:
			count.committed(cart)
		}
	}
	count.allPlaced()
	return nil
}

func fill(number int) []order {
	cart := make([]order, cartSize)
	for i := range cart {
		id := number*cartSize + i
		cart[i] = order{ID: id, Customer: fmt.Sprintf("customer-%d", number%5), Cents: 100 + id}
	}
	return cart
}

// kept is how many orders are in the database.
func (s *shop) kept(ctx context.Context) (int, error) {
	var n int
	err := s.db.QueryRowContext(ctx, countOrders).Scan(&n)
	return n, err
}
