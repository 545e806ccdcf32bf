package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestStores(t *testing.T) {
	t.Parallel()

	t.Run("the schema for postgresql", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		printed := outmillTool(t.Context(), "schema", "print", url)
		require.Equal(t, exitOK, printed.code, printed.stderr)

		t.Run("is one script that makes a store that works", func(t *testing.T) {
			t.Parallel()
			byHand := postgrestest.Database(t)
			// Without arguments pgx sends the script as it is, as psql would.
			runScript(t, byHand, printed.stdout)
			requireWorks(t, byHand)
			again := outmillTool(t.Context(), "schema", "ensure", byHand)
			require.Equal(t, exitOK, again.code, again.stderr)
			requireWorks(t, byHand)
		})
		t.Run("is made by schema ensure, which can be repeated", func(t *testing.T) {
			t.Parallel()
			for range 2 {
				got := outmillTool(t.Context(), "schema", "ensure", url)
				require.Equal(t, exitOK, got.code, got.stderr)
				require.Contains(t, got.stdout, "is up to date")
			}
			requireWorks(t, url)
		})
		t.Run("is that of the URL's parameters", func(t *testing.T) {
			t.Parallel()
			separator := "?"
			if strings.Contains(url, "?") {
				separator = "&"
			}
			got := outmillTool(t.Context(), "schema", "print", url+separator+"schema=shop&table_prefix=web_")
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, "shop")
			require.Contains(t, got.stdout, "web_records")
		})
	})

	t.Run("a postgresql that cannot be reached is a failure that tells no password", func(t *testing.T) {
		t.Parallel()
		got := outmillTool(t.Context(), "schema", "print", "postgres://me:S3CRET@127.0.0.1:1/orders")
		require.Equal(t, exitFailed, got.code)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "127.0.0.1")
		require.NotContains(t, got.stderr, "S3CRET")
	})
}

func runScript(t *testing.T, url, script string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), script)
	require.NoError(t, err)
}
