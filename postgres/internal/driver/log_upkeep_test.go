package driver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit"
)

// kept is a log whose upkeep is tested. What another test has left is gone.
func (db *logDB) kept(t *testing.T) *logWorld {
	t.Helper()
	w := db.world(t)
	for _, table := range []string{
		"log_0", "log_1", "log_2", "batches", "ended", "left_rows", "skips", "skip_ranges", "readings", "retired", "records",
	} {
		w.exec2("TRUNCATE {p:" + table + "}")
	}
	w.exec2("UPDATE {p:meta} SET segment = 0, rotated_at = 0")
	w.exec2("UPDATE {p:upkeep} SET until = 0, ended_at = 0")
	w.segment = new(int)
	return w
}

// keeper does the upkeep. Appends go from segment 0 to 1 with the first step.
func (w *logWorld) keeper(config segments.Config) *segments.Keeper {
	if config.Small == 0 {
		config.Small, config.Full = 1, 1
	}
	if config.DumpWithin == 0 {
		config.DumpWithin = time.Microsecond
	}
	return segments.New(upkeepLog{names: w.names, begin: func(ctx context.Context) (pgx.Tx, error) {
		return w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	}, change: func(ctx context.Context, text string, args []any) (int64, error) {
		tag, err := w.pool.Exec(ctx, text, args...)
		return tag.RowsAffected(), err
	}, read: func(ctx context.Context, text string, into []any) error {
		return w.pool.QueryRow(ctx, text).Scan(into...)
	}, log: w.log}, config)
}

// steps does the upkeep until there is no more for now.
func (w *logWorld) steps(k *segments.Keeper) {
	w.Helper()
	for range 1000 {
		more, err := k.Step(w.ctx)
		require.NoError(w, err)
		if !more {
			return
		}
	}
	require.Fail(w, "the upkeep does not end")
}

// sizes are the sizes of the segments, and current is to which appends go.
func (w *logWorld) sizes() (sizes []int64, current int) {
	w.Helper()
	require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in(`SELECT ARRAY[pg_relation_size('{p:log_0}'), pg_relation_size('{p:log_1}'),
		pg_relation_size('{p:log_2}')], segment FROM {p:meta}`)).Scan(&sizes, &current))
	return sizes, current
}

// truncated does the upkeep, and reports whether the segment 0 is empty then.
func (w *logWorld) truncated(k *segments.Keeper) bool {
	w.Helper()
	w.steps(k)
	sizes, _ := w.sizes()
	return sizes[0] == 0
}

// soon does the upkeep until the segment 0 is empty. A lock that was refused has a pause.
func (w *logWorld) soon(k *segments.Keeper) {
	w.Helper()
	for end := time.Now().Add(time.Minute); !w.truncated(k); {
		require.True(w, time.Now().Before(end), "the segment is kept")
	}
}

func TestLogUpkeep(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	t.Run("a segment is truncated once all of it is settled and not before", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.register("b", true)
		k := w.keeper(segments.Config{})
		w.append("1", "2")
		require.False(t, w.truncated(k), "nobody has read")
		one, _ := w.claim("a", 1)
		two, _ := w.claim("a", 1)
		both, _ := w.claim("b", 9)
		require.False(t, w.truncated(k), "all is in batches")
		w.settle(one)
		w.settle(both)
		require.False(t, w.truncated(k), "one is in a batch")
		w.settle(two)
		w.soon(k)
		w.append("3")
		w.requireClaims("a", "3")
		w.requireClaims("b", "3")
	})
	t.Run("a segment is kept for a group that has read nothing, and for what waits", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{})
		w.append("1")
		require.False(t, w.truncated(k), "it waits")
		w.register("a", true)
		require.False(t, w.truncated(k), "the group has read nothing")
		b, _ := w.claim("a", 1)
		w.settle(b)
		w.soon(k)
	})
	t.Run("a segment is not kept for a group that came later", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{})
		w.register("a", true)
		w.append("1")
		w.register("b", true)
		b, _ := w.claim("a", 1)
		w.settle(b)
		w.soon(k)
	})
	t.Run("a segment is kept for a row that is late, and for one that is left", func(t *testing.T) {
		w := db.kept(t)
		// After a refusal a keeper waits, so each look is that of another one.
		w.register("a", true)
		x := w.open("l1", "l2")
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		require.False(t, w.truncated(w.keeper(segments.Config{})), "a transaction has written to it")
		w.commit(x)
		require.False(t, w.truncated(w.keeper(segments.Config{})), "its rows are late")
		b, got := w.claim("a", 1)
		require.Equal(t, []string{"l1"}, got)
		w.settle(b)
		require.False(t, w.truncated(w.keeper(segments.Config{})), "one is left")
		b, got = w.claim("a", 1)
		require.Equal(t, []string{"l2"}, got)
		w.settle(b)
		w.soon(w.keeper(segments.Config{}))
	})
	t.Run("a segment is kept for a prepared transaction", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		var prepares int
		require.NoError(t, w.pool.QueryRow(w.ctx, "SELECT current_setting('max_prepared_transactions')::integer").Scan(&prepares))
		if prepares == 0 {
			t.Skip("max_prepared_transactions is 0")
		}
		x := w.open("late")
		w.exec(x, "PREPARE TRANSACTION 'late'")
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		for range 5 {
			require.False(t, w.truncated(w.keeper(segments.Config{})))
		}
		w.exec2("COMMIT PREPARED 'late'")
		require.False(t, w.truncated(w.keeper(segments.Config{})))
		b, got := w.claim("a", 1)
		require.Equal(t, []string{"late"}, got)
		w.settle(b)
		w.soon(w.keeper(segments.Config{}))
	})
	t.Run("a registration that is open keeps what its group reads", func(t *testing.T) {
		w := db.kept(t)
		w.append("1")
		k := w.keeper(segments.Config{})
		w.steps(k) // the first one rotates
		tx := w.begin()
		_, _, err := tx.event(w.ctx, 1)
		require.NoError(t, err)
		done := make(chan bool)
		go func() {
			defer close(done)
			_, _ = k.Step(w.ctx)
		}()
		require.Eventually(t, func() bool {
			var waits bool
			sql := `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
				AND query LIKE '%log_hold%')`
			return w.pool.QueryRow(w.ctx, sql).Scan(&waits) == nil && waits
		}, time.Minute, 10*time.Millisecond, "the upkeep waits for the registration")
		w.commit(tx)
		<-done
	})
	t.Run("a segment that another session reads is truncated later", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{})
		w.register("a", true)
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		tx := w.begin()
		w.exec(tx, "LOCK TABLE {p:log_0} IN ACCESS SHARE MODE")
		for range 3 {
			require.False(t, w.truncated(k))
		}
		w.commit(tx)
		w.soon(k)
	})
	t.Run("what a group does not read moves to the records in its order, and what waits without a group", func(t *testing.T) {
		for _, group := range []string{"a", ""} {
			w := db.kept(t)
			k := w.keeper(segments.Config{MoveAfter: time.Microsecond})
			if group != "" {
				w.register(group, true)
			}
			w.append("1", "2")
			x := w.open("late")
			w.append("3")
			// The first step rotates.
			require.False(t, w.truncated(k), "a transaction has written to it")
			w.commit(x)
			w.soon(k)
			var got []string
			for _, r := range w.records() {
				require.Equal(t, group, r.Group)
				got = append(got, r.Text)
			}
			require.Equal(t, []string{"1", "2", "late", "3"}, got)
			if group == "" {
				w.register("b", true)
				group = "b"
			}
			w.append("4")
			w.requireClaims(group, "4")
		}
	})
	t.Run("rows keep their segment while groups hold, of which each but the first that takes has not read them", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{MoveAfter: time.Microsecond})
		first := w.register("first", false)
		w.register("second", false)
		w.append("1")
		require.False(t, w.truncated(k))
		require.Len(t, w.records(), 1, "what waits moves")
		w.take(first)
		require.False(t, w.truncated(w.keeper(segments.Config{})), "the second group has a chain now")
		w.requireClaims("second", "1")
	})
	t.Run("rows in work whose lease has ended move to the records, and keep no segment", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{MoveAfter: time.Microsecond})
		w.register("a", true)
		w.append("1", "2")
		w.until = 1
		w.claim("a", 9)
		w.soon(k)
		require.Len(t, w.records(), 2)
	})
	t.Run("rows of which all are skipped keep no segment", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{MoveAfter: time.Microsecond})
		w.register("a", true)
		w.append(numbered("k", 0, 200)...)
		w.skipText("a", numbered("k", 0, 200)...)
		w.soon(k)
		require.Empty(t, w.records())
	})
	t.Run("appends go to another segment once one is full, or after a while", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		full := w.keeper(segments.Config{Small: 100_000, Full: 1_000_000, Age: time.Hour})
		w.exec2("UPDATE {p:meta} SET rotated_at = {p:now}()")
		w.fill(0, 0, 1000)
		w.steps(full)
		_, current := w.sizes()
		require.Zero(t, current, "it is not full")
		w.fill(0, 0, 3000)
		w.steps(full)
		_, current = w.sizes()
		require.NotZero(t, current)
		w.fill(current, 0, 1000)
		w.steps(w.keeper(segments.Config{Small: 100_000, Full: 1_000_000, Age: time.Microsecond}))
		_, next := w.sizes()
		require.NotEqual(t, current, next, "it is old")
	})
	t.Run("a log line says now and then that the log grows, while both other segments are kept", func(t *testing.T) {
		w := db.kept(t)
		lines := journal.New()
		w.log = storekit.NewLog(lines, "postgres", nil)
		w.register("a", true)
		k := w.keeper(segments.Config{Large: 1, TellAgain: time.Hour})
		grows := func() int { return lines.Count("The log grows", "pg_prepared_xacts", "bytes") }
		for segment := range 3 {
			require.Zero(t, grows())
			*w.segment = segment
			w.append("1")
			w.steps(k)
		}
		w.append("2")
		w.steps(k)
		require.Equal(t, 1, grows())
	})
	t.Run("an append to a segment that was left and truncated is read", func(t *testing.T) {
		w := db.kept(t)
		k := w.keeper(segments.Config{})
		w.register("a", true)
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		w.soon(k)
		_, current := w.sizes()
		require.NotZero(t, current)
		w.append("2") // to the segment 0
		require.False(t, w.truncated(k))
		w.requireClaims("a", "2")
	})
	t.Run("a segment with many lines is searched in steps", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("1")
		w.exec2(`INSERT INTO {p:log_0} (created_at, id, topic) SELECT 1, gen_random_uuid(), 'many' || g FROM generate_series(1, 50) AS g`)
		k := w.keeper(segments.Config{Lines: 7, MoveAfter: time.Microsecond})
		w.soon(k)
		var records int
		require.NoError(t, w.pool.QueryRow(w.ctx, w.names.in("SELECT count(*) FROM {p:records}")).Scan(&records))
		require.Equal(t, 51, records)
	})
	t.Run("a segment is kept for a young snapshot and not for an old one", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		dump, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		defer func() { _ = dump.Rollback(w.ctx) }()
		_, err = dump.Exec(w.ctx, "SELECT pg_current_snapshot()")
		require.NoError(t, err)
		for range 3 {
			require.False(t, w.truncated(w.keeper(segments.Config{DumpWithin: time.Hour})))
		}
		w.soon(w.keeper(segments.Config{}))
	})
	t.Run("a snapshot of before a later row is heeded", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("1")
		b, _ := w.claim("a", 1)
		w.settle(b)
		young, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = young.Exec(w.ctx, "SELECT pg_current_snapshot()")
		require.NoError(t, err)
		k := w.keeper(segments.Config{DumpWithin: time.Hour})
		require.False(t, w.truncated(k), "retired, and heeded")
		w.append("2")
		dump, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		defer func() { _ = dump.Rollback(w.ctx) }()
		_, err = dump.Exec(w.ctx, "SELECT pg_current_snapshot()")
		require.NoError(t, err)
		b, _ = w.claim("a", 1)
		w.settle(b)
		require.NoError(t, young.Rollback(w.ctx))
		require.False(t, w.truncated(k), "the dump has the row and not its ack")
		require.NoError(t, dump.Rollback(w.ctx))
		w.soon(k)
	})
}

func TestLogUpkeep_Turns(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	ended := func(w *logWorld) (ended int64) {
		require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in("SELECT ended_at FROM {p:upkeep}")).Scan(&ended))
		return ended
	}
	maintain := func(w *logWorld, config segments.Config) bool {
		before := ended(w)
		_, err := w.keeper(config).Maintain(w.ctx)
		require.NoError(w, err)
		return ended(w) != before
	}
	t.Run("of a fleet one process has the turn, and the next one comes later", func(t *testing.T) {
		w := db.kept(t)
		require.True(t, maintain(w, segments.Config{}))
		require.False(t, maintain(w, segments.Config{Every: time.Hour}))
		require.True(t, maintain(w, segments.Config{Every: time.Microsecond}))
	})
	t.Run("a turn whose process died is taken by another", func(t *testing.T) {
		w := db.kept(t)
		w.exec2("UPDATE {p:upkeep} SET turn = 1, until = {p:now}() + 60000000")
		require.False(t, maintain(w, segments.Config{}))
		w.exec2("UPDATE {p:upkeep} SET until = {p:now}()")
		require.True(t, maintain(w, segments.Config{}))
	})
	t.Run("a turn that a clock far ahead has taken is taken by another", func(t *testing.T) {
		w := db.kept(t)
		w.exec2("UPDATE {p:upkeep} SET turn = 1, until = {p:now}() + 3600000000, ended_at = {p:now}() + 3600000000")
		require.True(t, maintain(w, segments.Config{}))
	})
	t.Run("a turn does all that there is to do", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		for i := range 10 {
			w.append(fmt.Sprint("k", i))
		}
		require.True(t, maintain(w, segments.Config{MoveAfter: time.Microsecond}))
		require.Len(t, w.records(), 10)
	})
}
