package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var statsKinds = []string{"stage = -1", "stage = 0", "stage = 1", "stage IN (2, 3)", "stage = 4", "stage = 5", "stage >= 6"}

// sqlStats counts each kind of each topic up to $1.
var sqlStats = func() string {
	names := []string{"aside", "line", "held", "later", "leased", "expired", "settled"}
	text, union := "WITH RECURSIVE ", ""
	for i, name := range names {
		if i > 0 {
			union += " UNION "
		}
		text += groupTopics(name, statsKinds[i]) + ",\n"
		union += "SELECT grp, topic FROM " + name
	}
	return text + `routed AS MATERIALIZED (` + union + `), unrouted AS MATERIALIZED (` + leaps("grp IS NULL", statsKinds...) + `)
SELECT t.grp, t.topic, ` + topicCounts("grp = t.grp") + ` FROM routed AS t
UNION ALL SELECT NULL, t.topic, ` + topicCounts("grp IS NULL") + ` FROM unrouted AS t`
}()

// topicCounts counts the records of one topic. A topic's ready records are in the order of the
// appends, so the record that has been due longest is among the first.
func topicCounts(group string) string {
	of := `FROM {p:records} WHERE ` + group + ` AND topic = t.topic AND `
	count := func(kind string) string {
		return `(SELECT count(*) FROM (SELECT 1 ` + of + kind + ` LIMIT $1::bigint) AS n)`
	}
	return count(`stage = -1`) + ` + ` + count(`stage = 0`) + ` + ` + count(`stage = 1`) + ` + ` + count(`stage = 5`) + ` + ` +
		count(`stage = 2`) + ` + ` + count(`stage = 3`) + `,
	` + count(`stage = 4`) + `, ` + count(`stage = 6`) + `, ` + count(`stage = 7`) + `,
	` + count(`stage = 2 AND available_at > statement_timestamp()`) + ` + ` +
		count(`stage = 3 AND available_at > statement_timestamp()`) + `,
	(SELECT min(due) FROM (
		SELECT * FROM (SELECT greatest(next_at, created_at) AS due ` + of + `stage = 0 AND num_nulls(turn) = 1
			ORDER BY grp, topic, seq LIMIT 100) AS line
		UNION ALL SELECT * FROM (SELECT greatest(next_at, created_at) ` + of + `stage = 0 AND num_nulls(turn) = 0
			ORDER BY grp, topic, seq LIMIT 100) AS turns
		UNION ALL SELECT * FROM (SELECT greatest(next_at, created_at) ` + of + `stage = 1 ORDER BY grp, topic, seq LIMIT 100) AS held
		UNION ALL SELECT * FROM (SELECT available_at ` + of + `stage = 2 AND available_at <= statement_timestamp()
			ORDER BY grp, topic, stage, available_at LIMIT 1) AS waiting
		UNION ALL SELECT * FROM (SELECT available_at ` + of + `stage = 3 AND available_at <= statement_timestamp()
			ORDER BY grp, topic, stage, available_at LIMIT 1) AS delayed
		UNION ALL SELECT * FROM (SELECT available_at ` + of + `stage = 4 AND available_at <= statement_timestamp()
			ORDER BY grp, topic, available_at LIMIT 1) AS leased
		UNION ALL SELECT * FROM (SELECT greatest(next_at, created_at) ` + of + `stage = -1 ORDER BY grp, topic, paused_by, seq LIMIT 100)
			AS aside) AS dues)`
}

// Stats counts the records of each group and topic. See outmill.Inspector.
func (s *Store) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	const operation = "stats"
	limit, err := storekit.CheckStats(limit)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	logged, err := s.seesLog(ctx, operation)
	if err != nil {
		return nil, err
	}
	var found []outmill.TopicStats
	pauses := s.lookAtPauses()
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		found = nil
		steps := []step{pauses.step()}
		if logged {
			// The log is read first, because records move from the log to the records.
			steps = append(steps, s.logStats(&found, limit))
		}
		return t.finish(ctx, append(steps, recordStats(&found, limit))...)
	})
	if err == nil {
		err = s.leaveOutPaused(ctx, operation, pauses.list(), found, logged)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b outmill.TopicStats) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	return found, nil
}

// recordStats counts the records, and adds them to the counts of the same topics.
func recordStats(found *[]outmill.TopicStats, limit int) step {
	return step{template: sqlStats, args: []any{limit}, row: func(scan func(...any) error) error {
		var stats outmill.TopicStats
		var group *string
		var oldest pgtype.Timestamptz
		if err := scan(&group, &stats.Topic, &stats.Pending, &stats.Leased, &stats.Processed, &stats.Dead,
			&stats.Delayed, &oldest); err != nil {
			return err
		}
		if group != nil {
			stats.Group = *group
		}
		// Pending and Delayed are sums of several kinds.
		stats.Pending, stats.Delayed = min(stats.Pending, limit), min(stats.Delayed, limit)
		stats.OldestDue = utc(oldest)
		addStats(found, stats, limit)
		return nil
	}}
}
