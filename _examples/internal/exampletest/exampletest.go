// Package exampletest runs the small examples on a real PostgreSQL.
package exampletest

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// Main is for TestMain: it fails where goroutines are left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// Prints runs the program to its end and requires that it prints just that, and
// leaves nothing in the database.
func Prints(t *testing.T, program example.Program, output string) {
	t.Helper()
	url := postgrestest.Database(t)
	var out bytes.Buffer
	require.NoError(t, example.Run(t.Context(), url, &out, program))
	require.Equal(t, output, out.String())
	RequireEmpty(t, url)
}

// EndsWhenInterrupted interrupts the program when it has begun to print, and
// requires that it leaves nothing in the database.
func EndsWhenInterrupted(t *testing.T, program example.Program) {
	t.Helper()
	url := postgrestest.Database(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	require.ErrorIs(t, example.Run(ctx, url, interrupter(interrupt), program), context.Canceled)
	RequireEmpty(t, url)
}

type interrupter func()

func (i interrupter) Write(p []byte) (int, error) {
	i()
	return len(p), nil
}

// RequireEmpty requires that the database is as new.
func RequireEmpty(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	rows, err := conn.Query(t.Context(), `SELECT nspname FROM pg_namespace
WHERE nspname NOT LIKE 'pg\_%' AND nspname NOT IN ('public', 'information_schema')
UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, left)
}
