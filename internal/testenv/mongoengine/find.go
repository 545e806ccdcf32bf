package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// EnvURL names the environment variable with the URL of a MongoDB for tests:
// mongodb://host:port/?replicaSet=name. It must be a replica set, and its user
// must be allowed to make databases and to drop them.
const EnvURL = "OUTMILL_TEST_MONGODB_URL"

// answersWithin bounds one Check.
const answersWithin = 3 * time.Second

// Find returns the URL of the server that the environment names; "" where it
// names none. It is an error if the named server cannot be used.
func Find(ctx context.Context) (string, error) {
	named := os.Getenv(EnvURL)
	if named == "" {
		return "", nil
	}
	if err := Check(ctx, named); err != nil {
		return "", fmt.Errorf("%s: %w", EnvURL, err)
	}
	return named, nil
}

// Check reports whether a server answers that tests can use: the primary of a
// replica set.
func Check(ctx context.Context, url string) error {
	return ask(ctx, options.Client().ApplyURI(url), func(ctx context.Context, admin *mongo.Database) error {
		state, err := hello(ctx, admin)
		if err != nil {
			return err
		}
		if state.SetName == "" {
			return errors.New("the server is no member of a replica set: tests want transactions and change streams")
		}
		if !state.IsWritablePrimary {
			return errors.New("the server is not the primary of its replica set")
		}
		return nil
	})
}

// helloReply is what a server says of itself to any client.
type helloReply struct {
	SetName           string `bson:"setName"`
	IsWritablePrimary bool   `bson:"isWritablePrimary"`
}

func hello(ctx context.Context, admin *mongo.Database) (helloReply, error) {
	var reply helloReply
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&reply); err != nil {
		return helloReply{}, fmt.Errorf("ask MongoDB what it is: %w", err)
	}
	return reply, nil
}

// ask calls f with a client of its own, and bounds both.
func ask(ctx context.Context, opts *options.ClientOptions, f func(context.Context, *mongo.Database) error) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	client, err := mongo.Connect(opts.SetServerSelectionTimeout(answersWithin))
	if err != nil {
		return fmt.Errorf("make a MongoDB client: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return f(ctx, client.Database("admin"))
}
