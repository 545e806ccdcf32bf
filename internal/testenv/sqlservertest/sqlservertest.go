package sqlservertest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // the driver
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

// EnvURL names the environment variable with the URL of a SQL Server for tests, such as
// sqlserver://sa:password@127.0.0.1:1433?encrypt=disable. Tests cannot start one
// themselves.
const EnvURL = "OUTMILL_TEST_SQLSERVER_URL"

// Server returns the URL of a server, or skips the test.
func Server(tb testing.TB) string {
	tb.Helper()
	server := os.Getenv(EnvURL)
	if server == "" {
		tb.Skipf("skipped: no SQL Server: set %s to the URL of one (sqlserver://user:password@host:1433?encrypt=disable)", EnvURL)
	}
	return server
}

// Database returns the URL of a new, empty database for the test, with READ_COMMITTED_SNAPSHOT,
// which is dropped with the test.
func Database(tb testing.TB) string {
	tb.Helper()
	server, err := url.Parse(Server(tb))
	require.NoError(tb, err, EnvURL)
	db, err := sql.Open("sqlserver", server.String())
	require.NoError(tb, err)
	ctx := context.WithoutCancel(tb.Context())
	name := testenv.DatabaseName()
	run := func(statement string) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	}
	require.NoError(tb, run("CREATE DATABASE "+name))
	require.NoError(tb, run("ALTER DATABASE "+name+" SET READ_COMMITTED_SNAPSHOT ON"))
	tb.Cleanup(func() {
		require.NoError(tb, run("DROP DATABASE "+name))
		require.NoError(tb, db.Close())
	})
	query := server.Query()
	query.Set("database", name)
	server.RawQuery = query.Encode()
	return server.String()
}
