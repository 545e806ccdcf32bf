package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
)

// processes returns drivers that share a database, as processes do.
func processes(t *testing.T, n int) (drivers []*driver.Driver, db *mongo.Database) {
	t.Helper()
	db = mongotest.Database(t)
	for range n {
		d := driver.New(db.Client(), driver.Config{Name: "process", Database: db.Name(), WithoutChangeStream: true})
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		drivers = append(drivers, d)
	}
	require.NoError(t, drivers[0].Ensure(t.Context()))
	return drivers, db
}

// briefly is long enough for a transaction that nothing hinders.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

var contended = contract.Line{Group: "readers", Topic: "orders"}

// Without a queue a long transaction loses against short ones for as long as they come.
func TestQueue(t *testing.T) {
	t.Parallel()
	// locks are the ways in which a transaction locks what others lock, too.
	for name, lock := range map[string]struct {
		line contract.Line
		in   func(ctx context.Context, d *driver.Driver, locked *bool) error
	}{
		"a line": {contended, func(ctx context.Context, d *driver.Driver, locked *bool) error {
			ask := contract.Ask{Line: contended, Limit: 1, Lock: true}
			return d.Update(ctx, contract.Begin{Ask: &ask}, func(tx contract.Tx) error {
				page, err := tx.Page(ctx, ask)
				*locked = err == nil && !page.Busy
				return err
			})
		}},
		"lines": {contended, func(ctx context.Context, d *driver.Driver, locked *bool) error {
			return d.Update(ctx, contract.Begin{}, func(tx contract.Tx) error {
				pages, err := tx.Pages(ctx, contract.Ask{Limit: 1, Lock: true, Keys: true}, []contract.Line{contended})
				*locked = err == nil && !pages[0].Busy
				return err
			})
		}},
		"the generations": {contract.Line{}, func(ctx context.Context, d *driver.Driver, locked *bool) error {
			return d.Update(ctx, contract.Begin{}, func(tx contract.Tx) error {
				*locked = false
				_, err := tx.Bump(ctx, true, false)
				*locked = err == nil
				return err
			})
		}},
	} {
		locks := func(t *testing.T, d *driver.Driver) {
			t.Helper()
			require.Eventually(t, func() bool {
				locked := false
				return lock.in(t.Context(), d, &locked) == nil && locked
			}, time.Minute, time.Millisecond)
		}
		t.Run("a process that has lost "+name+" is before those that come later", func(t *testing.T) {
			t.Parallel()
			drivers, _ := processes(t, 3)
			one, two, late := drivers[0], drivers[1], drivers[2]
			require.NoError(t, one.Stand(t.Context(), lock.line))
			stands := make(chan error, 1)
			go func() { stands <- two.Stand(t.Context(), lock.line) }()
			locked := false
			_ = lock.in(briefly(t), late, &locked)
			require.False(t, locked, "the first one has a place in the queue")
			locks(t, one)
			require.NoError(t, <-stands, "the second one is first now")
			locks(t, two)
			locks(t, late)
		})
		t.Run("a process that does not come back for "+name+" loses its place", func(t *testing.T) {
			t.Parallel()
			drivers, _ := processes(t, 2)
			require.NoError(t, drivers[0].Stand(t.Context(), lock.line))
			locks(t, drivers[1])
		})
	}
	t.Run("a transaction that gives up leaves the queue", func(t *testing.T) {
		t.Parallel()
		drivers, db := processes(t, 2)
		require.NoError(t, drivers[0].Stand(t.Context(), contended))
		ask := contract.Ask{Line: contended, Limit: 1, Lock: true}
		require.Error(t, drivers[1].Update(briefly(t), contract.Begin{Ask: &ask}, func(contract.Tx) error { return nil }))
		var line struct{ Queue []struct{ By bson.ObjectID } }
		require.NoError(t, db.Collection("lines").FindOne(t.Context(), bson.D{}).Decode(&line))
		for _, place := range line.Queue {
			require.NotEqual(t, drivers[1].ID(), place.By)
		}
	})
}

// A transaction reads, then writes, and in between another one writes the same rows each time.
func TestHold_ATransactionThatHasLostWritesFirst(t *testing.T) {
	t.Parallel()
	drivers, _ := processes(t, 2)
	one, other := drivers[0], drivers[1]
	id := outmill.NewWorkItemID()
	require.NoError(t, one.Update(t.Context(), contract.Begin{Inserts: true}, func(tx contract.Tx) error {
		return tx.Insert(t.Context(), []contract.NewRow{{Row: contract.Row{ID: id, Line: contended, Created: 1}, Record: &outmill.Record{}}})
	}))
	// extend changes the row and its note in a transaction.
	extend := func(ctx context.Context, d *driver.Driver, between func()) error {
		return d.Update(ctx, contract.Begin{}, func(tx contract.Tx) error {
			// From the first write on the transaction sees one moment.
			if err := tx.Put(ctx, contract.Entry{Kind: "other", Key: outmill.NewOwnerToken().String()}); err != nil {
				return err
			}
			rows, err := tx.Find(ctx, []outmill.WorkItemID{id})
			if err != nil {
				return err
			}
			between()
			now := rows[0]
			now.Claims++
			done, err := tx.Apply(ctx, contract.Changes{
				Rows:  []contract.Change{{Was: rows[0], Now: now}},
				Notes: []contract.Note{{Line: contended, Name: contract.KeyNote("k"), Blocker: contract.RetryBlocks, Looks: now.Claims}},
			})
			require.Empty(t, done.Lost)
			return err
		})
	}
	tries, lost := 0, 0
	require.NoError(t, extend(t.Context(), one, func() {
		if tries++; extend(briefly(t), other, func() {}) == nil {
			lost++
		}
	}))
	require.Less(t, tries, 6)
	require.Positive(t, lost, "the test has the first try lose")
}
