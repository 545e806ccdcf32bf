package driver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLog_Readings is the table of docs/postgres-log.md: each event with rows that wait, and with a transaction that is open across it.
func TestLog_Readings(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	for name, run := range map[string]func(w *logWorld){
		"the first group of a topic": func(w *logWorld) {
			w.append("1")
			across := w.open("2")
			w.append("3")
			w.register("a", true)
			w.append("4")
			w.requireClaims("a", "1", "3", "4")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a later group": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			across := w.open("2")
			w.append("3")
			w.register("b", true)
			w.append("4")
			w.requireClaims("b", "4")
			w.commit(across)
			w.requireClaims("b", "2")
			w.requireClaims("a", "1", "2", "3", "4")
		},
		"patterns that meet a topic's first row later": func(w *logWorld) {
			w.register("a", true)
			across := w.open("1")
			w.register("b", true)
			w.append("2")
			w.commit(across)
			w.requireClaims("a", "1", "2")
			w.requireClaims("b", "1", "2")
		},
		"a second selection of a group, and the end of the first": func(w *logWorld) {
			first := w.register("a", true)
			w.append("1")
			across := w.open("2")
			w.register("a", true)
			w.append("3")
			w.expire(first)
			w.append("4")
			w.requireClaims("a", "1", "3", "4")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a group is dropped beside another one": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1")
			across := w.open("2")
			w.drop("a")
			w.commit(across)
			w.append("3")
			w.requireClaims("b", "1", "2", "3")
			w.register("a", true)
			w.append("4")
			w.requireClaims("a", "4")
		},
		"a group is dropped alone, and the next one goes on": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			across := w.open("4")
			_, got := w.claim("a", 2)
			require.Equal(w, []string{"1", "2"}, got)
			w.drop("a")
			w.append("5")
			w.register("b", true)
			w.requireClaims("b", "3", "5")
			w.commit(across)
			w.requireClaims("b", "4")
		},
		"a group is dropped alone, and comes again": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2")
			w.claim("a", 1)
			w.drop("a")
			w.append("3")
			w.register("a", true)
			w.requireClaims("a", "2", "3")
		},
		"the end of a TTL": func(w *logWorld) {
			a := w.register("a", true)
			w.append("1", "2")
			across := w.open("3")
			w.claim("a", 1)
			w.expire(a)
			w.append("4")
			w.register("b", true)
			w.requireClaims("b", "4")
			w.commit(across)
			w.requireClaims("b", "3")
		},
		"a group that holds, and takes": func(w *logWorld) {
			w.append("1")
			across := w.open("2")
			a := w.register("a", false)
			w.append("3")
			w.requireClaims("a")
			w.take(a)
			w.requireClaims("a", "1", "3")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a worker of a dropped group gets nothing": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			stale := w.lineOf("a")
			w.drop("a")
			tx := w.begin()
			require.Empty(w, w.page(tx, stale, 9).rows)
			w.commit(tx)
			w.register("b", true)
			w.requireClaims("b", "1")
		},
		"a claim that was under way when its group was dropped": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2")
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 1)
			w.drop("a")
			w.register("b", true)
			next := make(chan []string)
			go func() {
				defer close(next)
				_, texts := w.claim("b", 9) // waits for the chain
				next <- texts
			}()
			_, got := w.takeOf(tx, p, nil)
			w.commit(tx)
			require.Equal(w, []string{"1"}, got)
			require.Equal(w, []string{"2"}, <-next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(db.world(t))
		})
	}
}
