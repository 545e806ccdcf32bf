package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/outmill/outmill/internal/testenv/mongoengine"
)

// errNoMongo says that there is no server, and that none can be started.
var errNoMongo = errors.New("no MongoDB (give one with -mongodb)")

// mongo returns the URL of a server.
func (e *engines) mongo(ctx context.Context) (string, error) {
	if e.mongoURL != "" {
		return e.mongoURL, nil
	}
	program, err := mongoengine.FindProgram(ctx)
	if errors.Is(err, mongoengine.ErrNoProgram) {
		return "", fmt.Errorf("%w: %w", errNoMongo, err)
	}
	if err != nil {
		return "", err
	}
	e.log("starting %s", program)
	dir, err := os.MkdirTemp("", "outmill-bench-mongodb-")
	if err != nil {
		return "", err
	}
	engine, err := mongoengine.Prepare(program, dir)
	if err == nil {
		err = engine.Start(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("start MongoDB: %w", err)
	}
	e.ends = append(e.ends, engine.End)
	e.mongoURL = engine.URL
	return engine.URL, nil
}

// mongoDatabase makes an empty database, whose collections write with write
// concern majority, as the store does. It is removed when the bench ends.
func (b *bench) mongoDatabase(ctx context.Context, name string) (*mongo.Database, error) {
	server, err := b.engines.mongo(ctx)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(server))
	if err != nil {
		return nil, err
	}
	db := client.Database(fmt.Sprintf("bench_%s_%d", name, os.Getpid()), options.Database().SetWriteConcern(writeconcern.Majority()))
	b.engines.ends = append(b.engines.ends, func() {
		ctx := context.WithoutCancel(ctx)
		_, _ = db.Drop(ctx), client.Disconnect(ctx)
	})
	if err := db.Drop(ctx); err != nil {
		return nil, err
	}
	return db, b.describeMongo(ctx, db)
}

// describeMongo notes once the version and the settings on which the numbers depend.
func (b *bench) describeMongo(ctx context.Context, db *mongo.Database) error {
	if slices.ContainsFunc(b.results.facts, func(fact [2]string) bool { return fact[0] == "mongodb" }) {
		return nil
	}
	var info struct {
		Version string `bson:"version"`
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return err
	}
	b.results.fact("mongodb", info.Version)
	return nil
}
