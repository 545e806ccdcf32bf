package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestSQLX(t *testing.T) {
	t.Parallel()
	exampletest.TestOnSQL(t, run, exampletest.TwoSales)
}

func TestSQLX_Transaction(t *testing.T) {
	t.Parallel()
	exampletest.EachSQL(t, func(t *testing.T, db *example.SQL) {
		t.Run("a *sqlx.Tx is its *sql.Tx", func(t *testing.T) {
			tx, err := open(db).BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			require.Same(t, tx.Tx, exampletest.TxOf(t, db, tx))
			require.NoError(t, tx.Rollback())
		})
		t.Run("a pool is refused", func(t *testing.T) {
			exampletest.RequireRefused(t, db, open(db), "is a pool")
		})
	})
}
