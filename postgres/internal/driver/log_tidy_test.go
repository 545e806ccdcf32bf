package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

// tidied does a whole round over the chains, and nothing about the segments, to which the log still writes.
func (w *logWorld) tidied() {
	w.Helper()
	w.steps(w.keeper(segments.Config{Small: 1 << 40, Full: 1 << 40, Tidy: time.Hour}))
}

// rowsOf is how many rows a table has of the line.
func (w *logWorld) rowsOf(table string) (n int) {
	w.Helper()
	require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in("SELECT count(*) FROM {p:"+table+"} WHERE topic = $1"), w.line.Name()).Scan(&n))
	return n
}

func TestLogTidy(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	// For what other programs have open a range has to wait.
	until := func(t *testing.T, w *logWorld, done func() bool) {
		for end := time.Now().Add(time.Minute); !done(); w.tidied() {
			require.True(t, time.Now().Before(end), "it stays")
		}
	}
	t.Run("batches that are over are dropped and others are not", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append(numbered("k", 0, 10)...)
		var open []logBatch
		for i := range 10 {
			b, _ := w.claim("a", 1)
			if i == 3 || i == 5 {
				open = append(open, b)
			} else {
				w.settle(b)
			}
		}
		w.tidied()
		require.Equal(t, 3, w.rowsOf("batches"), "two in work, and the cursor")
		for _, b := range open {
			require.Len(t, w.settle(b), 1)
		}
		w.tidied()
		require.Equal(t, 1, w.rowsOf("batches"))
		w.append("last")
		w.requireClaims("a", "last")
	})
	t.Run("skips behind the cursor are deleted, and those before it are not", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("s0", "1", "s1", "2", "s2")
		w.append(numbered("r", 0, 100)...)
		w.append("3")
		w.append(numbered("q", 0, 100)...)
		w.skipText("a", append([]string{"s0", "s1", "s2"}, append(numbered("r", 0, 100), numbered("q", 0, 100)...)...)...)
		w.tidied()
		singles, ranges := w.entries()
		require.Equal(t, [2]int{2, 2}, [2]int{singles, ranges}, "s2 is of the first range")
		require.Equal(t, []string{"1", "2"}, w.passed("a", 2))
		w.tidied()
		singles, ranges = w.entries()
		require.Equal(t, [2]int{0, 2}, [2]int{singles, ranges})
		require.Equal(t, []string{"3"}, w.passed("a", 2))
		until(t, w, func() bool { singles, ranges = w.entries(); return singles == 0 && ranges == 1 })
		require.Empty(t, w.passed("a", 2))
		until(t, w, func() bool { singles, ranges = w.entries(); return singles == 0 && ranges == 0 })
		w.append("last")
		w.requireClaims("a", "last")
	})
	t.Run("a skip of a row that is late stays until the cursor has the row as read", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		x := w.open("late", "l2")
		w.append("1")
		w.requireClaims("a", "1")
		w.commit(x)
		w.skipText("a", "late")
		w.tidied()
		w.requireClaims("a", "l2")
		w.append("2")
		w.requireClaims("a", "2")
		until(t, w, func() bool { singles, _ := w.entries(); return singles == 0 })
	})
	t.Run("single skips behind a transaction that is open for long are deleted", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("0")
		w.requireClaims("a", "0")
		x := w.open("late")
		w.append("1", "s1", "2", "s2", "3")
		w.skipText("a", "s1", "s2")
		w.requireClaims("a", "1", "2", "3")
		until(t, w, func() bool { singles, _ := w.entries(); return singles == 0 })
		w.commit(x)
		w.requireClaims("a", "late")
	})
	t.Run("ranges that follow one another become one, once nobody can still write between them", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		x := w.open("x")
		w.append("first")
		for i := range 3 {
			w.append(numbered("k", 100*i, 100)...)
			w.skipText("a", numbered("k", 100*i, 100)...)
		}
		w.write(x, "y")
		w.append("between")
		w.append(numbered("k", 300, 100)...)
		w.skipText("a", numbered("k", 300, 100)...)
		for range 3 {
			w.tidied()
		}
		_, ranges := w.entries()
		require.Equal(t, 4, ranges, "a transaction is open")
		w.commit(x)
		until(t, w, func() bool { _, ranges := w.entries(); return ranges == 2 })
		w.requireClaims("a", "x", "first", "y", "between")
	})
	t.Run("a range with a row that came later stays as it is", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.append("first")
		w.append(numbered("k", 0, 100)...)
		x := w.open("x")
		w.append(numbered("k", 100, 100)...)
		w.skipText("a", numbered("k", 0, 200)...)
		w.tidied()
		w.commit(x)
		for range 3 {
			w.tidied()
		}
		w.requireClaims("a", "first", "x")
	})
	t.Run("nothing stays of a chain that has ended", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		w.register("b", true)
		w.append(numbered("k", 0, 200)...)
		w.skipText("a", numbered("k", 50, 100)...)
		w.claim("a", 9)
		w.claim("b", 9)
		require.Equal(t, 2, w.rowsOf("batches"))
		w.exec2("UPDATE {p:readings} SET dropping = true WHERE grp = 'a'")
		w.drop("a")
		w.tidied()
		require.Equal(t, 2, w.rowsOf("batches"), "a drop may still give back what it has in work")
		w.exec2("UPDATE {p:readings} SET dropping = false")
		w.tidied()
		require.Equal(t, 1, w.rowsOf("batches"))
		require.Zero(t, w.rowsOf("skips")+w.rowsOf("skip_ranges"))
		w.requireClaims("b", numbered("k", 9, 191)...)
	})
	t.Run("nothing stays of a topic in the log that is written to no more, and each later row comes once", func(t *testing.T) {
		w := db.kept(t)
		w.register("a", true)
		*w.segment = 1
		w.append("0")
		x := w.open("late")
		*w.segment = 0
		w.append("1", "s", "2")
		w.skipText("a", "s")
		for range 3 {
			if b, got := w.claim("a", 9); len(got) > 0 {
				w.settle(b)
			}
		}
		w.exec2("DELETE FROM {p:log_1} WHERE convert_from(payload, 'UTF8') = '0'")
		w.exec2("TRUNCATE {p:log_0}")
		w.tidied()
		require.Zero(t, w.rowsOf("batches")+w.rowsOf("ended")+w.rowsOf("skips"))
		w.append("3")
		w.requireClaims("a", "3")
		w.commit(x)
		w.requireClaims("a", "late")
		w.append("4")
		w.requireClaims("a", "4")
	})
}
