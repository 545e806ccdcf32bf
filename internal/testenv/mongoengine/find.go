package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// EnvURL names the environment variable with the URL of a MongoDB for tests:
// mongodb://host:port/?replicaSet=name. It must be a replica set, and its user must have
// the right to create and drop databases.
const EnvURL = "OUTMILL_TEST_MONGODB_URL"

// answersWithin limits one Check.
const answersWithin = 20 * time.Second

// Find returns the URL of the server that the environment names, or "". If tests cannot use
// that server, it returns an error.
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

// Check returns an error unless the server answers and is the primary of a replica set.
func Check(ctx context.Context, url string) error {
	opts := options.Client().ApplyURI(url)
	if err := dialAny(ctx, opts.Hosts); err != nil {
		return err
	}
	return ask(ctx, opts, func(ctx context.Context, admin *mongo.Database) error {
		state, err := hello(ctx, admin)
		if err != nil {
			return err
		}
		if state.SetName == "" {
			return errors.New("the server is not a member of a replica set: tests require transactions and change streams")
		}
		if !state.IsWritablePrimary {
			return errors.New("the server is not the primary of its replica set")
		}
		return nil
	})
}

// dialAny tests the connection first, because the driver waits for a server that does not
// listen. It ignores invalid addresses, which the driver refuses.
func dialAny(ctx context.Context, hosts []string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var failed error
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return nil
		}
		err := dial(ctx, host)
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// helloReply is the part of a server's hello reply that Check needs.
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

// ask calls f with a new client, within a time limit.
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
