package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlTopicStats counts each kind up to ?3.
	sqlTopicStats = `SELECT
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0
	AND turn IS NULL LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:turn_line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0
	AND turn IS NOT NULL LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:held} WHERE grp IS ?1 AND topic = ?2 AND stage = 1 LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:expired} WHERE grp IS ?1 AND topic = ?2 AND stage = 5 LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:aside} WHERE grp IS ?1 AND topic = ?2 AND stage = -1 LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 2
	AND available_at IS NOT NULL LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 3
	AND available_at IS NOT NULL LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 4
	AND available_at <= ?4 LIMIT ?3)),
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 4
	AND available_at > ?4 LIMIT ?3)),
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:settled} WHERE grp IS ?1 AND topic = ?2 AND stage = 6
	AND status = 'processed' LIMIT ?3)),
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:settled} WHERE grp IS ?1 AND topic = ?2 AND stage = 6
	AND status = 'dead' LIMIT ?3)),
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 2
	AND available_at > ?4 LIMIT ?3))
	+ (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 3
	AND available_at > ?4 LIMIT ?3))`
)

// sqlOldestDue returns the due time of the record that has been due longest.
var sqlOldestDue = `SELECT min(due) FROM (
	` + firstDue(`{p:records} INDEXED BY {p:line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL`) + `
	UNION ALL
	` + firstDue(`{p:records} INDEXED BY {p:turn_line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL`) + `
	UNION ALL
	` + firstDue(`{p:records} INDEXED BY {p:held} WHERE grp IS ?1 AND topic = ?2 AND stage = 1`) + `
	UNION ALL
	SELECT min(available_at) FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 2 AND available_at <= ?3
	UNION ALL
	SELECT min(available_at) FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 3 AND available_at <= ?3
	UNION ALL
	SELECT min(available_at) FROM {p:records} INDEXED BY {p:later} WHERE grp IS ?1 AND topic = ?2 AND stage = 4 AND available_at <= ?3)`

// firstDue reads the rows in the order of the appends, up to the first one that was due when it was
// appended, because later ones became due later. It reads at most 100. SQLite runs the inner query
// only as far as it needs rows, so firstDue mostly reads one row twice.
func firstDue(rows string) string {
	const first = ` ORDER BY seq LIMIT 100)`
	return `SELECT min(due) AS due FROM (SELECT max(next_at, created_at) AS due FROM ` + rows + ` AND seq <= coalesce((SELECT seq
	FROM (SELECT seq, next_at, created_at FROM ` + rows + first + ` WHERE next_at <= created_at LIMIT 1), 9223372036854775807)` + first
}

// These find the next group and topic, behind ?1 and ?2, that have records of a kind.
var (
	sqlNextLine    = nextIn(`{p:records} INDEXED BY {p:line} WHERE stage = 0 AND turn IS NULL`)
	sqlNextTurns   = nextIn(`{p:records} INDEXED BY {p:turn_line} WHERE stage = 0 AND turn IS NOT NULL`)
	sqlNextHeld    = nextIn(`{p:records} INDEXED BY {p:held} WHERE stage = 1`)
	sqlNextLater   = nextIn(`{p:records} INDEXED BY {p:later} WHERE available_at IS NOT NULL`)
	sqlNextExpired = nextIn(`{p:records} INDEXED BY {p:expired} WHERE stage = 5`)
	sqlNextAsides  = nextIn(`{p:records} INDEXED BY {p:aside} WHERE stage = -1`)
	sqlNextSettled = nextIn(`{p:records} INDEXED BY {p:settled} WHERE stage = 6`)
)

// nextIn searches for the next topic of the group, and then, if there is none, for the next group.
// A comparison of (grp, topic) would read all records that are equal to the last ones.
func nextIn(rows string) string {
	return `SELECT grp, topic FROM (
	SELECT ?1 AS grp, (SELECT min(topic) FROM ` + rows + ` AND grp = ?1 AND topic > ?2) AS topic
	UNION ALL
	SELECT g.grp, (SELECT min(topic) FROM ` + rows + ` AND grp = g.grp) FROM (SELECT min(grp) AS grp FROM ` + rows + ` AND grp > ?1) AS g)
WHERE topic IS NOT NULL LIMIT 1`
}

// Stats counts the records of each group and topic. See outmill.Inspector.
func (s *Store) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	const operation = "stats"
	limit, err := storekit.CheckStats(limit)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var found []outmill.TopicStats
	err = s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		keys, err := t.topicsWithRecords(ctx, []string{
			sqlNextLine, sqlNextTurns, sqlNextHeld, sqlNextLater, sqlNextExpired, sqlNextAsides, sqlNextSettled,
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(keys, func(a, b groupTopic) int { return cmp.Compare(a.group.String, b.group.String) })
		found = make([]outmill.TopicStats, len(keys))
		for i, key := range keys {
			if found[i], err = t.stats(ctx, key, limit); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// groupTopic is a topic of a group, or one of no group.
type groupTopic struct {
	group sql.NullString
	topic string
}

// topicsWithRecords finds the topics by one search each in the indexes that the statements
// name, and adds the topics of records without a group.
func (t *txn) topicsWithRecords(ctx context.Context, next []string) ([]groupTopic, error) {
	var list []groupTopic
	for _, template := range next {
		var group, topic string
		for {
			found, err := t.one(ctx, []any{&group, &topic}, template, group, topic)
			if err != nil {
				return nil, err
			}
			if !found {
				break
			}
			list = append(list, groupTopic{sql.NullString{String: group, Valid: true}, topic})
		}
	}
	slices.SortFunc(list, func(a, b groupTopic) int {
		return cmp.Or(cmp.Compare(a.group.String, b.group.String), cmp.Compare(a.topic, b.topic))
	})
	list = slices.Compact(list)
	unrouted, err := t.texts(ctx, sqlUnroutedTopics)
	for _, topic := range unrouted {
		list = append(list, groupTopic{topic: topic})
	}
	return list, err
}

func (t *txn) stats(ctx context.Context, key groupTopic, limit int) (outmill.TopicStats, error) {
	stats := outmill.TopicStats{Group: key.group.String, Topic: key.topic}
	_, err := t.one(ctx, []any{&stats.Pending, &stats.Leased, &stats.Processed, &stats.Dead, &stats.Delayed},
		sqlTopicStats, key.group, key.topic, limit, t.now)
	if err != nil {
		return stats, err
	}
	stats.Pending, stats.Delayed = min(stats.Pending, limit), min(stats.Delayed, limit)
	stats.OldestDue, err = t.oldestDue(ctx, key)
	return stats, err
}

// dueAtOnce is the number of records of each kind that are compared with the pauses.
const dueAtOnce = 1000

// oldestDue returns the due time of the record that has been due longest and is not paused;
// zero if there is none.
func (t *txn) oldestDue(ctx context.Context, of groupTopic) (time.Time, error) {
	if t.pauses.Topic(of.group.String, of.topic) {
		return time.Time{}, nil
	}
	if !t.pauses.HasParts() && !t.asides {
		var oldest sql.NullInt64
		_, err := t.one(ctx, []any{&oldest}, sqlOldestDue, of.group, of.topic, t.now)
		return nullTime(oldest), err
	}
	found, err := t.firstWaiting(ctx, of, dueAtOnce)
	return found.OldestUnpaused(func(r storekit.WaitingRecord) bool {
		return t.pauses.Of(of.group.String, of.topic, r.Key, r.TenantID) != 0
	}), err
}
