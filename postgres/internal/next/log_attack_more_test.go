//go:build outmill_next_open

package next

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLog_AttackOnPages is more of TestLog_Attack: pages beside records, and the history of registrations.
func TestLog_AttackOnPages(t *testing.T) {
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
		require.NoError(t, tx.readPlace(w.ctx)) // cap
		w.append("k1")                          // key k, committed
		_, err := w.pool.Exec(w.ctx, w.names.in(`INSERT INTO {p:records} (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, message_id)
			VALUES (gen_random_uuid(), 'a', $1, 'k', '', 1, 1, 0, 0, 1, 0, 1, 'k2')`), w.line.Name())
		require.NoError(t, err)
		p := w.page(tx, w.lineOf("a"), 9)
		var ready int
		require.NoError(t, tx.QueryRow(w.ctx, w.names.in(`SELECT count(*) FROM {p:records} WHERE topic = $1 AND stage = 0`), w.line.Name()).Scan(&ready))
		t.Log("log rows on the page", len(p.rows), "ready records", ready)
		require.False(t, len(p.rows) == 0 && ready == 1, "k2 comes without k1")
	})
	t.Run("a reading that held may not be deleted for one that did not take before it", func(t *testing.T) {
		var r registrations
		b := r.begin("b", false)
		r.begin("a", true)
		r.drop("a")
		pruned := registrations{readings: r.readings[:1:1], events: r.events}
		r.take(b)
		pruned.readings = []logReading{r.readings[0]}
		require.Equal(t, logChainsOf(r.readings, orders).of, logChainsOf(pruned.readings, orders).of)
	})
	t.Run("a process reads nothing of a reading whose number a failover gave to another group", func(t *testing.T) {
		w := db.world(t)
		b := w.register("b", true)
		line := w.lineOf("b")
		w.exec2(`UPDATE {p:readings} SET grp = 'c' WHERE number = $1`, w.readings[b].number)
		w.append("1")
		tx := w.begin()
		require.Empty(t, w.page(tx, line, 9).rows)
		w.commit(tx)
	})
}

func (w *logWorld) exec2(q string, args ...any) {
	_, err := w.pool.Exec(w.ctx, w.names.in(q), args...)
	require.NoError(w, err)
}
