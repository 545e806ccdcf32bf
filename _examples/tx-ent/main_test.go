package main

import (
	"context"
	"io"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

// alone is held by the program that runs, because ent writes to variables of its package when it
// creates the tables.
var alone sync.Mutex

func TestEnt(t *testing.T) {
	t.Parallel()
	program := func(ctx context.Context, db *example.SQL, out io.Writer) error {
		alone.Lock()
		defer alone.Unlock()
		return run(ctx, db, out)
	}
	exampletest.TestOnSQL(t, program, exampletest.TwoSales)
}

// withoutFeature is a Tx as ent generates it without the feature sql/execquery.
type withoutFeature struct{ config }

type config struct{ driver dialect.Driver }

func TestEnt_Transaction(t *testing.T) {
	t.Parallel()
	exampletest.EachSQL(t, func(t *testing.T, db *example.SQL) {
		driver := entsql.OpenDB(dialect.SQLite, db.DB)
		t.Run("the transaction of a driver is its *sql.Tx", func(t *testing.T) {
			tx, err := driver.Tx(t.Context())
			require.NoError(t, err)
			inner := tx.(*entsql.Tx).ExecQuerier
			require.Same(t, inner, exampletest.TxOf(t, db, tx))
			require.Same(t, inner, exampletest.TxOf(t, db, inner))
			require.Same(t, inner, exampletest.TxOf(t, db, dialect.DebugTx{Tx: tx}))
			require.NoError(t, tx.Rollback())
		})
		t.Run("a pool is refused", func(t *testing.T) {
			exampletest.RequireRefused(t, db, driver, "is a pool")
		})
		t.Run("a Tx without the feature is refused with the name of the feature", func(t *testing.T) {
			exampletest.RequireRefused(t, db, &withoutFeature{config{driver}}, `the feature "sql/execquery"`)
		})
	})
}
