package driver

import (
	"slices"

	"github.com/stretchr/testify/require"
)

// checkBatch checks that what is in work is what was taken.
func (w *logWalk) checkBatch(tx *logTx, b logBatch) {
	rows, err := tx.Query(w.ctx, w.names.text("log_rows", false), b.topic, b.chain, b.n)
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

// checkCursors checks that no cursor goes back.
func (w *logWalk) checkCursors(tx *logTx, p logPage) {
	var back int
	require.NoError(w.T, tx.QueryRow(w.ctx, w.names.in(`SELECT count(*) FROM {p:batches} AS b JOIN {p:batches} AS later
		ON later.topic = b.topic AND later.chain = b.chain AND later.n = b.n + 1
		WHERE b.topic = $1 AND b.chain = $2 AND (later.pos < b.pos OR later.bound < b.bound OR later.bound > later.pos
			OR pg_snapshot_xmax(later.seen) < pg_snapshot_xmax(b.seen))`), p.topic, p.chain).Scan(&back))
	require.Zero(w.T, back, "a cursor goes back")
}

// give notes that a chain has given a row.
func (w *logWalk) give(topic *walkTopic, chain int64, group, text string) {
	require.NotContains(w.T, topic.given[chain], text, "chain %d gives it again", chain)
	require.False(w.T, topic.skips[chain][text], "chain %d gives a skipped row", chain)
	require.Contains(w.T, w.expected(topic, chain), text, "chain %d", chain)
	if w.lives(group) {
		if topic.groups[group] == nil {
			topic.groups[group] = map[string]bool{}
		}
		require.False(w.T, topic.groups[group][text], "%s gets %s again", group, text)
		topic.groups[group][text] = true
	}
	if w.strict {
		for _, earlier := range w.expected(topic, chain) {
			if w.rows[earlier].committed < w.rows[text].appended && !slices.Contains(topic.given[chain], earlier) && !topic.skips[chain][earlier] {
				require.Failf(w.T, "out of order", "chain %d gives %s before %s", chain, text, earlier)
			}
		}
	}
	topic.given[chain] = append(topic.given[chain], text)
}

// expected are the rows of a chain that are committed.
func (w *logWalk) expected(topic *walkTopic, chain int64) (texts []string) {
	for text, r := range w.rows {
		if w.topics[r.topic] == topic && r.committed > w.began[chain] && r.committed != 0 && !r.gone {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}
