package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/_examples/internal/exampletest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestMongo(t *testing.T) {
	t.Parallel()
	c := exampletest.Case[*mongo.Database]{Engine: onMongoDB, Program: run}
	c.TestUnusable(t, map[string]string{
		"no URL of MongoDB": "postgres://me:S3CRET@127.0.0.1/x",
		"nothing listens":   "mongodb://me:S3CRET@127.0.0.1:1/?serverSelectionTimeoutMS=100",
	})
	t.Run("on a replica set", func(t *testing.T) {
		t.Parallel()
		c := c // the other subtests run with the one without a URL
		c.URL = mongotest.Server(t)
		c.Gone = func(t *testing.T, db *mongo.Database) {
			t.Helper()
			requireDropped(t, c.URL, db.Name())
		}
		c.Test(t, `book: committed
yacht: rolled back, card declined
change stream: woken, because something was committed in the topic sales
sold:         book
delivered:    book
OK: what was committed was delivered, and nothing else
`)
	})
}

func requireDropped(t *testing.T, url, database string) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) }()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NotContains(t, names, database)
}
