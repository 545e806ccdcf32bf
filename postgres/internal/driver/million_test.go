package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// sqlFill inserts rows of all stages: of three groups, ten topics, and keys of ten rows each, with most of them in one line, so that a
// statement that reads more than it returns shows.
const sqlFill = `INSERT INTO outmill.records (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at,
	processed_at, message_id, owner, worker, under, parked, step, metadata, payload)
SELECT gen_random_uuid(), CASE WHEN i % 10 < 7 THEN 'readers' ELSE 'group' || i % 3 END,
	CASE WHEN i % 10 < 8 THEN 'orders' ELSE 'topic' || i % 10 END,
	CASE WHEN i % 5 = 0 THEN '' ELSE 'key' || i % ($1::integer / 10) END, '', now.at, 100, s.stage,
	CASE WHEN s.stage IN (2, 3, 4) THEN now.at + 3600000000 + i ELSE 0 END, now.at,
	CASE WHEN i % 50 = 0 THEN now.at + 36000000000 ELSE 0 END, now.at,
	CASE WHEN s.stage = 5 THEN now.at ELSE 0 END, i::text, CASE WHEN s.stage = 4 THEN '00112233445566778899aabbccddeeff' ELSE '' END,
	CASE WHEN s.stage = 4 THEN 'w' ELSE '' END,
	CASE s.stage WHEN 1 THEN 'kkey' || i % ($1::integer / 10) ELSE '' END, s.stage = 6 AND i % 3 = 0,
	CASE WHEN i % 100 = 7 THEN gen_random_uuid() END, '{"a":"b"}', '\x78'
FROM generate_series(1, $1::integer) AS i CROSS JOIN (SELECT outmill.now() AS at) AS now
CROSS JOIN LATERAL (SELECT (ARRAY[0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6])[1 + i % 11] AS stage) AS s`

// sqlFillOthers inserts entries and notes of which most are nobody's at the moment.
const sqlFillOthers = `WITH notes AS (INSERT INTO outmill.notes (head, look_at, looks, grp, topic, name, blocker)
	SELECT i, 0, 0, 'group0', 'others', 'kmany' || i, 'waiting' FROM generate_series(1, $1::integer / 10) AS i)
INSERT INTO outmill.entries (at, made_at, kind, key, value)
SELECT outmill.now() + 3600000000, 0, (ARRAY['dedup', 'note', 'join', 'saga'])[1 + i % 4], i::text, ''
FROM generate_series(1, $1::integer / 4) AS i`

const sqlNoAutovacuum = `DO $$ DECLARE it regclass; BEGIN
	FOR it IN SELECT oid FROM pg_class WHERE relnamespace = 'outmill'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', it);
	END LOOP;
END $$`

// full is a store with that many rows, on one connection.
func full(t *testing.T, rows int) opened {
	t.Helper()
	db := connect(t, postgrestest.Database(t), 1, nil)
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"})
	store := opened{engine.New(d, engine.Config{Retain: time.Hour}), d, db, "outmill"}
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	// It would analyze tables while a test says that they are not, and what it reads of any table counts as read by a call.
	execute(t, db, sqlNoAutovacuum)
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	execute(t, db, sqlFill, rows)
	execute(t, db, sqlFillOthers, rows)
	return store
}

// With a million rows each statement reads by an index, whatever the statistics say, and no call reads more than with a tenth.
func TestPlans_Million(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "plans and costs with a million rows")
	small, large := full(t, 100_000), full(t, 1_000_000)
	requireIndexes(t, large, "before the first ANALYZE")
	compare(t, costs(t, small), costs(t, large), "before the first ANALYZE")
	for _, store := range []opened{small, large} {
		execute(t, store.db, "VACUUM ANALYZE outmill.records, outmill.notes, outmill.entries")
	}
	requireIndexes(t, large, "with statistics")
	again := costs(t, small)
	compare(t, again, costs(t, large), "with statistics")
	execute(t, large.db, "DELETE FROM outmill.records WHERE seq % 20 <> 0")
	requireIndexes(t, large, "with the statistics of rows that are gone")
	execute(t, large.db, "ANALYZE outmill.records")
	requireIndexes(t, large, "with statistics of few rows in a large table")
	// FREEZE makes it wait for a page that another process of the server holds; without it, dead rows of that page stay, and the next
	// call reads them.
	execute(t, large.db, "VACUUM (FREEZE) outmill.records")
	compare(t, again, costs(t, large), "after a mass deletion and VACUUM")
}

// cost is the number of blocks of the tables and indexes that calls read.
type cost map[string]int64

func compare(t *testing.T, small, large cost, when string) {
	t.Helper()
	for call, was := range small {
		is := large[call]
		t.Logf("%s: %-10s %6d blocks with 100,000 rows, %6d with 1,000,000", when, call, was, is)
		// An index has up to two levels more.
		assert.LessOrEqual(t, is, was+was/2+50, "%s: %s", when, call)
	}
}

const sqlBlocks = `SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint FROM pg_statio_user_tables
	WHERE schemaname = 'outmill'`

// costs makes the calls of a worker, a janitor and an operator.
func costs(t *testing.T, store opened) cost {
	t.Helper()
	found := cost{}
	blocks := func() int64 {
		execute(t, store.db, "SELECT pg_stat_force_next_flush()")
		execute(t, store.db, "SELECT pg_stat_clear_snapshot()")
		return valueOf[int64](t, store.db, sqlBlocks)
	}
	measure := func(call string, fn func(ctx context.Context) error) {
		before := blocks()
		require.NoError(t, fn(t.Context()), call)
		found[call] = blocks() - before
	}
	counted := func(fn func(context.Context, int) (int, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := fn(ctx, 100); return err }
	}
	measure("append", func(ctx context.Context) error { return store.Append(ctx, made("orders", "a key", 100)...) })
	for order, name := range []string{outmill.OrderNone: "any order", outmill.OrderKey: "by key", outmill.OrderTopic: "by topic"} {
		var leases []outmill.Lease
		measure(name, func(ctx context.Context) error {
			got, err := store.Claim(ctx, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 20, Lease: time.Minute, Order: outmill.Order(order),
			})
			for _, r := range got {
				leases = append(leases, r.Lease())
			}
			return err
		})
		measure("give back "+name, func(ctx context.Context) error { return store.Release(ctx, leases) })
	}
	measure("rest", func(ctx context.Context) error { _, err := store.AreIdle(ctx, []any{store.Engine}); return err })
	measure("reap", counted(store.ReapExpired))
	measure("expire", counted(store.ExpireDue))
	measure("processed", counted(store.DeleteProcessed))
	measure("dedup", counted(store.DeleteDedupKeys))
	measure("joins", counted(store.DeleteJoins))
	measure("notes", counted(store.DeleteNotes))
	measure("waiting", func(ctx context.Context) error {
		_, err := store.FirstWaiting(ctx, "readers", "orders", 10)
		return err
	})
	return found
}
