package main

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestGORM(t *testing.T) {
	t.Parallel()
	exampletest.TestOnSQL(t, run, exampletest.TwoSales)
}

func TestGORM_Transaction(t *testing.T) {
	t.Parallel()
	exampletest.EachSQL(t, func(t *testing.T, db *example.SQL) {
		orm, err := open(db)
		require.NoError(t, err)
		undo := errors.New("undo")
		require.ErrorIs(t, orm.Transaction(func(tx *gorm.DB) error {
			t.Run("the pool of a transaction is the *sql.Tx", func(t *testing.T) {
				pool := tx.Statement.ConnPool.(*sql.Tx)
				require.Same(t, pool, exampletest.TxOf(t, db, pool))
				// With the setting PrepareStmt. A session that has it leaves a goroutine.
				require.Same(t, pool, exampletest.TxOf(t, db, &gorm.PreparedStmtTX{Tx: pool}))
			})
			t.Run("a *gorm.DB is refused with the expression to pass", func(t *testing.T) {
				exampletest.RequireRefused(t, db, tx, "pass tx.Statement.ConnPool")
			})
			return undo
		}), undo)
		t.Run("a pool is refused", func(t *testing.T) {
			exampletest.RequireRefused(t, db, orm.Statement.ConnPool, "is a pool")
			exampletest.RequireRefused(t, db, &gorm.PreparedStmtDB{ConnPool: db.DB}, "is a pool")
		})
	})
}
