package driver

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
)

func TestLog(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	for name, run := range map[string]func(w *logWorld){
		"each group reads what is written once": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1", "2", "3")
			w.requireClaims("a", "1", "2", "3")
			w.requireClaims("b", "1", "2", "3")
		},
		"rows of a transaction that was open come late, once, and before later ones": func(w *logWorld) {
			w.register("a", true)
			late := w.open("l1", "l2")
			w.append("1", "2")
			w.requireClaims("a", "1", "2")
			w.append("3")
			w.commit(late)
			w.requireClaims("a", "l1", "l2", "3")
		},
		"a rolled back transaction leaves a hole that nobody waits for": func(w *logWorld) {
			w.register("a", true)
			gone := w.open("gone")
			w.append("1")
			w.requireClaims("a", "1")
			require.NoError(w, gone.Rollback(w.ctx))
			w.append("2")
			w.requireClaims("a", "2")
		},
		"a row that gets its number before a claim and its place behind it is not lost": func(w *logWorld) {
			w.register("a", true)
			early := w.begin()
			w.exec(early, "SELECT pg_current_xact_id()")
			w.append("1")
			w.requireClaims("a", "1")
			w.write(early, "2")
			w.append("3")
			w.requireClaims("a", "3")
			w.commit(early)
			w.requireClaims("a", "2")
		},
		"a row that gets its number before a page and its place behind it is not lost": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx, other := w.begin(), w.begin()
			w.exec(other, "SELECT pg_current_xact_id()")
			p := w.page(tx, w.lineOf("a"), 9)
			w.write(other, "2")
			w.append("3")
			_, got := w.takeOf(tx, p, nil)
			w.commit(tx)
			require.Equal(w, []string{"1"}, got)
			w.requireClaims("a", "3")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"a second page of a transaction does not lose who came after the first": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			require.Equal(w, []string{"1"}, got)
			other := w.open("2") // its number is behind that of the claim
			w.append("3")
			_, got = w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			require.Equal(w, []string{"3"}, got)
			w.commit(tx)
			w.append("4")
			w.requireClaims("a", "4")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"a second page of a transaction does not lose who is behind the end of its snapshot": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx, early, other := w.begin(), w.begin(), w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			require.Equal(w, []string{"1"}, got)
			w.exec(early, "SELECT pg_current_xact_id()")
			w.write(other, "2")
			w.write(early, "3")
			w.commit(early)
			_, got = w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			require.Equal(w, []string{"3"}, got)
			w.commit(tx)
			w.append("4")
			w.requireClaims("a", "4")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"two pages of a transaction do not forget who was open before the first": func(w *logWorld) {
			w.register("a", true)
			early, late := w.begin(), w.begin()
			w.exec(early, "SELECT pg_current_xact_id()")
			w.write(late, "late") // its number is the newest, so the snapshots do not list it
			w.write(early, "1", "2")
			w.commit(early)
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			_, more := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			w.commit(tx)
			require.Equal(w, []string{"1", "2"}, append(got, more...))
			w.commit(late)
			w.requireClaims("a", "late")
		},
		"a transaction that has a number before its page loses nothing": func(w *logWorld) {
			w.register("a", true)
			tx := w.begin()
			w.exec(tx, "SELECT pg_current_xact_id()")
			w.append("1")
			other := w.open("2")
			w.append("3")
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			w.commit(tx)
			require.Equal(w, []string{"1", "3"}, got)
			w.append("4")
			w.requireClaims("a", "4")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"claims of a transaction that has a number search no further back than to the page before it": func(w *logWorld) {
			w.register("a", true)
			two, one := w.line, driver.Line{Topic: w.line.Topic + " one"}
			var before, pos, rest int64
			for range 3 {
				before = pos
				w.line = two
				w.append("1", "2")
				w.line = one
				w.append("3")
				tx := w.begin()
				for _, line := range []driver.Line{one, two} {
					w.line = line
					_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
					require.NotEmpty(w, got)
				}
				w.commit(tx)
				require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in(`SELECT c.pos, c.rest FROM {p:log_cursor_of}($1, 0, -1, NULL) AS c`),
					two.Name()).Scan(&pos, &rest))
			}
			require.GreaterOrEqual(w, rest, before)
		},
		"late rows that a page has no room for are not lost": func(w *logWorld) {
			w.register("a", true)
			one, two := w.open("l1", "l2", "l3"), w.open("m1")
			w.write(one, "l4")
			w.append("1")
			w.requireClaims("a", "1")
			w.commit(one)
			w.commit(two)
			w.append("2")
			w.requireClaims("a", "l1", "l2", "l3", "m1", "l4", "2")
		},
		"a row that a claim leaves in the middle of its page comes again": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			tx := w.begin()
			b, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), func(r logRow) logFate {
				if w.texts[r.id] == "2" {
					return logUndecided
				}
				return logTaken
			})
			w.commit(tx)
			require.Equal(w, []string{"1", "3"}, got)
			open, ranged := w.inWork(b)
			require.Len(w, open, 2)
			require.False(w, ranged)
			w.append("4")
			w.requireClaims("a", "2", "4")
		},
		"a row that a claim moves to the records is read": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), func(r logRow) logFate {
				if w.texts[r.id] == "2" {
					return logMoved
				}
				return logTaken
			})
			w.commit(tx)
			require.Equal(w, []string{"1", "3"}, got)
			w.requireClaims("a")
		},
		"a claim that is undone gives its rows again": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			require.Equal(w, []string{"1"}, got)
			require.NoError(w, tx.Rollback(w.ctx))
			w.requireClaims("a", "1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(db.world(t))
		})
	}
}

func TestLog_Batches(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	filled := func(w *logWorld) logBatch {
		w.register("a", true)
		w.append("1", "2", "3")
		b, got := w.claim("a", 9)
		require.Equal(w, []string{"1", "2", "3"}, got)
		return b
	}
	for name, run := range map[string]func(w *logWorld){
		"a batch is a range, and its end one row": func(w *logWorld) {
			b := filled(w)
			open, ranged := w.inWork(b)
			require.Equal(w, b.places, open)
			require.True(w, ranged)
			require.Equal(w, []int32{0, 1, 2}, w.settle(b))
			open, _ = w.inWork(b)
			require.Empty(w, open)
			require.Empty(w, w.settle(b), "it has ended")
		},
		"parts of a batch are settled once, and the last one ends it": func(w *logWorld) {
			b := filled(w)
			require.Equal(w, []int32{1}, w.settle(b, 1))
			require.Equal(w, []int32{0}, w.settle(b, 0, 1))
			open, _ := w.inWork(b)
			require.Equal(w, b.places[2:], open)
			require.Equal(w, []int32{2}, w.settle(b))
			require.Empty(w, w.settle(b, 0, 1, 2))
		},
		"a late row in the range of a batch is none of it": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			late := w.open("2")
			w.append("3")
			b, got := w.claim("a", 9)
			require.Equal(w, []string{"1", "3"}, got)
			w.commit(late)
			open, ranged := w.inWork(b)
			require.Equal(w, b.places, open)
			require.True(w, ranged)
			odd, got := w.claim("a", 9)
			require.Equal(w, []string{"2"}, got)
			_, ranged = w.inWork(odd)
			require.False(w, ranged)
		},
		"another token settles nothing": func(w *logWorld) {
			b := filled(w)
			b.token++
			require.Empty(w, w.settle(b))
		},
		"a skipped row is not read, and a row that was read is not skipped": func(w *logWorld) {
			b := filled(w)
			w.append("4", "5")
			late := w.open("6")
			w.append("7")
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 9)
			require.Len(w, p.rows, 3)
			skipped, err := tx.skip(w.ctx, w.lineOf("a"), append(slices.Clone(b.places), p.rows[0].pos))
			require.NoError(w, err)
			require.Equal(w, []int64{p.rows[0].pos}, skipped)
			w.commit(tx)
			rest, got := w.claim("a", 9)
			require.Equal(w, []string{"5", "7"}, got)
			_, ranged := w.inWork(rest)
			require.False(w, ranged)
			w.commit(late)
			w.requireClaims("a", "6")
		},
		"a late row can be skipped": func(w *logWorld) {
			w.register("a", true)
			late := w.open("1", "2")
			w.append("3")
			w.requireClaims("a", "3")
			w.commit(late)
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 9)
			require.Len(w, p.rows, 2)
			skipped, err := tx.skip(w.ctx, w.lineOf("a"), []int64{p.rows[0].pos})
			require.NoError(w, err)
			require.Len(w, skipped, 1)
			w.commit(tx)
			w.requireClaims("a", "2")
		},
		"an extension finds a batch that is in work, and none that has ended": func(w *logWorld) {
			b := filled(w)
			extend := func() bool {
				tx := w.begin()
				extended, err := tx.extend(w.ctx, b, 7)
				require.NoError(w, err)
				w.commit(tx)
				return extended
			}
			require.True(w, extend())
			var until int64
			require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in("SELECT lease_until FROM {p:batches} WHERE token = $1"), b.token).Scan(&until))
			require.EqualValues(w, 7, until)
			tx := w.begin()
			_, err := tx.settle(w.ctx, b, nil)
			require.NoError(w, err)
			found := make(chan bool)
			go func() {
				defer close(found)
				found <- extend() // waits for the settlement
			}()
			w.commit(tx)
			require.False(w, <-found)
		},
		"the keys of other owners are those of their open rows": func(w *logWorld) {
			b := filled(w)
			w.settle(b, 0)
			tx := w.begin()
			others, err := tx.others(w.ctx, w.lineOf("a"), "me", []string{"1", "2", "4"})
			require.NoError(w, err)
			require.Equal(w, map[string]string{"2": "a"}, others)
			others, err = tx.others(w.ctx, w.lineOf("a"), "a", []string{"1", "2", "4"})
			require.NoError(w, err)
			require.Empty(w, others)
			w.commit(tx)
		},
		"a skip behind a page leaves its batch a range, and one in it does not": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3", "4")
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 9)
			_, err := tx.skip(w.ctx, w.lineOf("a"), []int64{p.rows[2].pos})
			require.NoError(w, err)
			w.commit(tx)
			for _, c := range []struct {
				got    []string
				ranged bool
			}{{[]string{"1", "2"}, true}, {[]string{"4"}, false}} {
				b, got := w.claim("a", 2)
				require.Equal(w, c.got, got)
				_, ranged := w.inWork(b)
				require.Equal(w, c.ranged, ranged)
			}
		},
		"two settlements of one batch share its rows": func(w *logWorld) {
			b := filled(w)
			tx := w.begin()
			first, err := tx.settle(w.ctx, b, []int32{0, 1})
			require.NoError(w, err)
			second := make(chan []int32)
			go func() {
				defer close(second)
				second <- w.settle(b) // waits for the batch
			}()
			w.commit(tx)
			require.Equal(w, []int32{0, 1}, first)
			require.Equal(w, []int32{2}, <-second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(db.world(t))
		})
	}
}
