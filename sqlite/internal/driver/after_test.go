package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storetest"
)

// A search goes on behind a row as long as it gets as many ids as it asked for.
func TestAfter_CountsARowOnceWhoseIDSomebodyHasWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"f f f", "f  f", "f "} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			store := newHarness(t, storetest.Options{}, 0).store
			row := contract.Row{ID: outmill.NewWorkItemID(), Line: contract.Line{Group: "g", Topic: "orders"}}
			require.NoError(t, store.driver.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
				return tx.Insert(t.Context(), []contract.NewRow{{Row: row, Record: &outmill.Record{}, Message: "m"}})
			}))
			_, err := store.DB().ExecContext(t.Context(), `UPDATE outmill_records SET id = ?`, text)
			require.NoError(t, err)
			require.NoError(t, store.driver.View(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
				ids, rows, err := tx.After(t.Context(), outmill.WorkItemID{}, 10, contract.Like{Last: contract.Dead})
				require.Equal(t, []outmill.WorkItemID{{}}, ids)
				require.Len(t, rows, 1)
				require.NotEmpty(t, rows[0].Broken)
				return err
			}))
		})
	}
}
