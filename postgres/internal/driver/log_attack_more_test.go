package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// TestLog_AttackOnPages is more of TestLog_Attack: pages beside records, and the history of registrations.
func TestLog_AttackOnPages(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	t.Run("late rows that a page has no room for come later", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		x := w.open("l1", "l2")
		w.append("1")
		w.requireClaims("a", "1")
		w.commit(x)
		tx := w.begin()
		p := w.page(tx, w.lineOf("a"), 3)
		require.Len(t, p.rows, 2)
		p.rows = p.rows[:1] // the page's limit is 3, and two records come first by place
		_, got := w.takeOf(tx, p, nil)
		w.commit(tx)
		require.Equal(t, []string{"l1"}, got)
		w.requireClaims("a", "l2")
	})
	t.Run("a record does not overtake a row behind the cap", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		tx := w.begin()
		w.exec(tx, "SELECT pg_current_xact_id()") // what a claim has done before
		w.append("k1")                            // key k, committed
		_, err := w.pool.Exec(w.ctx, w.names.in(`INSERT INTO {p:records} (id, grp, topic, key, tenant_id, created_at, size, stage,
			wake_at, next_at, expires_at, due_at, message_id)
			VALUES (gen_random_uuid(), 'a', $1, 'k', '', 1, 1, 0, 0, 1, 0, 1, 'k2')`), w.line.Name())
		require.NoError(t, err)
		p := w.page(tx, w.lineOf("a"), 9)
		var ready int
		sql := w.names.in(`SELECT count(*) FROM {p:records} WHERE topic = $1 AND stage = 0`)
		require.NoError(t, tx.QueryRow(w.ctx, sql, w.line.Name()).Scan(&ready))
		require.False(t, len(p.rows) == 0 && ready == 1, "k2 comes without k1")
	})
	t.Run("a reading that held may not be deleted for one that did not take before it", func(t *testing.T) {
		var r registrations
		b := r.begin("b", false)
		r.begin("a", true)
		r.drop("a")
		pruned := registrations{readings: logPruned(r.readings), events: r.events}
		r.take(b)
		pruned.take(b)
		require.Equal(t, logChainsOf(r.readings, orders).of, logChainsOf(pruned.readings, orders).of)
	})
	t.Run("a process reads nothing of a reading whose number a failover gave to another group", func(t *testing.T) {
		w := db.world(t)
		w.register("b", true)
		line := w.lineOf("b")
		w.exec2(`UPDATE {p:events} SET stamp = 7`) // the event of the same number, on the server that took over
		w.append("1")
		tx := w.begin()
		require.Empty(t, w.page(tx, line, 9).rows)
		w.commit(tx)
	})
	t.Run("what waits comes after what the drop of the group before gives back", func(t *testing.T) {
		w := db.world(t)
		a := w.register("a", true)
		w.append("1")
		w.ends(a)
		w.readings[a].dropping = true
		w.register("b", true)
		w.requireClaims("b")
		w.event(func(*logTx, int64, logMark) { w.readings[a].dropping = false })
		w.requireClaims("b", "1")
	})
	t.Run("a topic reads nothing of another one", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("1")
		w.line.Part = 1
		w.append("2")
		w.requireClaims("a", "2")
		w.line.Part = 0
		w.requireClaims("a", "1")
	})
	t.Run("a mark is of after the wait for another event", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		first := w.begin()
		_, _, err := first.event(w.ctx, 1)
		require.NoError(t, err)
		registered := make(chan int)
		go func() {
			defer close(registered)
			registered <- w.register("b", true)
		}()
		require.Eventually(t, func() bool {
			var waits bool
			sql := `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid')`
			return w.pool.QueryRow(w.ctx, sql).Scan(&waits) == nil && waits
		}, time.Minute, 10*time.Millisecond, "the registration waits for the event")
		tx := w.begin()
		id := outmill.NewWorkItemID()
		row := driver.NewRow{Record: &outmill.Record{}, Message: "1"}
		row.ID, row.Line = id, w.line
		require.NoError(t, tx.append(w.ctx, []driver.NewRow{row}))
		w.commit(tx)
		w.commit(first)
		<-registered
		tx = w.begin()
		require.Empty(t, w.page(tx, w.lineOf("b"), 9).rows, "it was committed before the registration")
		w.commit(tx)
	})
}

func (w *logWorld) exec2(q string, args ...any) {
	_, err := w.pool.Exec(w.ctx, w.names.in(q), args...)
	require.NoError(w, err)
}
