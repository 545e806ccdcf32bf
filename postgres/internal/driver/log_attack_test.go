package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
)

// TestLog_Attack has what an attack found: see docs/postgres-log.md.
func TestLog_Attack(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	t.Run("a claim of two topics does not take back how far another has read", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		one, two := w.line, driver.Line{Topic: w.line.Topic + "-two"}
		w.append("x0")
		tx := w.begin()
		_, _ = w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil) // T: number
		w.line = two
		late := w.open("late") // X, number behind T
		w.append("1")
		open := w.open("open") // W, number behind T, place before C's cursor
		w.append("2")
		_, got := w.claim("a", 9) // C
		require.Equal(t, []string{"1", "2"}, got)
		w.commit(late)
		p := w.page(tx, w.lineOf("a"), 9) // T on two
		_, got = w.takeOf(tx, p, nil)
		require.Equal(t, []string{"late"}, got)
		w.commit(tx)
		w.commit(open)
		w.append("3")
		_, got = w.claim("a", 9)
		require.Contains(t, got, "open")
		w.line = one
	})
	t.Run("a process that knows a group as one that holds reads nothing once it takes", func(t *testing.T) {
		w := db.world(t)
		w.append("0")
		a := w.register("a", false)
		stale := w.lineOf("a")
		w.append("1")
		w.take(a)
		tx := w.begin()
		_, got := w.takeOf(tx, w.page(tx, stale, 9), nil)
		w.commit(tx)
		require.Empty(t, got)
		w.requireClaims("a", "0", "1")
	})
	t.Run("a move for a group that was dropped leaves the row to the next group", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("1")
		stale := w.lineOf("a")
		rows := w.moving("a", "1")
		w.drop("a")
		w.register("b", true)
		tx := w.begin()
		_, err := tx.moveUnread(w.ctx, stale, rows)
		require.NoError(t, err)
		w.commit(tx)
		w.requireClaims("b", "1")
	})
	t.Run("a row of a claim that was open at a drop goes to the next group when it fails", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("1")
		rows := w.moving("a", "1")
		tx := w.begin()
		p := w.page(tx, w.lineOf("a"), 9)
		w.drop("a") // its steps find nothing to give back
		w.register("b", true)
		b, _ := w.takeOf(tx, p, nil)
		w.commit(tx)
		tx = w.begin()
		_, err := tx.moveLeased(w.ctx, w.chainOf(b.chain), b, rows)
		require.NoError(t, err)
		w.commit(tx)
		_, got := w.claim("b", 9)
		require.Equal(t, "b", w.records()[0].Group, "%v", got)
	})
	t.Run("what was moved for a group that holds does not come again when it takes", func(t *testing.T) {
		w := db.world(t)
		a := w.register("a", false)
		w.append("1")
		tx := w.begin()
		moved, err := tx.moveUnread(w.ctx, w.lineOf("a"), w.moving("a", "1"))
		require.NoError(t, err)
		require.Len(t, moved, 1)
		w.commit(tx)
		w.take(a)
		_, got := w.claim("a", 9)
		require.Empty(t, got)
	})
	t.Run("what another program writes does not stop its topic", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("1")
		// Every column that a page reads is a plain one, so there is no value that it cannot read.
		w.exec2(`INSERT INTO {p:log_0} (created_at, id, topic, metadata, tenant_id)
			VALUES (-1, gen_random_uuid(), $1, '{"a":"\u0000"', E'\x01')`, w.line.Name())
		tx := w.begin()
		require.Len(t, w.page(tx, w.lineOf("a"), 9).rows, 2)
		w.commit(tx)
	})
	t.Run("a claim that waited for a table that upkeep rewrote hands out nothing again", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("1", "2")
		w.claim("a", 9)
		up := w.begin()
		w.exec(up, `LOCK TABLE {p:batches} IN ACCESS EXCLUSIVE MODE`)
		w.exec(up, `CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM {p:batches}`)
		w.exec(up, `TRUNCATE {p:batches}`)
		w.exec(up, `INSERT INTO {p:batches} SELECT * FROM kept`)
		got := make(chan []string)
		go func() {
			defer close(got)
			_, texts := w.claim("a", 9)
			got <- texts
		}()
		require.Eventually(t, func() bool {
			var waits bool
			sql := `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = '{p:batches}'::regclass)`
			return w.pool.QueryRow(w.ctx, w.names.in(sql)).Scan(&waits) == nil && waits
		}, time.Minute, 10*time.Millisecond, "the claim waits for the table")
		w.commit(up)
		texts := <-got
		require.Empty(t, texts)
	})
}
