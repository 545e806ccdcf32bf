package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

func (r *ring) claimParking(limit int) []*outmill.Record {
	r.t.Helper()
	req := claimOf(outmill.NewOwnerToken(), limit, outmill.OrderKey, "orders")
	req.KeyPolicy = outmill.KeyPark
	return claimed(r.t, r.store, req)
}

// A Requeue of a parked key and a Skip requeue the parked records of the key in several transactions.
func TestStore_ParkedBesideOthers(t *testing.T) {
	t.Parallel()
	// parked parks one to five with a key, and has an operator's transaction delete two, which is the first that a step finds.
	parked := func(t *testing.T) (r *ring, head *outmill.Record, commit func()) {
		r = newRing(t, storetest.Options{})
		r.gated = newStore(t, r.db, postgres.AtOnce(r.store.config, 2))
		r.append("key", "one", "two", "three", "four", "five")
		first := r.claimParking(1)
		require.Empty(t, r.claimParking(5), "the claim holds the later ones")
		head = first[0]
		require.NoError(t, r.store.Fail(t.Context(), []outmill.Settlement{{Lease: head.Lease(), Err: "bad", Park: true}}))
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
