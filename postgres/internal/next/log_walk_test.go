package next

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// logWalk makes random steps with open transactions, claims, registrations and moves, one after the other, and compares what each
// chain gives with what it must give: each row that was not committed as of its begin, once.
type logWalk struct {
	*rapid.T
	*logWorld
	strict bool // all rows of a page are taken, so the order must hold
	step   int
	open   []*appending
	rows   map[string]*written
	began  map[int64]int // the step at which a chain began
	given  map[int64][]string
	skips  map[int64]map[string]bool
	lines  map[string]logLine // what a slow process knows
	slow   *claiming
}

// claiming is a claim that other steps come between.
type claiming struct {
	tx   *logTx
	line logLine
	page *logPage
}

// appending is an open transaction.
type appending struct {
	tx   *logTx
	rows []*written
}

type written struct {
	text                string
	appended, committed int // steps; 0 is not yet
	gone                bool
}

func newLogWalk(t *rapid.T, w *logWorld) *logWalk {
	return &logWalk{T: t, logWorld: w, strict: rapid.Bool().Draw(t, "strict"), rows: map[string]*written{}, began: map[int64]int{0: -1},
		given: map[int64][]string{}, skips: map[int64]map[string]bool{}, lines: map[string]logLine{}}
}

// beginTx opens a transaction, which perhaps gets its number now and its places later.
func (w *logWalk) beginTx(t *rapid.T) {
	if len(w.open) == 4 {
		t.Skip("enough transactions")
	}
	o := &appending{tx: w.begin()}
	if rapid.Bool().Draw(t, "number") {
		w.exec(o.tx, "SELECT pg_current_xact_id()")
	}
	w.open = append(w.open, o)
}

func (w *logWalk) drawOpen(t *rapid.T) int {
	if len(w.open) == 0 {
		t.Skip("no transaction is open")
	}
	return rapid.IntRange(0, len(w.open)-1).Draw(t, "transaction")
}

func (w *logWalk) append(t *rapid.T) {
	o := w.open[w.drawOpen(t)]
	for range rapid.IntRange(1, 3).Draw(t, "rows") {
		r := &written{text: "r" + string(rune('a'+len(w.rows)%26)) + string(rune('0'+len(w.rows)/26)), appended: w.step}
		w.rows[r.text] = r
		o.rows = append(o.rows, r)
		w.write(o.tx, r.text)
	}
}

func (w *logWalk) finish(t *rapid.T) {
	w.finishAt(w.drawOpen(t), rapid.IntRange(0, 4).Draw(t, "rollback") == 0)
}

func (w *logWalk) finishAt(i int, rollback bool) {
	o := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	for _, r := range o.rows {
		r.committed, r.gone = w.step, rollback
	}
	if rollback {
		require.NoError(w.T, o.tx.Rollback(w.ctx))
		return
	}
	w.commit(o.tx)
}

// living draws a reading that lives.
func (w *logWalk) living(t *rapid.T) int {
	var living []int
	for i, r := range w.readings {
		if r.ended == 0 {
			living = append(living, i)
		}
	}
	if len(living) == 0 {
		t.Skip("nobody reads")
	}
	return rapid.SampledFrom(living).Draw(t, "reading")
}

func (w *logWalk) registers(t *rapid.T) {
	w.register(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group"), rapid.IntRange(0, 3).Draw(t, "hold") > 0)
	w.began[w.readings[len(w.readings)-1].number] = w.step
}

func (w *logWalk) takes(t *rapid.T) {
	i := w.living(t)
	if w.readings[i].takes != 0 {
		t.Skip("it takes")
	}
	w.take(i)
}

func (w *logWalk) drops(t *rapid.T) { w.drop(w.readings[w.living(t)].group) }

func (w *logWalk) expires(t *rapid.T) {
	i := w.living(t)
	w.expire(i)
	w.began[w.readings[i].ended] = w.step
}

// claims claims as a process that knows the newest registrations, or those of its last claim.
func (w *logWalk) claims(t *rapid.T) {
	group := w.readings[w.living(t)].group
	line, known := w.lines[group]
	if !known || rapid.IntRange(0, 3).Draw(t, "slow") > 0 {
		line = w.lineOf(group)
		w.lines[group] = line
	}
	w.mayLock(t, line)
	if w.slow == nil && rapid.Bool().Draw(t, "slow claim") {
		w.slow = &claiming{tx: w.begin(), line: line}
		_, err := w.slow.tx.Exec(w.ctx, w.names.text("lock", false), line.lock(w.names))
		require.NoError(w.T, err)
		require.NoError(w.T, w.slow.tx.readPlace(w.ctx))
		return
	}
	tx := w.begin()
	for range rapid.IntRange(1, 2).Draw(t, "pages") {
		w.takePage(t, tx, w.page(tx, line, rapid.IntRange(1, 5).Draw(t, "want")))
	}
	w.commit(tx)
}

// mayLock ends the step if it would wait for the slow claim.
func (w *logWalk) mayLock(t *rapid.T, line logLine) {
	if w.slow != nil && w.slow.line.chain == line.chain {
		t.Skip("a claim has the chain")
	}
}

// goesOn is the next statement of the slow claim.
func (w *logWalk) goesOn(t *rapid.T) {
	c := w.slow
	switch {
	case c == nil:
		t.Skip("no claim is slow")
	case c.page == nil:
		p := w.page(c.tx, c.line, rapid.IntRange(1, 5).Draw(t, "want"))
		c.page = &p
	default:
		w.slow = nil
		w.takePage(t, c.tx, *c.page)
		w.commit(c.tx)
	}
}

// takePage decides about the rows of a page.
func (w *logWalk) takePage(t *rapid.T, tx *logTx, p logPage) {
	stopped, gave := false, []string{}
	b, texts := w.takeOf(tx, p, func(r logRow) logFate {
		switch n := rapid.IntRange(0, 9).Draw(t, "fate"); {
		case stopped, w.strict && n == 0:
			stopped = true
			return logUndecided
		case !w.strict && n < 3:
			return logUndecided
		case n == 9:
			gave = append(gave, w.texts[r.id])
			return logMoved
		}
		gave = append(gave, w.texts[r.id])
		return logTaken
	})
	for _, text := range gave {
		w.give(p.chain, text)
	}
	if len(texts) > 0 {
		w.checkBatch(tx, b)
	}
}

// checkBatch checks that what is in work is what was taken.
func (w *logWalk) checkBatch(tx *logTx, b logBatch) {
	rows, err := tx.Query(w.ctx, w.names.text("log_rows", false), b.line, b.chain, b.n)
	require.NoError(w.T, err)
	places := []int64{}
	for rows.Next() {
		var nth int
		var pos int64
		require.NoError(w.T, rows.Scan(&nth, &pos))
		places = append(places, pos)
	}
	require.NoError(w.T, rows.Err())
	require.Equal(w.T, b.places, places)
}

// give notes that a chain has given a row.
func (w *logWalk) give(chain int64, text string) {
	require.NotContains(w.T, w.given[chain], text, "chain %d gives it again", chain)
	require.False(w.T, w.skips[chain][text], "chain %d gives a skipped row", chain)
	require.Contains(w.T, w.expected(chain), text, "chain %d", chain)
	if w.strict {
		for _, earlier := range w.expected(chain) {
			if w.rows[earlier].committed < w.rows[text].appended && !slices.Contains(w.given[chain], earlier) && !w.skips[chain][earlier] {
				require.Failf(w.T, "out of order", "chain %d gives %s before %s", chain, text, earlier)
			}
		}
	}
	w.given[chain] = append(w.given[chain], text)
}

// expected are the rows of a chain that are committed.
func (w *logWalk) expected(chain int64) (texts []string) {
	for text, r := range w.rows {
		if r.committed > w.began[chain] && r.committed != 0 && !r.gone {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}

// moves skips rows of a group's chain, as an operator's deletion does.
func (w *logWalk) moves(t *rapid.T) {
	line := w.lineOf(w.readings[w.living(t)].group)
	w.mayLock(t, line)
	tx := w.begin()
	rows, err := tx.Query(w.ctx, w.names.in("SELECT pos, id::text FROM {p:log} WHERE line = $1 ORDER BY pos"), line.line)
	require.NoError(w.T, err)
	all := map[int64]string{}
	var places []int64
	for rows.Next() {
		var pos int64
		var id string
		require.NoError(w.T, rows.Scan(&pos, &id))
		for known, text := range w.texts {
			if known.String() == id {
				all[pos] = text
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
			places = append(places, pos)
		}
	}
	require.NoError(w.T, rows.Err())
	if len(places) == 0 {
		w.commit(tx)
		t.Skip("nothing to skip")
	}
	skipped, err := tx.skip(w.ctx, line, places)
	require.NoError(w.T, err)
	for _, pos := range skipped {
		if w.skips[line.chain] == nil {
			w.skips[line.chain] = map[string]bool{}
		}
		require.NotContains(w.T, w.given[line.chain], all[pos])
		w.skips[line.chain][all[pos]] = true
	}
	w.commit(tx)
}

// drain ends all transactions, and claims everything.
func (w *logWalk) drain(t *rapid.T) {
	for len(w.open) > 0 {
		w.step++
		w.finishAt(0, false)
	}
	w.step++
	for w.slow != nil {
		w.goesOn(t)
	}
	w.strict = false
	for i := range w.readings {
		if w.readings[i].ended == 0 && w.readings[i].takes == 0 {
			w.take(i)
		}
	}
	chains := logChainsOf(w.readings, w.line.Topic)
	for group, chain := range chains.of {
		for {
			tx := w.begin()
			p := w.page(tx, w.lineOf(group), 3)
			_, texts := w.takeOf(tx, p, nil)
			w.commit(tx)
			if len(texts) == 0 {
				break
			}
			for _, text := range texts {
				w.give(chain, text)
			}
		}
		got := slices.Clone(w.given[chain])
		for text := range w.skips[chain] {
			got = append(got, text)
		}
		slices.Sort(got)
		want := w.expected(chain)
		for _, text := range want {
			require.Contains(t, got, text, "lost in chain %d", chain)
		}
	}
}

func TestLog_Walk(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := newLogWalk(rt, db.world(t))
		defer w.close()
		next := func(run func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				w.step++
				run(t)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"begin": next(w.beginTx), "append": next(w.append), "write": next(w.append), "finish": next(w.finish), "claim": next(w.claims),
			"claim again": next(w.claims), "register": next(w.registers), "take": next(w.takes), "drop": next(w.drops),
			"expire": next(w.expires), "move": next(w.moves), "go on": next(w.goesOn),
		})
		w.drain(rt)
	})
}
