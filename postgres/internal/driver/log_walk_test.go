package driver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// logWalk makes random steps with open transactions, claims of two topics in one transaction, registrations and moves, one after the other,
// and compares what each chain gives with what it must give: each row that was not committed as of its begin, once, and each group
// a row once for as long as it lives.
type logWalk struct {
	*rapid.T
	*logWorld
	strict bool // all rows of a page are taken, so the order must hold
	step   int
	open   []*appending
	rows   map[string]*written
	topics []*walkTopic
	began  map[int64]int      // the step at which a chain began
	known  map[string]logLine // what a slow process knows, by topic and group
	slow   *claiming
}

// walkTopic has what the chains of a topic have given.
type walkTopic struct {
	line   driver.Line
	given  map[int64][]string
	skips  map[int64]map[string]bool
	groups map[string]map[string]bool
}

// claiming is a claim that other steps come between.
type claiming struct {
	tx     *logTx
	line   logLine
	locked bool
	page   *logPage
	more   []int // topics
}

// appending is an open transaction.
type appending struct {
	tx   *logTx
	rows []*written
}

type written struct {
	text                string
	topic               int
	appended, committed int // steps; 0 is not yet
	gone                bool
}

func newLogWalk(t *rapid.T, w *logWorld) *logWalk {
	walk := &logWalk{
		T: t, logWorld: w, strict: rapid.Bool().Draw(t, "strict"), rows: map[string]*written{}, began: map[int64]int{0: -1},
		known: map[string]logLine{},
	}
	for _, name := range []string{w.line.Topic, w.line.Topic + " two"} {
		walk.topics = append(walk.topics, &walkTopic{
			line: driver.Line{Topic: name}, given: map[int64][]string{}, skips: map[int64]map[string]bool{}, groups: map[string]map[string]bool{},
		})
	}
	return walk
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

// hides leaves a transaction open that is behind the end of the snapshots, although its row is before one that they show.
func (w *logWalk) hides(t *rapid.T) {
	if len(w.open) >= 4 {
		t.Skip("enough transactions")
	}
	w.hidesOn(w.on(t))
}

func (w *logWalk) hidesOn(topic int) {
	w.line = w.topics[topic].line
	early, late := &appending{tx: w.begin()}, &appending{tx: w.begin()}
	w.exec(early.tx, "SELECT pg_current_xact_id()")
	w.writes(late, topic)
	w.writes(early, topic)
	w.open = append(w.open, late, early)
	w.finishAt(len(w.open)-1, false)
}

func (w *logWalk) drawOpen(t *rapid.T) int {
	if len(w.open) == 0 {
		t.Skip("no transaction is open")
	}
	return rapid.IntRange(0, len(w.open)-1).Draw(t, "transaction")
}

// on draws a topic, of which the world is then.
func (w *logWalk) on(t *rapid.T) int {
	topic := rapid.IntRange(0, 1).Draw(t, "topic")
	w.line = w.topics[topic].line
	return topic
}

func (w *logWalk) append(t *rapid.T) {
	o, topic := w.open[w.drawOpen(t)], w.on(t)
	for range rapid.IntRange(1, 3).Draw(t, "rows") {
		w.writes(o, topic)
	}
}

func (w *logWalk) writes(o *appending, topic int) {
	r := &written{text: fmt.Sprint("r", len(w.rows)), topic: topic, appended: w.step}
	w.rows[r.text] = r
	o.rows = append(o.rows, r)
	w.write(o.tx, r.text)
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
func (w *logWalk) living(t *rapid.T) int { return drawLiving(t, w.readings) }

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

// drops drops a group. Until the drop has ended, what it gives back comes before what waits.
func (w *logWalk) drops(t *rapid.T) {
	group := w.readings[w.living(t)].group
	for i := range w.readings {
		if r := &w.readings[i]; r.group == group && r.ended == 0 {
			w.readingEnds(i)
			r.dropping = rapid.Bool().Draw(t, "dropping")
		}
	}
}

func (w *logWalk) lives(group string) bool {
	return slices.ContainsFunc(w.readings, func(r logReading) bool { return r.group == group && r.ended == 0 })
}

// readingEnds ends a reading. A group that comes back may get the row of another group that has gone, although it had its own.
func (w *logWalk) readingEnds(i int) {
	w.ends(i)
	for _, topic := range w.topics {
		if group := w.readings[i].group; !w.lives(group) {
			delete(topic.groups, group)
		}
	}
}

func (w *logWalk) dropsEnd(t *rapid.T) {
	w.event(func(*logTx, int64, logMark) {
		for i := range w.readings {
			w.readings[i].dropping = false
		}
	})
}

func (w *logWalk) expires(t *rapid.T) {
	i := w.living(t)
	w.readingEnds(i)
	if rapid.Bool().Draw(t, "sweep") {
		w.sweepAt(i, w.step)
	}
}

func (w *logWalk) sweepAt(i, ended int) {
	w.sweep(i)
	w.began[w.readings[i].swept] = ended
}

// lineFor is what a process that claims knows: the newest registrations, or those of before. It ends the step if it knows of nothing.
func (w *logWalk) lineFor(t *rapid.T, topic int, group string) logLine {
	key := fmt.Sprint(topic, group)
	line, known := w.known[key]
	if !known || rapid.IntRange(0, 3).Draw(t, "slow") > 0 {
		line = w.lineOf(group)
		w.known[key] = line
	}
	return line
}

// claims claims from one topic or both, in one transaction.
func (w *logWalk) claims(t *rapid.T) {
	topic, group := w.on(t), w.readings[w.living(t)].group
	c := &claiming{tx: w.begin(), line: w.lineFor(t, topic, group)}
	if rapid.Bool().Draw(t, "both") {
		c.more = []int{1 - topic, topic, 1 - topic}[:rapid.IntRange(1, 3).Draw(t, "topics")]
	}
	if w.slow == nil && rapid.Bool().Draw(t, "slow claim") {
		w.slow = c
		return
	}
	for !w.claimGoesOn(t, c, group) {
	}
}

// goesOn is the next statement of the slow claim.
func (w *logWalk) goesOn(t *rapid.T) {
	if w.slow == nil {
		t.Skip("no claim is slow")
	}
	if w.claimGoesOn(t, w.slow, w.slow.line.group) {
		w.slow = nil
	}
}

// claimGoesOn reports whether the claim has ended. Of a topic it has a page, then takes, and then perhaps the next topic, of which
// it does not lock the chain before.
func (w *logWalk) claimGoesOn(t *rapid.T, c *claiming, group string) (over bool) {
	if c.page == nil {
		if w.isLocked(c) {
			w.commit(c.tx)
			return true
		}
		p := w.page(c.tx, c.line, rapid.IntRange(1, 5).Draw(t, "want"))
		// Records with places before have no room for the others.
		p.rows = p.rows[:min(len(p.rows), rapid.IntRange(0, 9).Draw(t, "room"))]
		c.page, c.locked = &p, true
		return false
	}
	w.takePage(t, c.tx, *c.page)
	c.page = nil
	if len(c.more) == 0 {
		w.commit(c.tx)
		return true
	}
	topic := c.more[0]
	c.more = c.more[1:]
	w.line = w.topics[topic].line
	if !w.lives(group) {
		w.commit(c.tx)
		return true
	}
	c.line = w.lineFor(t, topic, group)
	if len(w.open) < 4 && rapid.Bool().Draw(t, "hide") {
		w.hidesOn(topic)
	}
	return false
}

// isLocked reports whether the claim would wait for the slow one, or that for it.
func (w *logWalk) isLocked(c *claiming) bool { return w.slow != nil && c != w.slow && w.slow.locked }

// mayLock ends the step if it would wait for the slow claim.
func (w *logWalk) mayLock(t *rapid.T) {
	if w.slow != nil && w.slow.locked {
		t.Skip("a claim has the chain")
	}
}

func (w *logWalk) topicOf(p logPage) *walkTopic {
	return w.topics[slices.IndexFunc(w.topics, func(topic *walkTopic) bool { return topic.line.Name() == p.topic })]
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
		w.give(w.topicOf(p), p.chain, p.group, text)
	}
	if len(gave) > 0 {
		w.checkCursors(tx, p)
	}
	if len(texts) > 0 {
		w.checkBatch(tx, b)
	}
}

// moves skips rows of a group's chain, as an operator's deletion does.
func (w *logWalk) moves(t *rapid.T) {
	w.mayLock(t)
	topic := w.on(t)
	line := w.lineFor(t, topic, w.readings[w.living(t)].group)
	tx := w.begin()
	rows, err := tx.Query(w.ctx, w.names.in("SELECT pos, id FROM {p:log} WHERE topic = $1 ORDER BY pos"), line.topic)
	require.NoError(w.T, err)
	all := map[int64]string{}
	var places []int64
	for rows.Next() {
		var pos int64
		var id outmill.WorkItemID
		require.NoError(w.T, rows.Scan(&pos, (*[16]byte)(&id)))
		all[pos] = w.texts[id]
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
	if line.stamp != w.stamp {
		require.Empty(w.T, skipped, "a process that knows old registrations")
	}
	skips := w.topics[topic].skips
	for _, pos := range skipped {
		if skips[line.chain] == nil {
			skips[line.chain] = map[string]bool{}
		}
		require.NotContains(w.T, w.topics[topic].given[line.chain], all[pos])
		skips[line.chain][all[pos]] = true
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
	w.dropsEnd(t)
	for i := range w.readings {
		if w.readings[i].ended == 0 && w.readings[i].takes == 0 {
			w.take(i)
		}
	}
	for _, topic := range w.topics {
		w.line = topic.line
		for group, chain := range logChainsOf(w.readings, w.line.Topic).of {
			for {
				_, texts := w.claim(group, 3)
				if len(texts) == 0 {
					break
				}
				for _, text := range texts {
					w.give(topic, chain, group, text)
				}
			}
			got := slices.Clone(topic.given[chain])
			for text := range topic.skips[chain] {
				got = append(got, text)
			}
			for _, text := range w.expected(topic, chain) {
				require.Contains(t, got, text, "lost in chain %d", chain)
			}
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
			"begin": next(w.beginTx), "append": next(w.append), "write": next(w.append), "hide": next(w.hides), "finish": next(w.finish),
			"claim": next(w.claims), "claim again": next(w.claims), "go on": next(w.goesOn), "move": next(w.moves),
			"register": next(w.registers), "take": next(w.takes), "drop": next(w.drops), "drop ends": next(w.dropsEnd), "expire": next(w.expires),
		})
		w.drain(rt)
	})
}
