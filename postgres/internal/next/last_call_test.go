package next_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/next"
)

// A call that comes after the last one fails: the transaction is committed, and the call would be one of its own.
func TestDriver_CallAfterTheLast(t *testing.T) {
	t.Parallel()
	d := next.New(next.PoolOf(connect(t, postgrestest.Database(t), 2, nil)), next.Config{Name: "next", Schema: "outmill"})
	require.NoError(t, d.Ensure(t.Context()))
	err := d.Update(t.Context(), driver.Begin{}, func(tx driver.Tx) error {
		_, err := tx.Apply(t.Context(), driver.Changes{Last: true, Open: []driver.Note{{Name: "k"}}})
		require.NoError(t, err)
		_, err = tx.LinesOf(t.Context(), "group")
		return err
	})
	require.ErrorContains(t, err, "committed")
}
