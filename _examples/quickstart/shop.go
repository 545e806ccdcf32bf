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
	"github.com/outmill/outmill/sqlite"
)

// cartSize is how many orders are placed in one transaction: all of them, or
// none. Many orders come in larger carts, since a disk commits only some
// hundred transactions a second.
func cartSize(orders int) int { return max(20, orders/2000) }

type order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var errCardDeclined = errors.New("card declined")

// placeOrders is the application: it writes its own table and publishes, in
// one transaction, through an ordinary Watermill publisher.
func placeOrders(ctx context.Context, store *sqlite.Store, n int, audit *audit, logger watermill.LoggerAdapter) error {
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, logger)
	if err != nil {
		return err
	}
	defer pub.Close()
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER)`); err != nil {
		return err
	}
	size := cartSize(n)
	for first, cart := 0, 0; first < n; first, cart = first+size, cart+1 {
		orders := fillCart(first, min(first+size, n), cart)
		declined := cart%7 == 3
		err := store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := placeCart(ctx, tx, pub, orders); err != nil {
				return err
			}
			if declined {
				return errCardDeclined
			}
			return nil
		})
		switch {
		case declined && errors.Is(err, errCardDeclined):
			audit.rolledBack(orders)
		case err != nil:
			return err
		default:
			audit.committed(orders)
		}
	}
	audit.allPlaced()
	return nil
}

func fillCart(from, to, cart int) []order {
	orders := make([]order, 0, to-from)
	for id := from; id < to; id++ {
		orders = append(orders, order{ID: id, Customer: fmt.Sprintf("customer-%d", cart%50), Cents: 100 + id%9900})
	}
	return orders
}

func placeCart(ctx context.Context, tx *sql.Tx, pub *publisher.Publisher, orders []order) error {
	messages := make([]*message.Message, 0, len(orders))
	for _, o := range orders {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)`, o.ID, o.Customer, o.Cents); err != nil {
			return err
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessage(watermill.NewUUID(), payload)
		outmill.SetKey(msg, o.Customer)
		messages = append(messages, msg)
	}
	return pub.WithContext(ctx).Publish(ordersTopic, messages...)
}
