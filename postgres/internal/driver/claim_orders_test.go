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
	w.db = connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) {
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

// race has a claim without an order meet one by key that waits for rows which it has locked. The one by key begins before the other one
// sends the statement. It returns the message ids that each gets.
func (w *ordersWorld) race(statement string) (free, byKey []string) {
	ended := make(chan []*outmill.Record, 1)
	happened := false
	ctx := context.WithValue(w.Context(), beforeKey{}, &before{statement: statement, happens: func() {
		happened = true
		go func() { ended <- w.claim(w.Context(), outmill.OrderKey, 10) }()
		require.Eventually(w, func() bool {
			waits := false
			err := w.db.QueryRow(w.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&waits)
			return err == nil && waits
		}, time.Minute, time.Millisecond)
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
