package driver_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// ordersWorld is a topic that is claimed by key and without an order at once.
type ordersWorld struct {
	*testing.T
	*engine.Engine
	db        *pgxpool.Pool
	deadlocks atomic.Int32
}

func newOrdersWorld(t *testing.T) *ordersWorld {
	t.Helper()
	w := &ordersWorld{T: t}
	w.db = connect(t, postgrestest.Database(t), 20, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tap{}
		c.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
			if err.Code == "40P01" {
				w.deadlocks.Add(1)
			}
			return err.SeverityUnlocalized != "FATAL"
		}
	})
	d := driver.New(driver.PoolOf(w.db), driver.Config{Name: "orders", Schema: "outmill"})
	d.RecordsOnly()
	w.Engine = engine.New(d, engine.Config{})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	require.NoError(t, w.Ensure(t.Context()))
	require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	return w
}

// append appends records of these keys, which are their message ids, too.
func (w *ordersWorld) append(keys ...string) {
	for _, key := range keys {
		require.NoError(w, w.Append(w.Context(), &outmill.Record{Topic: "orders", Key: key, MessageID: key}))
	}
}

func (w *ordersWorld) claim(ctx context.Context, order outmill.Order, limit int) []*outmill.Record {
	got, err := w.Claim(ctx, outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}, Limit: limit, Lease: time.Hour,
		Order: order,
	})
	require.NoError(w, err)
	return got
}

// heldBehind has a record of the key "held" that is held behind one whose lease is returned.
func (w *ordersWorld) heldBehind() []*outmill.Record {
	w.append("held")
	first := w.claim(w.Context(), outmill.OrderKey, 1)
	w.append("held")
	require.Empty(w, w.claim(w.Context(), outmill.OrderKey, 10))
	return first
}

// waitUntilWait waits until n sessions wait for locks.
func waitUntilWait(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return lockWaits(t, db) == n }, time.Minute, time.Millisecond)
}

// lockWaits is how many sessions of the database wait for locks.
func lockWaits(t *testing.T, db *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n))
	return n
}

// race has a claim without an order meet one by key that waits for rows which it has locked. The one by key begins before the other one
// sends the statement. It returns the message ids that each gets.
func (w *ordersWorld) race(statement string) (free, byKey []string) {
	ended := make(chan []*outmill.Record, 1)
	happened := false
	ctx := context.WithValue(w.Context(), beforeKey{}, &before{statement: statement, happens: func() {
		happened = true
		go func() { ended <- w.claim(w.Context(), outmill.OrderKey, 10) }()
		waitUntilWait(w.T, w.db, 1)
	}})
	free = messagesOf(w.claim(ctx, outmill.OrderNone, 10))
	require.True(w, happened)
	byKey = messagesOf(<-ended)
	require.Zero(w, w.deadlocks.Load(), "deadlocks")
	return free, byKey
}

func messagesOf(records []*outmill.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.MessageID
	}
	return ids
}

// A deadlock costs a second, and the topic stands still until it is found.
func TestClaim_OrdersTogether(t *testing.T) {
	t.Parallel()

	t.Run("a held row goes to one of two claims, by key and without an order", func(t *testing.T) {
		t.Parallel()
		w := newOrdersWorld(t)
		first := w.heldBehind()
		w.append("ready")
		require.NoError(t, w.Ack(t.Context(), "worker", leasesOf(first)))
		free, byKey := w.race("page")
		require.ElementsMatch(t, []string{"held", "ready"}, slices.Concat(free, byKey))
	})

	t.Run("a claim without an order leaves a note that holds nothing to the claim by key that has the line", func(t *testing.T) {
		t.Parallel()
		w := newOrdersWorld(t)
		first := w.heldBehind()
		held, err := w.List(t.Context(), outmill.ListQuery{Group: "readers", Status: outmill.StatusPending, Limit: 10})
		require.NoError(t, err)
		require.Len(t, held, 1)
		_, err = w.Delete(t.Context(), held[0].ID)
		require.NoError(t, err)
		require.NoError(t, w.Ack(t.Context(), "worker", leasesOf(first)))
		w.append("ready")
		free, byKey := w.race("page")
		require.Equal(t, []string{"ready"}, free)
		require.Empty(t, byKey)
	})
}

// The ids of records need not be in the order of their places: users choose some, and processes make others at the same time.
func TestLocks_OneOrder(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *ordersWorld, leases []outmill.Lease) error{
		"a claim by key": nil,
		"a settlement": func(w *ordersWorld, leases []outmill.Lease) error {
			return w.Abandon(w.Context(), []outmill.Settlement{{Lease: leases[0]}, {Lease: leases[1]}})
		},
		"an extension": func(w *ordersWorld, leases []outmill.Lease) error {
			_, err := w.Extend(w.Context(), time.Hour, leases)
			return err
		},
		"an ack": func(w *ordersWorld, leases []outmill.Lease) error { return w.Ack(w.Context(), "worker", leases) },
	} {
		t.Run(name+" and a deletion lock the rows in one order", func(t *testing.T) {
			t.Parallel()
			w := newOrdersWorld(t)
			second, first := outmill.NewWorkItemID(), outmill.NewWorkItemID()
			require.NoError(t, w.Append(t.Context(), &outmill.Record{ID: first, Topic: "orders", Key: "first"}))
			require.NoError(t, w.Append(t.Context(), &outmill.Record{ID: second, Topic: "orders", Key: "second"}))
			var leases []outmill.Lease
			if change != nil {
				leases = leasesOf(w.claim(t.Context(), outmill.OrderKey, 10))
				require.Len(t, leases, 2)
			}
			tx, err := w.db.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
			// What locks this row last has locked the other one, or does not have it yet.
			_, err = tx.Exec(t.Context(), "SELECT 1 FROM outmill.records WHERE id = $1::text::uuid FOR UPDATE", first.String())
			require.NoError(t, err)
			changed := make(chan error, 2)
			go func() {
				_, err := w.Delete(t.Context(), first, second)
				changed <- err
			}()
			waitUntilWait(w.T, w.db, 1)
			go func() {
				if change == nil {
					w.claim(t.Context(), outmill.OrderKey, 10)
					changed <- nil
					return
				}
				changed <- change(w, leases)
			}()
			waitUntilWait(w.T, w.db, 2)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-changed)
			require.NoError(t, <-changed)
			require.Zero(t, w.deadlocks.Load(), "deadlocks")
		})
	}

	t.Run("a write of several statements locks its rows in that order, too", func(t *testing.T) {
		t.Parallel()
		w := newOrdersWorld(t)
		second, first := outmill.NewWorkItemID(), outmill.NewWorkItemID()
		require.NoError(t, w.Append(t.Context(), &outmill.Record{ID: first, Topic: "orders", Key: "first"}))
		require.NoError(t, w.Append(t.Context(), &outmill.Record{ID: second, Topic: "orders", Key: "second"}))
		rows := map[outmill.WorkItemID]contract.Row{}
		d := driver.New(driver.PoolOf(w.db), driver.Config{Name: "orders", Schema: "outmill"})
		update := func(fn func(tx contract.Tx) error) { require.NoError(t, d.Update(t.Context(), contract.Begin{}, fn)) }
		update(func(tx contract.Tx) error {
			found, err := tx.Find(t.Context(), []outmill.WorkItemID{first, second})
			for _, r := range found {
				rows[r.ID] = r
			}
			return err
		})
		held := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			update(func(tx contract.Tx) error {
				_, err := tx.Apply(t.Context(), contract.Changes{Rows: []contract.Change{{Was: rows[second], Now: rows[second]}}})
				close(held)
				waitUntilWait(w.T, w.db, 1)
				require.NoError(t, err)
				var free bool
				require.NoError(t, w.db.QueryRow(t.Context(),
					"SELECT count(*) = 1 FROM (SELECT 1 FROM outmill.records WHERE id = $1::text::uuid FOR UPDATE SKIP LOCKED) AS free",
					first.String()).Scan(&free))
				require.True(t, free, "the row with the larger id is locked first")
				return nil
			})
		}()
		<-held
		update(func(tx contract.Tx) error {
			leased := rows[first]
			leased.Stage, leased.Wake, leased.Owner, leased.Claims = contract.Leased, 1, "owner", 1
			_, err := tx.Apply(t.Context(), contract.Changes{
				Rows: []contract.Change{{Was: rows[first], Now: leased}}, Delete: []contract.Row{rows[second]},
			})
			return err
		})
		<-ended
	})
}
