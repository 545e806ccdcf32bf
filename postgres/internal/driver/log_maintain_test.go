package driver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

// TestLog_OnAServerThatOnlyReads reads a log of which no process has noted yet to which server it belongs.
func TestLog_OnAServerThatOnlyReads(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	open := func(db *pgxpool.Pool) *engine.Engine {
		store := engine.New(driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "reads"}), engine.Config{})
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	require.NoError(t, open(connect(t, url, 2, nil)).Ensure(t.Context()))
	_, err := open(connect(t, url, 2, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})).List(t.Context(), outmill.ListQuery{})
	require.NoError(t, err)
}

// TestLog_StaysSmall publishes and subscribes until appends have gone over all segments twice. The subscriber does the upkeep.
func TestLog_StaysSmall(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 10, nil)
	const full = 1 << 20
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "small", Upkeep: segments.Config{
		Full: full, Small: full / 4, Age: time.Hour, DumpWithin: time.Millisecond, Tidy: time.Second,
	}})
	store := engine.New(d, engine.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))

	sub, err := subscriber.New(store, subscriber.Config{}, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	pub, err := publisher.New(store, publisher.Config{}, watermill.NopLogger{})
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)

	payload := message.Payload(strings.Repeat("x", 1000))
	sent := map[string]bool{}
	type sizes struct {
		segment                        int
		size, batches, claims, records int64
	}
	state := func() (is sizes) {
		err := db.QueryRow(t.Context(), `SELECT m.segment,
			(SELECT sum(pg_relation_size('small.log_' || n)) FROM generate_series(0, 2) AS n)::bigint,
			(SELECT count(*) FROM small.batches) + (SELECT count(*) FROM small.ended), (SELECT coalesce(max(n), 0) FROM small.batches),
			(SELECT count(*) FROM small.records) FROM small.meta AS m`).Scan(&is.segment, &is.size, &is.batches, &is.claims, &is.records)
		require.NoError(t, err)
		return is
	}
	was, rotations, written := 0, 0, int64(0)
	for rotations < 6 {
		var batch []*message.Message
		for range 50 {
			msg := message.NewMessage(watermill.NewUUID(), payload)
			sent[msg.UUID] = true
			batch = append(batch, msg)
		}
		require.NoError(t, pub.Publish("orders", batch...))
		written += int64(len(batch) * len(payload))
		for len(sent) > 0 {
			msg := <-messages
			delete(sent, msg.UUID)
			msg.Ack()
		}
		if segment := state().segment; segment != was {
			was, rotations = segment, rotations+1
		}
	}
	is := state()
	require.Zero(t, is.records)
	require.Less(t, is.size, written/2, "the size of the log")
	require.Less(t, is.batches, is.claims/2, "batches and their ends")
}

// A process that only appends does not read the state each time, and nevertheless writes to the segment that the upkeep of another names.
func TestLog_AppendsFollowTheSegment(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"inserted": 1, "copied": 60} {
		s := openLogged(t)
		for n := range 3 {
			execute(t, s.db, "UPDATE outmill.meta SET segment = $1", n)
			for range 2 {
				require.NoError(t, s.Append(t.Context(), made("orders", "a", rows)...))
			}
			count := fmt.Sprintf("SELECT count(*) FROM outmill.log_%d", n)
			require.Equal(t, 2*rows, valueOf[int](t, s.db, count), "%s: segment %d", name, n)
		}
	}
}

// An idle process does the upkeep, too.
func TestMaintain_OfAnEmptyLog(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"})
	store := engine.New(d, engine.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	_, err := store.Stats(t.Context(), 10)
	require.NoError(t, err)
	ctx, seen := tapped(t.Context())
	more, err := d.Maintain(ctx)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, seen.list(), 4, "round trips: the turn, the sizes, the chains, the end of the turn")
}
