package mongo

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Open connects a client to a MongoDB URI (mongodb://host:27017/?replicaSet=rs0), and makes a
// store on it. The store's Close disconnects the client. The database is Config's. Open does not
// create the collections, unless Config.EnsureSchema is set: see Ensure. A nil logger logs
// nothing.
func Open(ctx context.Context, uri string, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	client, err := mongodriver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, storekit.InvalidConfig("mongo.Open: the URI %s: %w", outmill.RedactURL(uri), err)
	}
	store, err := New(client, config, logger)
	if err == nil {
		err = client.Ping(ctx, readpref.Primary())
	}
	if err == nil && config.EnsureSchema {
		err = store.Ensure(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("outmill/mongo: open: %w", errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))))
	}
	store.ownClient()
	return store, nil
}
