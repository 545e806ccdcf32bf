package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

// places returns the places of rows that a snapshot of now shows, in order, with their texts.
func (w *logWorld) places() (places []int64, texts []string) {
	w.Helper()
	sql := w.names.in("SELECT pos, convert_from(payload, 'UTF8') FROM {p:log} WHERE topic = $1 ORDER BY pos")
	rows, err := w.pool.Query(w.ctx, sql, w.line.Name())
	require.NoError(w, err)
	var pos int64
	var text string
	_, err = pgx.ForEachRow(rows, []any{&pos, &text}, func() error {
		places, texts = append(places, pos), append(texts, text)
		return nil
	})
	require.NoError(w, err)
	return places, texts
}

// skips takes those of the rows that the group has not read out of its chain, and returns their places.
func (w *logWorld) skips(group string, places ...int64) []int64 {
	w.Helper()
	tx := w.begin()
	skipped, err := tx.skip(w.ctx, w.lineOf(group), places)
	require.NoError(w, err)
	w.commit(tx)
	return skipped
}

// skipText skips rows by their texts.
func (w *logWorld) skipText(group string, texts ...string) {
	w.Helper()
	places, all := w.places()
	var of []int64
	for i, text := range all {
		if slices.Contains(texts, text) {
			of = append(of, places[i])
		}
	}
	require.Len(w, w.skips(group, of...), len(texts))
}

// entries is how many single places and ranges the tables have for the line.
func (w *logWorld) entries() (singles, ranges int) {
	w.Helper()
	require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in(`SELECT (SELECT count(*) FROM {p:skips} WHERE topic = $1),
		(SELECT count(*) FROM {p:skip_ranges} WHERE topic = $1)`), w.line.Name()).Scan(&singles, &ranges))
	return singles, ranges
}

// passed claims, and moves the cursor where there is nothing to claim.
func (w *logWorld) passed(group string, want int) []string {
	w.Helper()
	tx := w.begin()
	p := w.page(tx, w.lineOf(group), want)
	b, texts := w.takeOf(tx, p, nil)
	require.NoError(w, tx.pass(w.ctx, p))
	w.commit(tx)
	if len(texts) > 0 {
		leased, _ := w.inWork(b)
		require.ElementsMatch(w, b.places, leased, "the batch has what was taken")
	}
	return texts
}

// cursor is the place of the group's cursor.
func (w *logWorld) cursor(group string) (pos int64) {
	w.Helper()
	line := w.lineOf(group)
	sql := w.names.in(`SELECT c.pos FROM {p:log_cursor_of}($1, $2, $3, nullif($4::text, '')::pg_snapshot) AS c`)
	require.NoError(w, w.pool.QueryRow(w.ctx, sql, line.args()...).Scan(&pos))
	return pos
}

func TestLogSkips(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	t.Run("many rows that follow one another are skipped by one entry", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append("first")
		w.append(numbered("k", 0, 200)...)
		w.append("last")
		w.skipText("a", numbered("k", 0, 200)...)
		singles, ranges := w.entries()
		require.Equal(t, [2]int{0, 1}, [2]int{singles, ranges})
		w.requireClaims("a", "first", "last")
	})
	t.Run("rows between which others are stay single", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		var skip, stay []string
		for i := range 200 {
			w.append(fmt.Sprint("s", i), fmt.Sprint("k", i))
			skip, stay = append(skip, fmt.Sprint("s", i)), append(stay, fmt.Sprint("k", i))
		}
		w.skipText("a", skip...)
		singles, ranges := w.entries()
		require.Equal(t, [2]int{200, 0}, [2]int{singles, ranges})
		w.requireClaims("a", stay...)
	})
	t.Run("a row that was open in a range comes, before and behind the cursor", func(t *testing.T) {
		for _, claims := range []bool{false, true} {
			w := db.world(t)
			w.register("a", true)
			w.append(numbered("k", 0, 100)...)
			x := w.open("x")
			w.append(numbered("k", 100, 100)...)
			w.append("last")
			w.skipText("a", numbered("k", 0, 200)...)
			_, ranges := w.entries()
			require.Equal(t, 1, ranges)
			if claims {
				require.Equal(t, []string{"last"}, w.passed("a", 9))
				w.commit(x)
				w.requireClaims("a", "x")
			} else {
				w.commit(x)
				w.requireClaims("a", "x", "last")
			}
		}
	})
	t.Run("a row of a range that came later is skipped by an entry of its own", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append(numbered("k", 0, 100)...)
		x := w.open(numbered("x", 0, 100)...)
		w.append(numbered("k", 100, 100)...)
		w.skipText("a", numbered("k", 0, 200)...)
		w.commit(x)
		w.skipText("a", numbered("x", 10, 80)...)
		w.requireClaims("a", append(numbered("x", 0, 10), numbered("x", 90, 10)...)...)
	})
	t.Run("a page of nothing but skipped rows moves the cursor", func(t *testing.T) {
		for _, n := range []int{10, 1000} { // single ones, and a range
			w := db.world(t)
			w.register("a", true)
			w.append(numbered("k", 0, n)...)
			places, _ := w.places()
			w.skipText("a", numbered("k", 0, n)...)
			require.Empty(t, w.passed("a", 5))
			require.Equal(t, places[n-1], w.cursor("a"))
			x := w.open("x")
			w.append("1")
			require.Equal(t, []string{"1"}, w.passed("a", 5))
			w.commit(x)
			w.requireClaims("a", "x")
		}
	})
	t.Run("a transaction that was open when the cursor passed a range is read behind it", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		w.append(numbered("k", 0, 100)...)
		x := w.open("x")
		w.append(numbered("k", 100, 100)...)
		w.skipText("a", numbered("k", 0, 200)...)
		require.Empty(t, w.passed("a", 5))
		w.commit(x)
		w.requireClaims("a", "x")
	})
	t.Run("a page finds the rows between skipped ones by one search", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		for range 50 {
			w.append(numbered("k", 0, 100)...)
		}
		without := w.pageBlocks("a", 1000)
		places, _ := w.places()
		var every []int64
		for i := 0; i < len(places); i += 2 {
			every = append(every, places[i])
		}
		require.Len(t, w.skips("a", every...), len(every))
		// Twice as many rows, and the skips themselves: a search for each would read three blocks more for each row.
		require.Less(t, w.pageBlocks("a", 1000), 4*without)
	})
}

// TestLogSkips_Walk makes random steps, and compares what a chain gives, and what is skipped, with what was appended.
func TestLogSkips_Walk(t *testing.T) {
	t.Parallel()
	db := newLogDB(t, ">= 64", ">= 3") // many ranges
	ranges := 0
	for seed := range testenv.Steps(10, 40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := db.world(t)
			ranges += w.walkSkips(rand.New(rand.NewPCG(uint64(seed), 1)))
		})
	}
	require.NotZero(t, ranges)
}

func (w *logWorld) walkSkips(r *rand.Rand) (ranges int) {
	w.register("a", true)
	var open []*logTx
	count := 0
	seen := map[string]string{}
	note := func(what string, texts ...string) {
		for _, text := range texts {
			require.Empty(w, seen[text], "%s is %s", text, what)
			seen[text] = what
		}
	}
	write := func(tx *logTx) {
		n := 1 + r.IntN(8)
		w.write(tx, numbered("k", count, n)...)
		count += n
	}
	for range 60 {
		switch r.IntN(8) {
		case 0, 1:
			tx := w.begin()
			write(tx)
			w.commit(tx)
		case 2:
			tx := w.begin()
			write(tx)
			open = append(open, tx)
		case 3:
			if len(open) > 0 {
				i := r.IntN(len(open))
				if r.IntN(2) == 0 {
					write(open[i])
				}
				w.commit(open[i])
				open = slices.Delete(open, i, i+1)
			}
		case 4, 5:
			places, texts := w.places()
			if len(places) == 0 {
				continue
			}
			from := r.IntN(len(places))
			to := min(len(places), from+1+r.IntN(30))
			of := slices.Clone(places[from:to])
			if r.IntN(2) == 0 { // some of them
				of = slices.DeleteFunc(of, func(int64) bool { return r.IntN(3) == 0 })
			}
			for _, pos := range w.skips("a", of...) {
				note("skipped", texts[slices.Index(places, pos)])
			}
			_, n := w.entries()
			ranges += n
		default:
			note("given", w.passed("a", 1+r.IntN(6))...)
		}
	}
	for _, tx := range open {
		w.commit(tx)
	}
	for idle := 0; idle < 2; {
		got := w.passed("a", 7)
		note("given", got...)
		if idle++; len(got) > 0 {
			idle = 0
		}
	}
	for _, text := range numbered("k", 0, count) {
		require.NotEmpty(w, seen[text], "%s is lost", text)
	}
	return ranges
}
