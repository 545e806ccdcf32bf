package main

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/shop"
	"github.com/outmill/outmill/publisher"
)

// application is the shop on MongoDB.
type application struct {
	client *mongo.Client
	orders *mongo.Collection
	pub    *publisher.Publisher
}

func newApplication(ctx context.Context, db *mongo.Database, store outmill.Writer) (*application, error) {
	// With RequireTx, a transaction that was forgotten is an error, and not a
	// message that stays when the order is rolled back.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return nil, err
	}
	return &application{db.Client(), db.Collection("orders"), pub}, db.CreateCollection(ctx, "orders")
}

// place writes the orders and publishes them in one transaction. The driver
// calls the function again where the transaction failed for a reason that
// passes: what it did before is gone, the messages too.
func (s *application) place(ctx context.Context, cart []shop.Order, declined bool) error {
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
			return nil, shop.ErrCardDeclined
		}
		return nil, nil
	})
	return err
}

// publish takes the transaction from the context, as the driver does.
func (s *application) publish(ctx context.Context, cart []shop.Order) error {
	messages, err := shop.Messages(cart)
	if err != nil {
		return err
	}
	return s.pub.WithContext(ctx).Publish(shop.Topic, messages...)
}

// kept is how many orders are in the database.
func (s *application) kept(ctx context.Context) (int, error) {
	n, err := s.orders.CountDocuments(ctx, bson.D{})
	return int(n), err
}
