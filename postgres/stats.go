package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// recordKinds are the kinds of records, in the order of the bits that the function kinds of the
// schema returns.
var recordKinds = []recordKind{
	{name: "aside", where: "stage = -1", pending: []string{"stage = -1"},
		due: []string{dueFirst("stage = -1", "paused_by, seq")}},
	{name: "line", where: "stage = 0", pending: []string{"stage = 0"},
		due: []string{dueFirst("stage = 0 AND num_nulls(turn) = 1", "seq"), dueFirst("stage = 0 AND num_nulls(turn) = 0", "seq")}},
	{name: "held", where: "stage = 1", pending: []string{"stage = 1"}, due: []string{dueFirst("stage = 1", "seq")}},
	{name: "later", where: "stage IN (2, 3)", pending: []string{"stage = 2", "stage = 3"},
		delayed: []string{"stage = 2 AND available_at > statement_timestamp()", "stage = 3 AND available_at > statement_timestamp()"},
		due:     []string{availableFirst("stage = 2", "stage, "), availableFirst("stage = 3", "stage, ")}},
	{name: "leased", where: "stage = 4", pending: []string{"stage = 4 AND available_at <= statement_timestamp()"},
		leased: []string{"stage = 4 AND available_at > statement_timestamp()"}, due: []string{availableFirst("stage = 4", "")}},
	{name: "expired", where: "stage = 5", pending: []string{"stage = 5"}},
	{name: "settled", where: "stage >= 6", processed: []string{"stage = 6"}, dead: []string{"stage = 7"}},
}

// recordKind is what an index finds, which of it counts as what, and how to find since when its first
// records are due.
type recordKind struct {
	name, where                               string
	pending, leased, processed, dead, delayed []string
	due                                       []string
}

// dueFirst finds since when the first records of a kind are due. They are in the order of the
// appends, so the record that has been due longest is among the first.
func dueFirst(kind, order string) string {
	return `SELECT greatest(next_at, created_at) %of AND ` + kind + ` ORDER BY grp, topic, ` + order + ` LIMIT 100`
}

func availableFirst(kind, order string) string {
	return `SELECT available_at %of AND ` + kind + ` AND available_at <= statement_timestamp() ORDER BY grp, topic, ` + order +
		`available_at LIMIT 1`
}

// statsOf counts the records of the kinds, of each topic up to $1. The first row has no topic, but the kinds
// that there are in the same snapshot. A statement for all kinds would take the server 30 ms to plan in a new
// session, and 15 ms in another.
func statsOf(kinds int) string {
	var of []recordKind
	for i, kind := range recordKinds {
		if kinds>>i&1 == 1 {
			of = append(of, kind)
		}
	}
	first := `SELECT NULL AS grp, NULL AS topic, {p:kinds}()::bigint, NULL, NULL, NULL, NULL, NULL::timestamptz`
	if len(of) == 0 {
		return first
	}
	var groups, names, wheres []string
	for _, kind := range of {
		groups, wheres = append(groups, groupTopics(kind.name, kind.where)), append(wheres, kind.where)
		names = append(names, "SELECT grp, topic FROM "+kind.name)
	}
	return `WITH RECURSIVE ` + strings.Join(groups, ",\n") + `,
routed AS MATERIALIZED (` + strings.Join(names, " UNION ") + `), unrouted AS MATERIALIZED (` + leaps("grp IS NULL", wheres...) + `)
` + first + `
UNION ALL SELECT t.grp, t.topic, ` + topicCounts(of, "grp = t.grp") + ` FROM routed AS t
UNION ALL SELECT NULL, t.topic, ` + topicCounts(of, "grp IS NULL") + ` FROM unrouted AS t`
}

// topicCounts counts the records of one topic.
func topicCounts(kinds []recordKind, group string) string {
	of := `FROM {p:records} WHERE ` + group + ` AND topic = t.topic`
	sum := func(conditions func(kind recordKind) []string) string {
		text := "0::bigint"
		for _, kind := range kinds {
			for _, condition := range conditions(kind) {
				text += ` + (SELECT count(*) FROM (SELECT 1 ` + of + ` AND ` + condition + ` LIMIT $1::bigint) AS n)`
			}
		}
		return text
	}
	dues := []string{"SELECT NULL::timestamptz AS due"}
	for _, kind := range kinds {
		for _, due := range kind.due {
			dues = append(dues, "("+strings.Replace(due, "%of", of, 1)+")")
		}
	}
	return sum(func(kind recordKind) []string { return kind.pending }) + `,
	` + sum(func(kind recordKind) []string { return kind.leased }) + `, ` + sum(func(kind recordKind) []string { return kind.processed }) + `,
	` + sum(func(kind recordKind) []string { return kind.dead }) + `, ` + sum(func(kind recordKind) []string { return kind.delayed }) + `,
	(SELECT min(due) FROM (` + strings.Join(dues, `
		UNION ALL `) + `) AS dues)`
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
	var inLog, inRecords []outmill.TopicStats
	pauses := s.lookAtPauses()
	for first, more := true, true; more && err == nil; first = false {
		err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
			var steps []step
			if first {
				steps = append(steps, pauses.step())
			}
			if first && logged {
				// The log is read first, because records move from the log to the records.
				steps = append(steps, logStats(&inLog, limit))
			}
			return t.finish(ctx, append(steps, s.recordStats(&inRecords, limit, &more))...)
		})
	}
	found := sumOf(append(inLog, inRecords...), limit)
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

// recordStats counts those kinds of records that an earlier call has met. If there are others, more becomes
// true, and the next step counts these, too.
func (s *Store) recordStats(into *[]outmill.TopicStats, limit int, more *bool) step {
	*into, *more = nil, false
	known := s.kinds.Load()
	var args []any
	if known != 0 {
		args = []any{limit}
	}
	return step{template: statsOf(int(known)), args: args, row: func(scan func(...any) error) error {
		var stats outmill.TopicStats
		var group, topic *string
		var leased, processed, dead, delayed *int
		var oldest pgtype.Timestamptz
		if err := scan(&group, &topic, &stats.Pending, &leased, &processed, &dead, &delayed, &oldest); err != nil {
			return err
		}
		if topic == nil {
			if there := int32(stats.Pending); there&^known != 0 {
				s.kinds.Or(there)
				*more = true
			}
			return nil
		}
		stats.Group, stats.Topic = textOf(group), *topic
		stats.Leased, stats.Processed, stats.Dead, stats.Delayed = *leased, *processed, *dead, *delayed
		stats.OldestDue = utc(oldest)
		*into = append(*into, stats)
		return nil
	}}
}

// sumOf adds up the counts of each topic, up to the limit, and leaves out topics without records.
func sumOf(parts []outmill.TopicStats, limit int) []outmill.TopicStats {
	sums := make([]outmill.TopicStats, 0, len(parts))
	nth := map[groupTopic]int{}
	for _, part := range parts {
		if part.Pending+part.Leased+part.Processed+part.Dead == 0 {
			continue
		}
		of := groupTopic{part.Group, part.Topic}
		i, known := nth[of]
		if !known {
			i, nth[of] = len(sums), len(sums)
			sums = append(sums, outmill.TopicStats{Group: part.Group, Topic: part.Topic})
		}
		sum := &sums[i]
		sum.Pending, sum.Leased = min(limit, sum.Pending+part.Pending), min(limit, sum.Leased+part.Leased)
		sum.Processed, sum.Dead = min(limit, sum.Processed+part.Processed), min(limit, sum.Dead+part.Dead)
		sum.Delayed = min(limit, sum.Delayed+part.Delayed)
		if sum.OldestDue.IsZero() || !part.OldestDue.IsZero() && part.OldestDue.Before(sum.OldestDue) {
			sum.OldestDue = part.OldestDue
		}
	}
	return sums
}
