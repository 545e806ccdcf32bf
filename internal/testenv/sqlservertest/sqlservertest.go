package sqlservertest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"sync"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // the driver
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

// EnvURL names the environment variable with the URL of a SQL Server for tests, such as
// sqlserver://sa:password@127.0.0.1:1433?encrypt=disable. Tests cannot start one
// themselves.
const EnvURL = "OUTMILL_TEST_SQLSERVER_URL"

// Server returns the URL of a server, or skips the test. It may be Babelfish for
// PostgreSQL: see IsBabelfish. Babelfish 4.4 needs the setting
// babelfishpg_tsql.temp_oid_buffer_size = 0 for its database. Otherwise an open transaction
// that has used a table variable blocks every other session that declares one.
func Server(tb testing.TB) string {
	tb.Helper()
	server := os.Getenv(EnvURL)
	if server == "" {
		tb.Skipf("skipped: no SQL Server: set %s to the URL of one (sqlserver://user:password@host:1433?encrypt=disable)", EnvURL)
	}
	return server
}

// databases is locked while a database is created or dropped.
var databases sync.Mutex

// Database returns the URL of a new, empty database for the test, which is dropped with the
// test.
func Database(tb testing.TB) string {
	tb.Helper()
	server, err := url.Parse(Server(tb))
	require.NoError(tb, err, EnvURL)
	db, err := sql.Open("sqlserver", server.String())
	require.NoError(tb, err)
	ctx := context.WithoutCancel(tb.Context())
	name := testenv.DatabaseName()
	// Babelfish fails if two sessions do this at the same time.
	alone := func(statement string) error {
		databases.Lock()
		defer databases.Unlock()
		_, err := db.ExecContext(ctx, statement)
		return err
	}
	require.NoError(tb, alone("CREATE DATABASE "+name))
	tb.Cleanup(func() {
		require.NoError(tb, alone("DROP DATABASE "+name))
		require.NoError(tb, db.Close())
	})
	query := server.Query()
	query.Set("database", name)
	server.RawQuery = query.Encode()
	return server.String()
}

// IsBabelfish reports whether the server is Babelfish for PostgreSQL, which ignores lock
// hints.
func IsBabelfish(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	var is sql.NullInt64
	require.NoError(tb, db.QueryRowContext(tb.Context(), "SELECT CAST(SERVERPROPERTY('Babelfish') AS INT)").Scan(&is))
	return is.Int64 == 1
}
