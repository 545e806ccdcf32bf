package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestBun(t *testing.T) {
	t.Parallel()
	exampletest.TestOnSQL(t, run, exampletest.TwoSales)
}

func TestBun_Transaction(t *testing.T) {
	t.Parallel()
	exampletest.EachSQL(t, func(t *testing.T, db *example.SQL) {
		t.Run("a bun.Tx is its *sql.Tx, however it is passed", func(t *testing.T) {
			undo := errors.New("undo")
			require.ErrorIs(t, open(db).RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error {
				require.Same(t, tx.Tx, exampletest.TxOf(t, db, tx))
				require.Same(t, tx.Tx, exampletest.TxOf(t, db, &tx))
				require.Same(t, tx.Tx, exampletest.TxOf(t, db, bun.IDB(tx)))
				return undo
			}), undo)
		})
		t.Run("a pool is refused", func(t *testing.T) {
			exampletest.RequireRefused(t, db, open(db), "is a pool")
		})
	})
}
