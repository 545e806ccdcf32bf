package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/mysqltest"
)

func TestMySQL(t *testing.T) {
	t.Parallel()

	t.Run("schema print makes the tables with any tool, and the other commands work on them", func(t *testing.T) {
		t.Parallel()
		database := mysqltest.Database(t)
		printed := outmillTool(t.Context(), "schema", "print", database)
		require.Zero(t, printed.code, printed.stderr)
		runAll(t, mysqltest.Pool(t, database), printed.stdout)
		published := outmillTool(t.Context(), "publish", database, "--topic", "orders", "--key", "7", "--payload", "one")
		require.Zero(t, published.code, published.stderr)
		status := outmillTool(t.Context(), "status", database)
		require.Zero(t, status.code, status.stderr)
		require.Contains(t, status.stdout, "orders")
		doctor := outmillTool(t.Context(), "doctor", database)
		require.NotContains(t, doctor.stdout, "object_missing")
		require.NotContains(t, doctor.stdout, "right_missing")
	})
}

// runAll runs the statements of a text one by one.
func runAll(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}
