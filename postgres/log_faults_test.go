package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

// readsStates is a text of the statement that finds out what is in the way of the
// keys of a page.
const readsStates = `SELECT u.key, 1 AS nth`

func Test_in_a_log_a_record_given_back_while_a_claim_looks_at_its_key_keeps_its_place(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(r *tape, l outmill.Lease) error{
		"released": func(r *tape, l outmill.Lease) error { return r.store.Release(r.t.Context(), []outmill.Lease{l}) },
		"abandoned": func(r *tape, l outmill.Lease) error {
			return r.store.Abandon(r.t.Context(), []outmill.Abandonment{{Lease: l}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTape(t, pool(t), storetest.Options{})
			other := outmill.NewOwnerToken()
			r.append("key", "first")
			require.NoError(t, r.store.Release(t.Context(), leasesOf(r.claim(other, 1))))
			first := r.claim(other, 1)
			require.Equal(t, []string{"first"}, namesOf(first), "from the records now")
			r.append("key", "second")
			stopped := r.gates.before(t, readsStates, 1)
			claiming := async(func() ([]*outmill.Record, error) {
				return r.gated.Claim(t.Context(), claimOf(r.owner, 10, outmill.OrderKey, "orders"))
			})
			stopped.wait(t)
			require.NoError(t, back(r, first[0].Lease()))
			stopped.open()
			found := namesOf(await(t, claiming))
			r.elapse(time.Second)
			require.Equal(t, []string{"first", "second"}, append(found, r.drain(10, outmill.OrderKey)...))
		})
	}
}

// A claim does not wait for the disk, so that a crash may take it back although
// its owner goes on with what it was given.
func Test_in_a_log_an_ack_of_a_claim_that_a_crash_took_back_acks_nothing_else(t *testing.T) {
	t.Parallel()
	r := newTape(t, pool(t), storetest.Options{})
	r.lease(r.store.Store, "before")
	late := r.begin()
	r.in(late, "", "late")
	r.append("", "a", "b")
	execute(t, r.db, `CREATE TABLE kept AS SELECT * FROM tape.batches`)
	old := claimed(t, r.store, claimOf(r.owner, 2, outmill.OrderNone, "orders"))
	require.Equal(t, []string{"a", "b"}, namesOf(old))
	execute(t, r.db, `DELETE FROM tape.batches`)
	execute(t, r.db, `INSERT INTO tape.batches SELECT * FROM kept`)
	r.commit(late)
	again := claimed(t, r.store, claimOf(r.owner, 2, outmill.OrderNone, "orders"))
	require.Len(t, again, 2)
	require.NoError(t, r.store.Ack(t.Context(), leasesOf(old[1:])))
	// Nobody has acked the others.
	r.elapse(2 * time.Minute)
	require.Subset(t, append(r.drain(10, outmill.OrderNone), "b"), []string{"late", "a"})
}

func Test_a_lease_that_stands_is_extended_whatever_else_is_given_of_its_record(t *testing.T) {
	t.Parallel()
	eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
		r.append("", "a", "b")
		leases := leasesOf(r.claim(outmill.NewOwnerToken(), 2))
		wrong := leases[0]
		wrong.Claim++
		for _, given := range [][]outmill.Lease{{leases[0], wrong, leases[1]}, {wrong, leases[0], leases[1]}, {wrong, leases[0]}} {
			extended, err := r.store.Extend(t.Context(), time.Minute, given)
			require.NoError(t, err)
			require.Contains(t, extended, leases[0])
			require.NotContains(t, extended, wrong)
			require.Len(t, extended, len(given)-1)
		}
	})
}

func Test_in_a_log_a_claim_and_an_ack_do_not_wait_for_each_other(t *testing.T) {
	t.Parallel()
	r := newTape(t, pool(t), storetest.Options{})
	found := r.lease(r.store.Store, "a", "b")
	// a moves with its lease, and the batch is done.
	extended, err := r.store.Extend(t.Context(), time.Minute, leasesOf(found[:1]))
	require.NoError(t, err)
	require.Len(t, extended, 1)
	require.NoError(t, r.store.Ack(t.Context(), leasesOf(found[1:])))
	r.lease(r.store.Store, "newest")
	r.elapse(2 * time.Minute)
	r.append("", "fresh")
	stopped := r.gates.before(t, addsBatch, 1)
	claiming := async(func() ([]*outmill.Record, error) {
		return r.gated.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))
	})
	stopped.wait(t)
	acking := async(func() (int, error) { return 0, r.store.Ack(t.Context(), leasesOf(found[:1])) })
	r.blocked(1)
	stopped.open()
	await(t, claiming)
	await(t, acking)
	require.Zero(t, r.deadlocks())
}
