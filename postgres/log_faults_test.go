package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// readsStates is a part of the statement that reads the blockers of a page's keys.
const readsStates = `SELECT u.key, 1 AS nth`

func TestStore_LogFaults(t *testing.T) {
	t.Parallel()

	t.Run("in a log a record given back while a claim checks its key keeps its place", func(t *testing.T) {
		t.Parallel()
		for name, back := range map[string]func(r *tape, l outmill.Lease) error{
			"released": func(r *tape, l outmill.Lease) error { return r.store.Release(r.t.Context(), []outmill.Lease{l}) },
			"abandoned": func(r *tape, l outmill.Lease) error {
				return r.store.Abandon(r.t.Context(), []outmill.Settlement{{Lease: l}})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
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
	})

	// A claim does not wait for the disk, so a crash may undo it although its owner continues
	// to handle the records.
	t.Run("in a log an ack of a claim that a crash took back acks nothing else", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
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
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(old[1:])))
		// Nobody has acked the others.
		r.elapse(2 * time.Minute)
		require.Subset(t, append(r.drain(10, outmill.OrderNone), "b"), []string{"late", "a"})
	})

	t.Run("a valid lease is extended together with invalid ones of its record", func(t *testing.T) {
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
	})

	t.Run("in a log a claim and an ack do not wait for each other", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.store.Store, "a", "b")
		// a moves with its lease, and the batch is done.
		extended, err := r.store.Extend(t.Context(), time.Minute, leasesOf(found[:1]))
		require.NoError(t, err)
		require.Len(t, extended, 1)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found[1:])))
		r.lease(r.store.Store, "newest")
		r.elapse(2 * time.Minute)
		r.append("", "fresh")
		stopped := r.gates.before(t, addsBatch, 1)
		claiming := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))
		})
		stopped.wait(t)
		acking := async(func() (int, error) { return 0, r.store.Ack(t.Context(), "", leasesOf(found[:1])) })
		r.blocked(1)
		stopped.open()
		await(t, claiming)
		await(t, acking)
		require.Zero(t, r.deadlocks())
	})

	// A claim reads the log as of its mark, and the records later.
	t.Run("in a log a record does not overtake a row that was committed between mark and page", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				r.lease(r.store.Store, "old")
				r.elapse(2 * time.Minute)
				writing := r.begin()
				r.in(writing, "key", "first")
				expiring := &outmill.Record{Topic: "orders", Key: "key", MessageID: "second", TimeToLive: time.Hour}
				require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), writing), expiring))
				// The claim waits, after its mark, for the batch whose lease has ended.
				locked := r.lockBatches()
				found := async(func() ([]*outmill.Record, error) {
					return r.gated.Claim(t.Context(), claimOf(r.owner, 10, order, "orders"))
				})
				r.blocked(1)
				r.commit(writing)
				require.NoError(t, locked.Rollback(t.Context()))
				names := namesOf(await(t, found))
				require.Equal(t, []string{"old", "first", "second"}, append(names, r.drain(10, order)...))
			})
		}
	})

	t.Run("in a log a moved record is extended with the rest of its batch", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		leases := leasesOf(r.lease(r.store.Store, "a", "b"))
		for _, given := range [][]outmill.Lease{leases[:1], leases, {leases[1], leases[0], leases[1]}} {
			extended, err := r.store.Extend(t.Context(), time.Minute, given)
			require.NoError(t, err)
			for _, l := range given {
				require.Contains(t, extended, l)
			}
		}
	})

	t.Run("the log stays on whatever an old snapshot says", func(t *testing.T) {
		t.Parallel()
		db := readyPool(t, postgres.Config{Lane: postgres.LaneRows})
		store := newStore(t, db, postgres.Config{Lane: postgres.LaneRows})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		old, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = old.Exec(t.Context(), "SELECT pg_current_snapshot() FROM outmill.meta")
		require.NoError(t, err)
		require.NoError(t, newStore(t, db, postgres.Config{Lane: postgres.LaneLog}).Ensure(t.Context()))
		other := newStore(t, db, postgres.Config{})
		require.NoError(t, other.Append(t.Context(), made("orders", "x", 2)...))
		found := claimed(t, other, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone, "orders"))
		require.Len(t, found, 2)
		// It reads the groups again, in the old snapshot.
		require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: "another"}))
		require.NoError(t, other.Append(other.WithTx(t.Context(), old), made("orders", "y", 1)...))
		require.NoError(t, old.Commit(t.Context()))
		require.NoError(t, other.Ack(t.Context(), "", leasesOf(found)))
		require.Zero(t, valueOf[int](t, db, "SELECT count(*) FROM outmill.log_in_work()"), "they are acked")
	})

	t.Run("in a log a process that was there before a restore reads on too", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Own(t)
		url := postgrestest.DatabaseOn(t, server.URL)
		store := newStore(t, connect(t, url), postgres.Config{NotifyInterval: -1, Lane: postgres.LaneLog})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), made("orders", "x", 3)...))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "orders")), 1)
		// Simulate the other server, with numbers that this server will not reach for long.
		execute(t, store.Pool(), "UPDATE outmill.log SET xid = (xid::text::bigint + 1000000)::text::xid8")
		execute(t, store.Pool(), "UPDATE outmill.meta SET cluster = 'another'")
		require.NoError(t, server.Restart(t.Context(), postgresengine.Fast))
		var found []*outmill.Record
		require.Eventually(t, func() bool {
			more, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders"))
			found = append(found, more...)
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		require.Len(t, found, 2)
	})
}
