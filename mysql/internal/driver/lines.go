package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlLines finds the lines of a group by a loose scan of the index.
	sqlLines = `SELECT DISTINCT r.grp, r.topic FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = ?`

	// sqlNotedLines finds the lines of a group that have notes.
	sqlNotedLines = `SELECT DISTINCT n.grp, n.topic FROM {p:notes} AS n FORCE INDEX (PRIMARY) WHERE n.grp = ?`

	sqlAnyLines = `SELECT a.topic FROM (?) AS a UNION SELECT b.topic FROM (?) AS b`

	// sqlDue finds the lines of a list that may have something to claim, those first whose rows have been due longest. ?2 are the blockers of
	// notes that do not block, and ?3 says whether rows that are held under keys count. A time that somebody has written by hand is that of a
	// row, whatever it is.
	sqlDue = `SELECT d.topic FROM (SELECT l.topic, LEAST(
	COALESCE((SELECT ` + dueSince + ofLineFirst + `0` + firstByWake + `), ` + none + `),
	COALESCE((SELECT ` + dueIfOver + ofLineFirst + `2` + firstByWake + `), ` + none + `),
	COALESCE((SELECT ` + dueIfOver + ofLineFirst + `3` + firstByWake + `), ` + none + `),
	COALESCE((SELECT ` + dueIfOver + ofLineFirst + `4` + firstByWake + `), ` + none + `),
	IF(EXISTS (SELECT 1 FROM {p:notes} AS n FORCE INDEX (blockers) WHERE n.grp = ?1 AND n.topic = l.topic AND n.blocker IN (?2)),
		0, ` + none + `),
	IF(EXISTS (SELECT 1 FROM {p:notes} AS n FORCE INDEX (looking) WHERE n.grp = ?1 AND n.topic = l.topic AND n.look_at > 0
		AND n.look_at <= ?4), 1, ` + none + `),
	COALESCE((SELECT IF(?3, ` + dueSince + `, NULL)` + ofLineFirst + `1` + firstByWake + `), ` + none + `)) AS since
	FROM (?5) AS l) AS d WHERE d.since < ` + none + ` ORDER BY d.since, d.topic`
	dueSince    = `LEAST(GREATEST(r.next_at, r.created_at), 9223372036854775806)`
	dueIfOver   = `IF(r.wake_at <= ?4, r.wake_at, NULL)`
	ofLineFirst = ` FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = ?1 AND r.topic = l.topic AND r.slot = `
	firstByWake = ` ORDER BY r.wake_at, r.seq LIMIT 1`

	sqlPausing = `SELECT DISTINCT n.blocker FROM {p:notes} AS n FORCE INDEX (pauses) WHERE n.paused = 1 AND n.grp = ?`

	// sqlUnrouted locks the first rows that wait for a group, and sqlAdopt gives them to one.
	sqlUnrouted = `SELECT r.seq FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = x'' AND r.topic = ? AND r.slot IN (0, 3)
	ORDER BY r.seq LIMIT ?`
	sqlAdopt = `UPDATE {p:records} SET grp = ? WHERE seq IN (?) AND grp = x'' AND stage IN (0, 3)`
)

// Due returns the lines that may have something to claim.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	var lines fragment
	if ask.Lines == nil {
		lines = t.d.part(sqlAnyLines, t.d.part(sqlLines, ask.Group), t.d.part(sqlNotedLines, ask.Group))
	} else {
		names := make([]fragment, len(ask.Lines))
		for i, line := range ask.Lines {
			names[i] = t.d.part(`SELECT ? AS topic`, line.Name())
		}
		if len(names) == 0 {
			return nil, nil
		}
		lines = union(names)
	}
	return list(ctx, t, sqlkit.LineIn(ask.Group), sqlDue, ask.Group, ask.Free, ask.Held, t.state.Now, lines)
}

// LinesOf returns the lines of groups.
func (t *tx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return driver.LinesOfEach(ctx, groups, func(ctx context.Context, group string) ([]driver.Line, error) {
		return list(ctx, t, sqlkit.LineIn(group), `SELECT a.topic FROM (?) AS a`, t.d.part(sqlLines, group))
	})
}

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return list(ctx, t, sqlkit.One[string], sqlPausing, group)
}

// Adopt gives rows to a group, in their order.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	seqs, err := list(ctx, t, sqlkit.One[int64], sqlUnrouted, from.Name(), limit)
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	return t.exec(ctx, sqlAdopt, group, seqs)
}
