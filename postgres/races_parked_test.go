package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// failHead claims the first record of a key, if it is due, and fails it, which parks the key.
func (r *ring) failHead() []*outmill.Record {
	r.t.Helper()
	found := r.claimParking(1)
	for _, one := range found {
		require.NoError(r.t, r.store.Fail(r.t.Context(), []outmill.Settlement{{Lease: one.Lease(), Err: "bad", Park: true}}))
	}
	return found
}

func (r *ring) claimParking(limit int) []*outmill.Record {
	r.t.Helper()
	req := claimOf(outmill.NewOwnerToken(), limit, outmill.OrderKey, "orders")
	req.KeyPolicy = outmill.KeyPark
	return claimed(r.t, r.store, req)
}

// A Requeue of a parked key and a Skip requeue the parked records of the key in several transactions.
func TestStore_ParkedBesideOthers(t *testing.T) {
	t.Parallel()
	t.Run("a Requeue of a parked key ends although a worker fails its first record before each step", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.append("key", "one")
		head := r.failHead()
		step := r.gates.before(t, "parked = false", 1)
		requeue := async(func() (int, error) { return r.gated.Requeue(ctx, head[0].ID) })
		for steps := 1; ; steps++ {
			select {
			case <-step.reached:
			case done := <-requeue:
				require.NoError(t, done.err)
				require.NotZero(t, done.value)
				return
			case <-time.After(patience):
				require.FailNow(t, "the Requeue does not go on")
			}
			if steps > 20 {
				cancel()
				step.open()
				<-requeue
				require.FailNow(t, "the Requeue goes on as long as the worker fails the record")
			}
			r.failHead()
			last := step
			step = r.gates.before(t, "parked = false", 1)
			last.open()
		}
	})

	// parked parks one to five with a key, and has an operator's transaction delete two, which is the first that a step finds.
	parked := func(t *testing.T) (r *ring, head *outmill.Record, commit func()) {
		r = newRing(t, postgres.LaneRows, storetest.Options{})
		r.gated.SetAtOnce(2)
		r.append("key", "one", "two", "three", "four", "five")
		head = r.failHead()[0]
		tx := r.begin()
		r.execIn(tx, `DELETE FROM {records} WHERE message_id = 'two'`)
		return r, head, func() { require.NoError(t, tx.Commit(t.Context())) }
	}
	t.Run("a Requeue goes on behind a step that loses a record to a Delete", func(t *testing.T) {
		t.Parallel()
		r, head, commit := parked(t)
		requeue := async(func() (int, error) { return r.gated.Requeue(t.Context(), head.ID) })
		r.blocked(1)
		commit()
		require.Equal(t, 4, await(t, requeue))
		require.Equal(t, []string{"one", "three", "four", "five"}, namesOf(r.claimParking(5)))
	})
	t.Run("a Skip goes on behind a step that loses a record to a Delete", func(t *testing.T) {
		t.Parallel()
		r, head, commit := parked(t)
		skip := async(func() (roles.Skipped, error) { return r.gated.Skip(t.Context(), head.ID) })
		r.blocked(1)
		commit()
		require.Equal(t, roles.Skipped{Done: true, Released: 3}, await(t, skip))
		require.Equal(t, []string{"three", "four", "five"}, namesOf(r.claimParking(5)))
	})
}
