package postgrestest

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

// Database returns the URL of a new, empty database for the test, on the server of Server.
// It is dropped with the test.
func Database(tb testing.TB) string {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is Database for the server of a URL. It ignores the database in the URL.
func DatabaseOn(tb testing.TB, serverURL string) string {
	tb.Helper()
	return copyOf(tb, serverURL, "template0")
}

func copyOf(tb testing.TB, serverURL, template string) string {
	tb.Helper()
	name, databaseURL, err := createDatabase(tb.Context(), tb, serverURL, template)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := dropDatabase(serverURL, name); err != nil {
			tb.Logf("database %s was not dropped: %v", name, err)
		}
	})
	return databaseURL
}

func createDatabase(ctx context.Context, tb testing.TB, serverURL, template string) (name, databaseURL string, err error) {
	tb.Helper()
	name = testenv.DatabaseName()
	u := parse(tb, serverURL)
	u.Path = "/" + name
	ctx, cancel := context.WithTimeout(ctx, testenv.Patience)
	defer cancel()
	return name, u.String(), execute(ctx, serverURL, "CREATE DATABASE "+name+" TEMPLATE "+template)
}

// Schema returns the URL of a new, empty schema for the test, in a database that other
// tests use too. It is ten times as fast as a new database. The tests share everything that
// belongs to the database: advisory locks, channels of NOTIFY, pg_stat views. The schema is
// the search path of each session, which PgBouncer does not pass on. It is dropped with the
// test.
func Schema(tb testing.TB) string {
	tb.Helper()
	serverURL := Server(tb)
	name := testenv.DatabaseName()
	u := parse(tb, serverURL)
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Patience)
	defer cancel()
	require.NoError(tb, execute(ctx, serverURL, "CREATE SCHEMA "+name))
	tb.Cleanup(func() { dropSchema(tb, serverURL, name) })
	query := u.Query()
	query.Set("search_path", name)
	// The name identifies the sessions that the test has left open.
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}

func parse(tb testing.TB, serverURL string) *url.URL {
	tb.Helper()
	u, err := url.Parse(serverURL)
	require.NoError(tb, err, "the URL of the server")
	require.Contains(tb, []string{"postgres", "postgresql"}, u.Scheme, "the URL of the server")
	return u
}

// dropDatabase drops the database. It only logs an error, because the test may have ended
// the server.
func dropDatabase(serverURL, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	return execute(ctx, serverURL, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func dropSchema(tb testing.TB, serverURL, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	for _, statement := range []string{
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" + name + "'",
		"DROP SCHEMA IF EXISTS " + name + " CASCADE",
	} {
		if err := execute(ctx, serverURL, statement); err != nil {
			tb.Logf("schema %s was not dropped: %v", name, err)
		}
	}
}

// execute runs a statement in a session that later calls for the shared server use again,
// because a new session costs the server a tenth of what a new schema costs it.
func execute(ctx context.Context, address, statement string) error {
	conn, err := admins.take(ctx, address)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	admins.put(ctx, address, conn)
	return err
}
