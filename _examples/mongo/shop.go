package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
)

const (
	topic = "orders"
	// carts of cartSize orders are placed, each in a transaction.
	carts    = 30
	cartSize = 10
)

type order struct {
	ID       int    `bson:"_id" json:"id"`
	Customer string `bson:"customer" json:"customer"`
	Cents    int    `bson:"cents" json:"cents"`
}

var errCardDeclined = errors.New("card declined")

// shop is the application.
type shop struct {
	client *mongo.Client
	orders *mongo.Collection
	pub    *publisher.Publisher
}

func newShop(ctx context.Context, db *mongo.Database, store outmill.Writer) (*shop, error) {
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the order is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return nil, err
	}
	return &shop{db.Client(), db.Collection("orders"), pub}, db.CreateCollection(ctx, "orders")
}

// place writes the orders and publishes them in one transaction. The driver
// calls the function again where the transaction failed for a reason that
// passes: what it did before is gone, the messages too.
func (s *shop) place(ctx context.Context, cart []order, declined bool) error {
	session, err := s.client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		// The driver repeats for two minutes, whatever becomes of the context.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := s.orders.InsertMany(ctx, cart); err != nil {
			return nil, err
		}
		if err := s.publish(ctx, cart); err != nil {
			return nil, err
		}
		if declined {
			return nil, errCardDeclined
		}
		return nil, nil
	})
	return err
}

// publish takes the transaction from the context, as the driver does.
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
	n, err := s.orders.CountDocuments(ctx, bson.D{})
	return int(n), err
}
