package driver

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

// restored has the tables as a server has them whose numbers were higher by four billions.
func (w *logWorld) restored() {
	w.Helper()
	w.renumbered()
	w.exec2("UPDATE {p:server} SET identity = 'another'")
}

// renumbered has the rows be those of transactions that this server has not begun yet.
func (w *logWorld) renumbered() {
	w.Helper()
	w.exec2(`CREATE OR REPLACE FUNCTION {p:shifted}(pg_snapshot) RETURNS pg_snapshot LANGUAGE sql RETURN
		((pg_snapshot_xmin($1)::text::bigint + 4000000000)::text || ':' || (pg_snapshot_xmax($1)::text::bigint + 4000000000)::text || ':' ||
		coalesce((SELECT string_agg((x::text::bigint + 4000000000)::text, ',' ORDER BY x) FROM pg_snapshot_xip($1) AS x), ''))::pg_snapshot`)
	for _, sql := range []string{
		`UPDATE {p:log_0} SET xid = (xid::text::bigint + 4000000000)::text::xid8`,
		`UPDATE {p:log_1} SET xid = (xid::text::bigint + 4000000000)::text::xid8`,
		`UPDATE {p:log_2} SET xid = (xid::text::bigint + 4000000000)::text::xid8`,
		`UPDATE {p:left_rows} SET xid = (xid::text::bigint + 4000000000)::text::xid8`,
		`UPDATE {p:batches} SET seen = {p:shifted}(seen), horizon = (horizon::text::bigint + 4000000000)::text::xid8`,
		`UPDATE {p:skip_ranges} SET seen = {p:shifted}(seen)`,
		`UPDATE {p:readings} SET begin_seen = {p:shifted}(begin_seen), end_seen = {p:shifted}(end_seen)`,
	} {
		w.exec2(sql)
	}
	rows, err := w.pool.Query(w.ctx, w.names.in("SELECT number, begin_seen::text FROM {p:readings}"))
	require.NoError(w, err)
	defer rows.Close()
	for rows.Next() {
		var number int64
		var seen string
		require.NoError(w, rows.Scan(&number, &seen))
		for i := range w.readings {
			if w.readings[i].number == number {
				w.readings[i].begin.seen = seen
			}
		}
	}
	require.NoError(w, rows.Err())
}

func (w *logWorld) adapts() bool {
	w.Helper()
	changed, err := w.keeper(segments.Config{}).Adapt(w.ctx)
	require.NoError(w, err)
	return changed
}

func TestLogRestore(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	begin := func(t *testing.T) *logWorld {
		w := db.kept(t)
		w.segment = nil
		require.False(t, w.adapts(), "the first server")
		require.False(t, w.adapts(), "the same one")
		return w
	}
	t.Run("readers continue at their positions in a log of another server", func(t *testing.T) {
		w := begin(t)
		w.register("a", true)
		x := w.open("l1", "l2")
		w.append("1", "2")
		_, got := w.claim("a", 1)
		require.Equal(t, []string{"1"}, got)
		w.register("b", true) // x reaches it
		w.append("3")
		w.commit(x)
		w.restored()
		require.True(t, w.adapts())
		require.False(t, w.adapts())
		w.append("4")
		y := w.open("late")
		w.append("5")
		w.requireClaims("a", "l1", "l2", "2", "3", "4", "5")
		w.requireClaims("b", "l1", "l2", "3", "4", "5")
		w.commit(y)
		w.requireClaims("a", "late")
		w.requireClaims("b", "late")
	})
	t.Run("a copy on a server with the same identity is noticed, and on one whose identity nobody may ask", func(t *testing.T) {
		for _, copied := range []string{
			`CREATE TABLE {p:copy} AS SELECT * FROM {p:server}; DELETE FROM {p:server};
			INSERT INTO {p:server} SELECT * FROM {p:copy}; DROP TABLE {p:copy}`,
			"UPDATE {p:server} SET identity = ''",
		} {
			w := begin(t)
			w.append("waits")
			w.register("a", true)
			w.append("1", "2")
			w.requireClaims("a", "waits", "1", "2")
			w.register("b", true)
			w.append("3")
			w.renumbered()
			w.exec2(copied)
			require.True(t, w.adapts(), copied)
			require.False(t, w.adapts(), copied)
			w.requireClaims("a", "3")
			w.requireClaims("b", "3")
		}
	})
	t.Run("a log that only publishers have used is one of this server behind the copy", func(t *testing.T) {
		w := begin(t)
		w.append("1", "2")
		w.restored()
		require.True(t, w.adapts())
		w.register("a", true)
		w.requireClaims("a", "1", "2")
	})
	t.Run("what a transaction of the other server has left comes once", func(t *testing.T) {
		w := begin(t)
		w.register("a", true)
		x := w.open("l1", "l2", "l3")
		w.append("1")
		w.requireClaims("a", "1")
		w.commit(x)
		_, got := w.claim("a", 1)
		require.Equal(t, []string{"l1"}, got)
		w.restored()
		require.True(t, w.adapts())
		w.requireClaims("a", "l2", "l3")
	})
	t.Run("a batch in work keeps its rows and their order", func(t *testing.T) {
		w := begin(t)
		w.register("a", true)
		w.append("1")
		x := w.open("late")
		w.append("2", "3")
		b, got := w.claim("a", 9)
		require.Equal(t, []string{"1", "2", "3"}, got)
		w.commit(x)
		w.settle(b, 1)
		w.restored()
		require.True(t, w.adapts())
		open, _ := w.inWork(b)
		require.Equal(t, []int64{b.places[0], b.places[2]}, open)
		w.requireClaims("a", "late")
	})
	t.Run("what is skipped stays so, and a row that was open in a range comes", func(t *testing.T) {
		w := begin(t)
		w.register("a", true)
		w.append("first", "s")
		w.append(numbered("k", 0, 100)...)
		x := w.open("x")
		w.append(numbered("k", 100, 100)...)
		y := w.open("y")
		w.append(numbered("k", 200, 100)...)
		w.skipText("a", append(numbered("k", 0, 300), "s")...)
		w.commit(x)
		w.commit(y)
		w.restored()
		require.True(t, w.adapts())
		w.requireClaims("a", "first", "x", "y")
	})
	t.Run("a sequence that was not copied is named", func(t *testing.T) {
		w := begin(t)
		w.register("a", true)
		w.append("1")
		w.restored()
		w.exec2("SELECT setval('{p:records_seq_seq}', 1)")
		_, err := w.keeper(segments.Config{}).Adapt(w.ctx)
		var behind *segments.BehindError
		require.ErrorAs(t, err, &behind)
		w.exec2(`SELECT setval('{p:records_seq_seq}', ` + strconv.FormatInt(behind.Last, 10) + `)`)
		require.True(t, w.adapts())
		w.append("2")
		w.requireClaims("a", "1", "2")
	})
}
