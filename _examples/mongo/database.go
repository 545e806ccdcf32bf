package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
)

// onMongoDB creates a database and runs the program in it.
var onMongoDB = example.Engine[*mongo.Database]{
	Sample:  "mongodb://localhost:27017/?replicaSet=rs0 (a replica set)",
	Default: "mongodb://localhost:27017/?replicaSet=rs0",
	Open: func(_ context.Context, url string) (*mongo.Database, func(context.Context) error, error) {
		client, err := mongo.Connect(options.Client().ApplyURI(url))
		if err != nil {
			return nil, nil, fmt.Errorf("connect to %s: %w", outmill.RedactURL(url), err)
		}
		db := client.Database(example.UniqueName())
		return db, func(ctx context.Context) error { return errors.Join(db.Drop(ctx), client.Disconnect(ctx)) }, nil
	},
}
