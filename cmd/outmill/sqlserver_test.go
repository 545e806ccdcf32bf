package main

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/sqlservertest"
)

func TestSqlserver(t *testing.T) {
	t.Parallel()

	t.Run("the schema for sql server", func(t *testing.T) {
		t.Parallel()
		database := sqlservertest.Database(t)
		printed := outmillTool(t.Context(), "schema", "print", database)
		require.Equal(t, exitOK, printed.code, printed.stderr)
		require.Empty(t, printed.stderr)

		t.Run("is one script of batches that makes a store that works", func(t *testing.T) {
			t.Parallel()
			byHand := sqlservertest.Database(t)
			runBatches(t, byHand, printed.stdout)
			again := outmillTool(t.Context(), "schema", "ensure", byHand)
			require.Equal(t, exitOK, again.code, again.stderr)
			requireWorks(t, byHand)
		})
		t.Run("is made by schema ensure, which can be repeated", func(t *testing.T) {
			t.Parallel()
			byEnsure := sqlservertest.Database(t)
			for range 2 {
				got := outmillTool(t.Context(), "schema", "ensure", byEnsure)
				require.Equal(t, exitOK, got.code, got.stderr)
				require.Contains(t, got.stdout, "is up to date")
			}
			requireWorks(t, byEnsure)
		})
		t.Run("is that of the URL's parameters", func(t *testing.T) {
			t.Parallel()
			got := outmillTool(t.Context(), "schema", "print", with(t, database, "schema", "shop", "table", "Orders"))
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, "CREATE SCHEMA [shop]")
			require.Contains(t, got.stdout, "[shop].[OrdersJoin]")
			require.NotContains(t, got.stdout, "[dbo]")
		})
	})

	t.Run("a sql server that cannot be reached is a failure that tells no password", func(t *testing.T) {
		t.Parallel()
		got := outmillTool(t.Context(), "schema", "print", "sqlserver://me:S3CRET@127.0.0.1:1?database=orders&dial+timeout=1")
		require.Equal(t, exitFailed, got.code)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "127.0.0.1")
		require.NotContains(t, got.stderr, "S3CRET")
	})

	t.Run("a batch ends with a line of its own", func(t *testing.T) {
		t.Parallel()
		for batch, want := range map[string]string{
			"SELECT 1":                          "SELECT 1\nGO",
			"SELECT 1;\nSELECT 2; -- two \n\n":  "SELECT 1;\nSELECT 2; -- two\nGO",
			"CREATE PROCEDURE p AS BEGIN x;END": "CREATE PROCEDURE p AS BEGIN x;END\nGO",
		} {
			require.Equal(t, want, asBatch(batch))
		}
	})
}

// with is the URL with more parameters.
func with(t *testing.T, address string, parameters ...string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	query := parsed.Query()
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// runBatches does what sqlcmd does with the script.
func runBatches(t *testing.T, address, script string) {
	t.Helper()
	db, err := sql.Open("sqlserver", address)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.True(t, strings.HasSuffix(script, "\nGO\n"))
	for batch := range strings.SplitSeq(strings.TrimSuffix(script, "\nGO\n"), "\nGO\n") {
		_, err := conn.ExecContext(t.Context(), batch)
		require.NoError(t, err, batch)
	}
}
