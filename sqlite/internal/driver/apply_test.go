package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storetest"
)

// A claim asks the transaction, and not the database, whether rows wait for a first group.
func TestApply_RowsThatWaitForAGroupAreKnownAtOnce(t *testing.T) {
	t.Parallel()
	line := contract.Line{Topic: "orders"}
	for name, change := range map[string]func(r *contract.Row){
		"given back by a group": func(r *contract.Row) { r.Group = "" },
		"ready again":           func(r *contract.Row) { r.Stage = contract.Ready },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newHarness(t, storetest.Options{}, 0).store.driver
			row := contract.Row{ID: outmill.NewWorkItemID(), Line: line, Stage: contract.Ready}
			if row.Group = "g"; name == "ready again" {
				row.Group, row.Stage = "", contract.Dead
			}
			require.NoError(t, d.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
				return tx.Insert(t.Context(), []contract.NewRow{{Row: row, Record: &outmill.Record{}, Message: "m"}})
			}))
			require.NoError(t, d.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
				require.False(t, tx.State().Unrouted)
				was, found, err := tx.Lock(t.Context(), row.ID)
				require.True(t, found)
				now := was
				change(&now)
				if err == nil {
					_, err = tx.Apply(t.Context(), contract.Changes{Rows: []contract.Change{{Was: was, Now: now}}})
				}
				if err != nil {
					return err
				}
				require.True(t, tx.State().Unrouted)
				rows, err := tx.Rows(t.Context(), contract.Search{By: contract.ByUnrouted, Line: line, Limit: 1})
				require.Len(t, rows, 1)
				return err
			}))
		})
	}
}
