package driver_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
)

// The server does not say which rows another process is about to lease, so claims of two processes would choose the same ones for ever.
func TestDriver_LeavesRowsToOthers(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	opened := func() *driver.Driver {
		d := driver.New(db.Client(), driver.Config{Name: "crowd", Database: db.Name()})
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	one, other := opened(), opened()
	require.NoError(t, one.Ensure(t.Context()))
	line := contract.Line{Group: "readers", Topic: "orders"}
	update := func(d *driver.Driver, fn func(contract.Tx) error) {
		require.NoError(t, d.Update(t.Context(), contract.Begin{}, fn))
	}
	update(one, func(tx contract.Tx) error {
		rows := make([]contract.NewRow, 50)
		for i := range rows {
			rows[i] = contract.NewRow{Row: contract.Row{ID: outmill.NewWorkItemID(), Line: line, Created: 1}, Record: &outmill.Record{}}
		}
		return tx.Insert(context.WithoutCancel(t.Context()), rows)
	})
	search := contract.Search{By: contract.ByDue, Line: line, Limit: 10, Free: true}
	// lease takes the first rows, after what others do.
	lease := func(d *driver.Driver, others func()) (lost int) {
		update(d, func(tx contract.Tx) error {
			rows, err := tx.Rows(t.Context(), search)
			require.NoError(t, err)
			others()
			changes := contract.Changes{Last: true}
			for _, r := range rows {
				now := r
				now.Stage, now.Wake, now.Owner, now.Claims = contract.Leased, contract.Never, "owner of "+t.Name(), r.Claims+1
				if d == one {
					now.Owner = "late"
				}
				changes.Rows = append(changes.Rows, contract.Change{Was: r, Now: now})
			}
			done, err := tx.Apply(t.Context(), changes)
			lost = len(done.Lost)
			return err
		})
		return lost
	}
	first := func() (found outmill.WorkItemID) {
		update(one, func(tx contract.Tx) error {
			rows, err := tx.Rows(t.Context(), search)
			require.NoError(t, err)
			require.Len(t, rows, search.Limit)
			found = rows[0].ID
			return nil
		})
		return found
	}
	begin := first()
	for range 20 {
		require.Equal(t, begin, first(), "nobody else has claimed: the rows that have been due longest come first")
	}
	require.Equal(t, 10, lease(one, func() { require.Zero(t, lease(other, func() {})) }))
	seen := map[outmill.WorkItemID]bool{}
	for range 60 {
		seen[first()] = true
	}
	require.Len(t, seen, 2, "claims begin at the first row that is left, or a claim behind it")
}
