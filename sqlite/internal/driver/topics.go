package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

const (
	// sqlState begins each transaction.
	sqlState = `SELECT version, routes, pauses, EXISTS (SELECT 1 FROM {p:notes}),
	EXISTS (SELECT 1 FROM {p:notes} INDEXED BY {p:notes_paused} WHERE blocker >= 'p' AND blocker < 'r'),
	EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:unrouted} WHERE grp = '' AND stage IN (0, 3)) FROM {p:meta} WHERE only_row = 1`

	// topicsOf finds the topics of the group ?1 by one search of an index for each, so its cost grows with the topics
	// and not with their rows. It begins with '', and ends with NULL.
	topicsOf = `
	line (topic) AS (SELECT '' UNION ALL SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:line}
		WHERE grp = ?1 AND stage = 0 AND topic > line.topic) FROM line WHERE topic IS NOT NULL),
	later (topic) AS (SELECT '' UNION ALL SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND wake_at <> 0 AND topic > later.topic) FROM later WHERE topic IS NOT NULL),
	held (topic) AS (SELECT '' UNION ALL SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:held}
		WHERE grp = ?1 AND stage = 1 AND topic > held.topic) FROM held WHERE topic IS NOT NULL),`

	sqlTopicsOf = `WITH RECURSIVE` + topicsOf + `
	settled (topic) AS (SELECT '' UNION ALL SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:settled}
		WHERE grp = ?1 AND stage > 4 AND topic > settled.topic) FROM settled WHERE topic IS NOT NULL)
SELECT topic FROM (SELECT topic FROM line UNION SELECT topic FROM later UNION SELECT topic FROM held UNION SELECT topic FROM settled)
WHERE topic <> ''`

	// dueSince selects the topics of t that may have something to claim, those first whose rows have been due longest. ?2
	// are the blockers of notes that do not block, ?3 says whether rows that are held under keys count.
	dueSince = `
	due (topic, since) AS MATERIALIZED (SELECT topic, min(
	coalesce((SELECT CAST(max(next_at, created_at) AS INTEGER) FROM {p:records} INDEXED BY {p:line}
		WHERE grp = ?1 AND topic = t.topic AND stage = 0 ORDER BY seq LIMIT 1), never),
	coalesce((SELECT wake_at FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = t.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= ?4 ORDER BY wake_at LIMIT 1), never),
	coalesce((SELECT wake_at FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = t.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= ?4 ORDER BY wake_at LIMIT 1), never),
	coalesce((SELECT wake_at FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = t.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= ?4 ORDER BY wake_at LIMIT 1), never),
	iif(EXISTS (SELECT 1 FROM json_each(?2) AS j CROSS JOIN {p:notes} AS n INDEXED BY {p:notes_by}
		ON n.grp = ?1 AND n.blocker = j.value AND n.topic = t.topic), 0, never),
	coalesce((SELECT look_at FROM {p:notes} INDEXED BY {p:notes_look}
		WHERE grp = ?1 AND topic = t.topic AND look_at <> 0 AND look_at <= ?4 ORDER BY look_at LIMIT 1), never),
	iif(?3, coalesce((SELECT CAST(max(next_at, created_at) AS INTEGER) FROM {p:records} INDEXED BY {p:held_under}
		WHERE grp = ?1 AND topic = t.topic AND stage = 1 AND under >= 'k' AND under < 'l' ORDER BY under, seq LIMIT 1), never), never))
	FROM t CROSS JOIN (SELECT 9223372036854775807 AS never))
SELECT topic FROM due WHERE since < 9223372036854775807 ORDER BY since, topic`

	sqlDueTopics = `WITH RECURSIVE` + topicsOf + `
	notes (blocker, topic) AS (SELECT value, '' FROM json_each(?2) UNION ALL
		SELECT blocker, (SELECT min(topic) FROM {p:notes} AS n INDEXED BY {p:notes_by}
			WHERE grp = ?1 AND n.blocker = notes.blocker AND n.topic > notes.topic) FROM notes WHERE topic IS NOT NULL),
	looks (topic) AS (SELECT '' UNION ALL SELECT (SELECT min(topic) FROM {p:notes} INDEXED BY {p:notes_look}
		WHERE grp = ?1 AND look_at <> 0 AND topic > looks.topic) FROM looks WHERE topic IS NOT NULL),
	t (topic) AS (SELECT topic FROM line UNION SELECT topic FROM later UNION SELECT topic FROM held UNION SELECT topic FROM notes
		UNION SELECT topic FROM looks),` + dueSince

	sqlDueNames = `WITH t (topic) AS (SELECT value FROM json_each(?5)),` + dueSince

	sqlPausing = `WITH RECURSIVE found (blocker) AS (SELECT 'p' UNION ALL SELECT (SELECT min(blocker) FROM {p:notes} AS n
	INDEXED BY {p:notes_paused} WHERE grp = ?1 AND blocker >= 'p' AND blocker < 'r' AND n.blocker > found.blocker)
	FROM found WHERE blocker IS NOT NULL) SELECT blocker FROM found WHERE blocker > 'p'`
)

func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	args := []any{ask.Group, jsonOf(ask.Free), ask.Held, int64(t.state.Now)}
	if ask.Lines == nil {
		return t.lines(ctx, ask.Group, sqlDueTopics, args...)
	}
	return t.lines(ctx, ask.Group, sqlDueNames, append(args, listOf(ask.Lines, (*driver.Line).Name))...)
}

func (t *tx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return driver.LinesOfEach(ctx, groups, func(ctx context.Context, group string) ([]driver.Line, error) {
		return t.lines(ctx, group, sqlTopicsOf, group)
	})
}

func (t *tx) lines(ctx context.Context, group, template string, args ...any) ([]driver.Line, error) {
	return list(ctx, t, func(v *values, line *driver.Line) { *line = driver.LineOf(group, v.text(0)) }, template, args...)
}

func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return t.texts(ctx, sqlPausing, group)
}
