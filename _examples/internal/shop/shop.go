// Package shop is the part of a shop that does not depend on the database: its orders,
// the pipes through which their messages go, and the count of both.
package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

const (
	// Topic is that of the orders' messages.
	Topic = "orders"
	// carts of cartSize orders are placed, each in a transaction.
	carts    = 30
	cartSize = 10
)

// Order is an order of the shop.
type Order struct {
	ID       int    `bson:"_id" json:"id"`
	Customer string `bson:"customer" json:"customer"`
	Cents    int    `bson:"cents" json:"cents"`
}

// ErrCardDeclined is why a transaction is rolled back.
var ErrCardDeclined = errors.New("card declined")

// Messages are the messages of a cart.
func Messages(cart []Order) ([]*message.Message, error) {
	var messages []*message.Message
	for _, o := range cart {
		payload, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		msg := message.NewMessage(watermill.NewUUID(), payload)
		outmill.SetKey(msg, o.Customer)
		messages = append(messages, msg)
	}
	return messages, nil
}

// PlaceAll has place write the orders of each cart and publish their messages in one
// transaction, which returns ErrCardDeclined, rolled back, where the card is declined.
func PlaceAll(ctx context.Context, count *Count, place func(ctx context.Context, cart []Order, declined bool) error) error {
	for i := range carts {
		cart, declined := fill(i), i%7 == 3
		err := place(ctx, cart, declined)
		switch {
		case declined && errors.Is(err, ErrCardDeclined):
			count.RolledBack(cart)
		case err != nil:
			return err
		default:
			count.Committed(cart)
		}
	}
	count.AllPlaced()
	return nil
}

func fill(number int) []Order {
	cart := make([]Order, cartSize)
	for i := range cart {
		id := number*cartSize + i
		cart[i] = Order{ID: id, Customer: fmt.Sprintf("customer-%d", number%5), Cents: 100 + id}
	}
	return cart
}
