package exampletest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// TestOnSQL tests a program on SQLite and on PostgreSQL. See Case.Test.
func TestOnSQL(t *testing.T, program example.Program[*example.SQL], output string) {
	t.Helper()
	eachEngine(t, func(t *testing.T, engine example.Engine[*example.SQL], url string) {
		Case[*example.SQL]{engine, program, url, func(t *testing.T, db *example.SQL) {
			t.Helper()
			if db.Dialect == example.PostgreSQL {
				requireNoSchema(t, url, db.Path)
				return
			}
			require.NoDirExists(t, filepath.Dir(db.Path))
		}}.Test(t, output)
	})
}

// EachSQL runs the test on SQLite and on PostgreSQL.
func EachSQL(t *testing.T, test func(t *testing.T, db *example.SQL)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, engine example.Engine[*example.SQL], url string) {
		db, leave, err := engine.Open(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, leave(context.WithoutCancel(t.Context()))) })
		test(t, db)
	})
}

func eachEngine(t *testing.T, test func(t *testing.T, engine example.Engine[*example.SQL], url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, example.OnSQL, example.OnSQL.Default)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, example.OnSQL, postgrestest.Database(t))
	})
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
