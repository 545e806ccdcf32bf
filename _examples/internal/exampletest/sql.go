package exampletest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// TestOnSQL tests a program on SQLite, PostgreSQL and MySQL. See Case.Test.
func TestOnSQL(t *testing.T, program example.Program[*example.SQL], output string) {
	t.Helper()
	each(t, func(t *testing.T, url string) {
		Case[*example.SQL]{example.OnSQL, program, url, func(t *testing.T, db *example.SQL) {
			t.Helper()
			switch db.Dialect {
			case example.PostgreSQL:
				requireNoSchema(t, url, db.Path)
			case example.MySQL:
				requireNoDatabase(t, url, db.Path)
			default:
				require.NoDirExists(t, filepath.Dir(db.Path))
			}
		}}.Test(t, output)
	})
}

// EachSQL runs the test on SQLite, PostgreSQL and MySQL.
func EachSQL(t *testing.T, test func(t *testing.T, db *example.SQL)) {
	t.Helper()
	each(t, func(t *testing.T, url string) {
		db, leave, err := example.OnSQL.Open(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, leave(context.WithoutCancel(t.Context()))) })
		test(t, db)
	})
}

// each runs the test with a URL of each database.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, example.OnSQL.Default)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgrestest.Database(t))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, mysqltest.Server(t))
	})
}

func requireNoDatabase(t *testing.T, url, name string) {
	t.Helper()
	var found int
	require.NoError(t, mysqltest.Pool(t, url).QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?`, name).Scan(&found))
	require.Zero(t, found)
}

// TxOf is the transaction that the store finds in tx.
func TxOf(t *testing.T, db *example.SQL, tx any) any {
	t.Helper()
	found, err := db.Store.TxOf(db.Store.WithTx(t.Context(), tx))
	require.NoError(t, err)
	return found
}

// RequireRefused requires that the store refuses tx as a transaction, and that the
// error says so with these words.
func RequireRefused(t *testing.T, db *example.SQL, tx any, says string) {
	t.Helper()
	_, err := db.Store.TxOf(db.Store.WithTx(t.Context(), tx))
	require.ErrorIs(t, err, outmill.ErrInvalidTx)
	require.ErrorContains(t, err, says)
}
