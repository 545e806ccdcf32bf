package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
)

// Server returns the URL of a PostgreSQL server, the same for all tests of
// the binary, or skips the test. The user is a superuser.
func Server(tb testing.TB) string {
	tb.Helper()
	url, err := findOrStartPostgres()
	if err != nil {
		if os.Getenv(postgresengine.EnvURL) != "" {
			tb.Fatalf("no PostgreSQL: %v", err)
		}
		skipWithoutPostgres(tb, err)
	}
	return url
}

// Own starts a server for this test alone, which may stop and kill it, and ends it with the
// test. Settings are pairs such as "fsync=on". If the server cannot be started, the test is
// skipped.
func Own(tb testing.TB, settings ...string) *postgresengine.Engine {
	tb.Helper()
	engine, err := startPostgres(tb.Context(), postgresengine.Binaries, settings...)
	if err != nil {
		skipWithoutPostgres(tb, err)
	}
	tb.Cleanup(engine.End)
	return engine
}

func skipWithoutPostgres(tb testing.TB, reason error) {
	tb.Helper()
	text := strings.Join(strings.Fields(reason.Error()), " ")
	tb.Skipf("skipped: no PostgreSQL (%s); set %s=postgres://postgres@host:5432/postgres, or apt-get install postgresql-15 so that the "+
		"test can start one", text, postgresengine.EnvURL)
}

var findOrStartPostgres = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.StartWithin)
	defer cancel()
	url, err := postgresengine.Find(ctx)
	if err == nil && url == "" {
		url, err = startSharedPostgres(ctx, postgresengine.Binaries)
	}
	if err == nil {
		admins.keepFor(url)
	}
	return url, err
})

// startedPostgres keeps the servers of the whole binary reachable. Otherwise the garbage
// collector would close the pipe to a server, which ends the server.
var startedPostgres struct {
	sync.Mutex
	engines []*postgresengine.Engine
}

func startSharedPostgres(ctx context.Context, binaries func(context.Context) (string, error)) (string, error) {
	engine, err := startPostgres(ctx, binaries)
	if err != nil {
		return "", err
	}
	startedPostgres.Lock()
	defer startedPostgres.Unlock()
	startedPostgres.engines = append(startedPostgres.engines, engine)
	return engine.URL, nil
}

func startPostgres(ctx context.Context, binaries func(context.Context) (string, error), settings ...string) (*postgresengine.Engine,
	error) {
	if testing.Short() {
		return nil, errors.New("none is started under -short")
	}
	ctx, cancel := context.WithTimeout(ctx, testenv.StartWithin)
	defer cancel()
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(testenv.Memory(), "outmill-postgres-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for PostgreSQL: %w", err)
	}
	engine, err := postgresengine.Prepare(ctx, bin, dir, settings...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := engine.Start(ctx); err != nil {
		engine.End()
		return nil, err
	}
	return engine, nil
}
