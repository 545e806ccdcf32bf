package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// A new session plans each statement for its first time. Where all records are in the log, no
// statement names the others, which have 21 indexes.
func TestStore_Cold(t *testing.T) {
	t.Parallel()

	// logged returns a store on a new schema with the log, whose group is registered.
	logged := func(t *testing.T, url string) *postgres.Store {
		t.Helper()
		store := newStore(t, connect(t, url), postgres.Config{NotifyInterval: -1})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		return store
	}

	t.Run("claims, acks and counts run no plan of the records while all are in the log", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
		logged(t, url)
		for _, order := range allOrders {
			e := explainedAs(t, url, "auto", postgres.Config{NotifyInterval: -1})
			for _, p := range e.told.of(t, func() {
				require.NoError(t, e.store.Append(t.Context(), made("orders", order.String(), 3)...))
				found := claimed(t, e.store, claimOf(outmill.NewOwnerToken(), 3, order, "orders"))
				require.Len(t, found, 3)
				require.NoError(t, e.store.Ack(t.Context(), "", leasesOf(found)))
				_, err := e.store.Stats(t.Context(), 10)
				require.NoError(t, err)
			}) {
				p.Plan.each(func(n node) {
					require.NotContains(t, []string{"records", "lanes"}, n.Relation, "order %s: %s", order, p.Text)
				})
			}
		}
	})

	t.Run("a store that has met the log alone meets what another store has given back", func(t *testing.T) {
		t.Parallel()
		for _, order := range allOrders {
			url := readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
			store, other := logged(t, url), newStore(t, connect(t, url), postgres.Config{NotifyInterval: -1})
			owner := outmill.NewOwnerToken()
			require.NoError(t, store.Append(t.Context(), made("orders", "x", 4)...))
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(claimed(t, store, claimOf(owner, 1, order, "orders")))))
			given := claimed(t, other, claimOf(outmill.NewOwnerToken(), 1, order, "orders"))
			require.Len(t, given, 1)
			require.NoError(t, other.Abandon(t.Context(), []outmill.Settlement{{Lease: given[0].Lease(), Err: "no"}}))
			found := claimed(t, store, claimOf(owner, 3, order, "orders"))
			require.Len(t, found, 3, "order %s", order)
			require.Contains(t, []string{found[0].MessageID, found[2].MessageID}, given[0].MessageID)
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		}
	})

	t.Run("a store that has counted nothing counts each kind of records that comes", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
		store := logged(t, url)
		count := func() outmill.TopicStats {
			stats, err := store.Stats(t.Context(), 0)
			require.NoError(t, err)
			if len(stats) == 0 {
				return outmill.TopicStats{}
			}
			require.Len(t, stats, 1)
			return stats[0]
		}
		require.Zero(t, count())
		require.NoError(t, store.Append(t.Context(), made("orders", "x", 5)...))
		require.Equal(t, 5, count().Pending)
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderNone, "orders"))
		require.Len(t, found, 4)
		require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "no"}}))
		require.Equal(t, 1, count().Dead)
		require.NoError(t, store.Snooze(t.Context(), []outmill.Settlement{{Lease: found[1].Lease(), Delay: time.Hour}}))
		require.NoError(t, store.Release(t.Context(), []outmill.Lease{found[2].Lease()}))
		now := count()
		require.Equal(t, []int{3, 1, 1, 1}, []int{now.Pending, now.Delayed, now.Leased, now.Dead})
	})

	t.Run("dead rows are no rows, and a large table is not searched", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
		store, db := logged(t, url), connect(t, url)
		rows := func() bool { return valueOf[bool](t, db, "SELECT outmill.may_have_rows()") }
		require.False(t, rows())
		delayed := made("orders", "x", 1)
		delayed[0].DueAt = time.Now().Add(time.Hour)
		require.NoError(t, store.Append(t.Context(), delayed...))
		require.True(t, rows())
		require.Equal(t, 8, valueOf[int](t, db, "SELECT outmill.kinds()"))
		execute(t, db, "DELETE FROM outmill.records")
		require.False(t, rows())
		execute(t, db, "INSERT INTO outmill.lanes (grp, topic, key, blocked_by, head) VALUES ('readers', 'orders', 'k', '', 1)")
		require.True(t, rows())
		execute(t, db, "DELETE FROM outmill.lanes")
		require.False(t, rows())
		large := made("orders", "y", 1)
		large[0].DueAt = time.Now().Add(time.Hour)
		require.NoError(t, store.Append(t.Context(), large...))
		execute(t, db, "ALTER TABLE outmill.records SET (autovacuum_enabled = false)")
		execute(t, db, `INSERT INTO outmill.records (id, grp, topic, stage, due_at, next_at, created_at, size, message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 0, now(), now(), now(), 100, repeat('m', 250), '\x00' FROM generate_series(1, 5000)`)
		execute(t, db, "DELETE FROM outmill.records")
		require.True(t, rows(), "more than 1 MiB may have a row anywhere")
		require.Zero(t, valueOf[int](t, db, "SELECT outmill.kinds()"))
	})
}
