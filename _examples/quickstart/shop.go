package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
)

// cartSize returns the number of orders that one transaction places. A run with many orders has
// larger carts, because a disk commits only some hundred transactions a second.
func cartSize(orders int) int { return max(20, orders/2000) }

type order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var errCardDeclined = errors.New("card declined")

// placeOrders is the application. In one transaction it writes its own table, and publishes
// through an ordinary Watermill publisher.
func placeOrders(ctx context.Context, names names, db database, n int, audit *audit, logger watermill.LoggerAdapter) error {
	pub, err := publisher.New(db, publisher.Config{RequireTx: true}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	if err := db.createOrders(ctx); err != nil {
		return err
	}
	size := cartSize(n)
	for first, cart := 0, 0; first < n; first, cart = first+size, cart+1 {
		orders := fillCart(first, min(first+size, n), cart)
		declined := cart%7 == 3
		err := db.placeOrders(ctx, names.run, orders, func(ctx context.Context) error {
			if err := publishOrders(ctx, pub, names.orders, orders); err != nil {
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

func publishOrders(ctx context.Context, pub *publisher.Publisher, topic string, orders []order) error {
	messages := make([]*message.Message, 0, len(orders))
	for _, o := range orders {
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessage(watermill.NewUUID(), payload)
		outmill.SetKey(msg, o.Customer)
		messages = append(messages, msg)
	}
	return pub.WithContext(ctx).Publish(topic, messages...)
}
