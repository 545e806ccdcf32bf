package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mysqlengine"
)

// Server returns the URL of a server, the same for all tests of the binary, or skips the test.
func Server(tb testing.TB) string {
	tb.Helper()
	server, err := findOrStart()
	if err != nil {
		if os.Getenv(mysqlengine.EnvURL) != "" {
			tb.Fatalf("no MySQL: %v", err)
		}
		skipWithout(tb, err)
	}
	return server
}

// Own starts a MariaDB for this test alone, which may stop and kill it, and ends it with the test. The flags are those of mariadbd. If it
// cannot be started, the test is skipped.
func Own(tb testing.TB, flags ...string) *mysqlengine.Engine {
	tb.Helper()
	engine, err := start(tb.Context(), flags...)
	if err != nil {
		skipWithout(tb, err)
	}
	tb.Cleanup(engine.End)
	return engine
}

// Database returns the URL of a new, empty database for the test on the server of Server. It ends with the test.
func Database(tb testing.TB) string {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is Database for the server of a URL.
func DatabaseOn(tb testing.TB, server string) string {
	tb.Helper()
	admin := open(tb, server, "")
	name := testenv.DatabaseName()
	_, err := admin.ExecContext(tb.Context(), "CREATE DATABASE "+name)
	require.NoError(tb, err)
	tb.Cleanup(func() { drop(tb, admin, name) })
	u, err := url.Parse(server)
	require.NoError(tb, err)
	u.Path = "/" + name
	return u.String()
}

// Pool returns a pool for the database of a URL, which is closed with the test.
func Pool(tb testing.TB, database string) *sql.DB {
	tb.Helper()
	u, err := url.Parse(database)
	require.NoError(tb, err)
	return open(tb, database, strings.TrimPrefix(u.Path, "/"))
}

// IsMariaDB reports whether the server of a pool is MariaDB, which can do more than MySQL.
func IsMariaDB(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	var version string
	require.NoError(tb, db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version))
	return strings.Contains(version, "MariaDB")
}

func open(tb testing.TB, server, database string) *sql.DB {
	tb.Helper()
	db, err := mysqlengine.Open(server, database)
	require.NoError(tb, err)
	db.SetMaxIdleConns(40)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// drop drops a database. It only logs an error, because the test may have ended the server.
func drop(tb testing.TB, admin *sql.DB, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := admin.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
		tb.Logf("database %s was not dropped: %v", name, err)
	}
}

func skipWithout(tb testing.TB, reason error) {
	tb.Helper()
	text := strings.Join(strings.Fields(reason.Error()), " ")
	tb.Skipf("skipped: no MySQL or MariaDB (%s); set %s=mysql://user:password@host:3306/, or install MariaDB: "+
		"apt-get install -y --no-install-recommends mariadb-server", text, mysqlengine.EnvURL)
}

var findOrStart = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.StartWithin)
	defer cancel()
	if server, err := mysqlengine.Find(ctx); err != nil || server != "" {
		return server, err
	}
	engine, err := start(ctx)
	if err != nil {
		return "", err
	}
	started = append(started, engine)
	return engine.URL, nil
})

// started keeps the server of the whole binary reachable. Otherwise the garbage collector would close the pipe to the server, which ends
// the server.
var started []*mysqlengine.Engine

func start(ctx context.Context, flags ...string) (*mysqlengine.Engine, error) {
	if testing.Short() {
		return nil, errors.New("none is started under -short")
	}
	ctx, cancel := context.WithTimeout(ctx, testenv.StartWithin)
	defer cancel()
	dir, err := os.MkdirTemp(testenv.Memory(), "outmill-mysql-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for MariaDB: %w", err)
	}
	engine, err := mysqlengine.Prepare(ctx, dir, flags...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := engine.Start(ctx); err != nil {
		engine.End()
		return nil, err
	}
	return engine, nil
}
