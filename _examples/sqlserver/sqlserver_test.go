package main

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/exampletest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestSQLServer(t *testing.T) {
	t.Parallel()
	c := exampletest.Case[database]{Engine: onSQLServer, Program: run}
	c.TestUnusable(t, map[string]string{
		"no URL of SQL Server": "postgres://me:S3CRET@127.0.0.1/x",
		"nothing listens":      "sqlserver://me:S3CRET@127.0.0.1:1?dial+timeout=1",
	})
	t.Run("on a server", func(t *testing.T) {
		t.Parallel()
		c := c // the other subtests run with the one without a URL
		c.URL = sqlservertest.Server(t)
		c.Gone = func(t *testing.T, db database) {
			t.Helper()
			requireDropped(t, c.URL, db.name)
		}
		c.Test(t, `book: committed
yacht: rolled back, card declined
book, a second time: the server has rolled back, primary key
sold:         book
delivered:    book
OK: what was committed was delivered, and nothing else
`)
	})
}

func requireDropped(t *testing.T, url, name string) {
	t.Helper()
	db, err := sql.Open("sqlserver", url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var found int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM sys.databases WHERE name = @p1`, name).Scan(&found))
	require.Zero(t, found)
}
