package exampletest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// TestOnPostgres tests a program that runs on PostgreSQL. See Case.Test.
func TestOnPostgres(t *testing.T, program example.Program[example.Database], output string) {
	t.Helper()
	url := postgrestest.Database(t)
	Case[example.Database]{example.OnPostgres, program, url, func(t *testing.T, db example.Database) {
		t.Helper()
		requireNoSchema(t, url, db.Schema)
	}}.Test(t, output)
}

// requireNoSchema requires that the schema does not exist, and that nothing is in the
// schema public.
func requireNoSchema(t *testing.T, url, schema string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	rows, err := conn.Query(t.Context(), `SELECT nspname FROM pg_namespace WHERE nspname = $1
UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`, schema)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, left)
}
