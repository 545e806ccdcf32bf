// Command mongo publishes in a transaction of MongoDB's own driver. A change stream reports the
// commit, and a subscriber gets the committed messages and no others.
//
//	go run ./mongo -database 'mongodb://localhost:27017/?replicaSet=rs0'
package main

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/_examples/internal/example"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/publisher"
)

func main() { example.Main(onMongoDB, run) }

type shop struct {
	sales *mongo.Collection
	pub   *publisher.Publisher
}

func run(ctx context.Context, db *mongo.Database, out io.Writer) error {
	// The outbox lives in the database of the application and shares its client.
	store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	s := &shop{db.Collection("sales"), pub}
	changes, err := listen(ctx, store)
	if err != nil {
		return err
	}
	story := example.TwoSales(s.sell)
	story.Steps = append(story.Steps, changes.step())
	return story.Show(ctx, out, store, s.sold)
}

// sell writes the sale and publishes it in one transaction. Both take the transaction from the
// context that the driver passes, so the outbox needs no WithTx. After a transient error the driver
// rolls back the transaction, with the message, and calls the function again.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	session, err := s.sales.Database().Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		// The driver retries for two minutes, even if the context ends.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := s.sales.InsertOne(ctx, bson.M{"_id": item}); err != nil {
			return nil, err
		}
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
		if err := s.pub.WithContext(ctx).Publish(example.Topic, msg); err != nil {
			return nil, err
		}
		return nil, ending
	})
	return err
}

func (s *shop) sold(ctx context.Context) ([]string, error) {
	var items []string
	err := s.sales.Distinct(ctx, "_id", bson.D{}).Decode(&items)
	return items, err
}
