package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// A call that comes after the last one fails: the transaction is committed, and the call would be one of its own.
func TestDriver_CallAfterTheLast(t *testing.T) {
	t.Parallel()
	d := driver.New(driver.PoolOf(connect(t, postgrestest.Database(t), 2, nil)), driver.Config{Name: "postgres", Schema: "outmill"})
	require.NoError(t, d.Ensure(t.Context()))
	err := d.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
		_, err := tx.Apply(t.Context(), contract.Changes{Last: true, Open: []contract.Note{{Name: "k"}}})
		require.NoError(t, err)
		_, err = tx.LinesOf(t.Context(), "group")
		return err
	})
	require.ErrorContains(t, err, "committed")
}
