package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
)

const (
	// logAsRecords are the unfinished rows of the log in the form of records, with their state.
	// It leaves out rows that are done or have moved. The first %s selects the rows, l, and
	// whether a claim has passed them, the second has conditions.
	logAsRecords = `SELECT l.pos AS seq, l.id, l.grp, l.topic, l.key, (CASE WHEN b.owner IS NULL THEN 0 ELSE 4 END)::smallint AS stage,
	b.lease_until AS available_at, l.created_at AS due_at, l.created_at AS next_at, l.created_at, NULL::timestamptz AS expires_at,
	0 AS attempts, CASE WHEN b.owner IS NULL THEN 0
	ELSE 1 END AS claims, 0 AS expiries, b.owner, NULL::timestamptz AS processed_at, NULL::text AS processed_by,
	l.message_id, l.correlation_id, l.causation_id, l.tenant_id, l.traceparent, l.tracestate, l.dedup_key, NULL::text AS last_error,
	l.joins::text AS joins, NULL::uuid AS waits_for, l.metadata, l.payload, false
FROM %s AS l
LEFT JOIN LATERAL (SELECT b.owner, b.lease_until FROM {p:batches} AS b WHERE l.passed AND b.line = l.line
	AND b.n >= (SELECT low FROM {p:batches} WHERE line = l.line ORDER BY n DESC LIMIT 1)
	AND b.open > 0 AND b.positions @> ARRAY[l.pos] AND get_bit(b.done, array_position(b.positions, l.pos) - 1) = 0 AND NOT ` + hasEnded +
		` LIMIT 1) AS b ON true
WHERE (NOT l.passed OR b.owner IS NOT NULL) %s`

	passedOfLog = `SELECT l.*, {p:log_passed}(l.line, l.xid, l.pos) AS passed FROM {p:log} AS l `

	// openPlaces are the places of the records in work.
	openPlaces = `SELECT b.line, u.pos FROM {p:log_in_work}() AS b CROSS JOIN LATERAL unnest(b.positions) WITH ORDINALITY AS u (pos, nth)
	WHERE ($3::text = '' OR b.grp = $3::text) AND ($4::text = '' OR b.topic = $4::text) AND get_bit(b.done, u.nth::integer - 1) = 0`
)

var (
	sqlLogGet = fmt.Sprintf(logAsRecords, `(`+passedOfLog+`WHERE l.id = $1::text::uuid)`, ``)

	sqlLogRecordsOf = fmt.Sprintf(logAsRecords, `(`+passedOfLog+`WHERE l.id = ANY ($1::text[]::uuid[]))`, ``)

	// matchingLog is matching for rows of the log. The status is checked separately.
	matchingLog = matchingOf(`$5::text`, `NULL::text`)

	// sqlLogSearch scans the log by id. It also reads finished rows of segments that are not
	// truncated yet; there are at most two such segments.
	sqlLogSearch = `WITH leased AS MATERIALIZED (` + openPlaces + ` AND $5::text = '')
SELECT 0::bigint, p.id, p.m AND (NOT {p:log_passed}(p.line, p.xid, p.pos) OR (p.line, p.pos) IN (SELECT line, pos FROM leased))
FROM (SELECT r.id, r.line, r.xid, r.pos, ` + matchingLog + ` AS m FROM {p:log} AS r
	WHERE r.id > $1::text::uuid ORDER BY r.id LIMIT $2::bigint) AS p`

	// sqlLogSearchLeased reads the batches, because they have all leased records.
	sqlLogSearchLeased = `WITH leased AS MATERIALIZED (` + openPlaces + `)
SELECT $15::bigint, r.id, ` + matchingLog + `
FROM (SELECT l.* FROM leased AS f ` + ofLog + ` WHERE l.id > $1::text::uuid ORDER BY l.id LIMIT $2::bigint) AS r`
)

const (
	// linesOfLog finds the lines by one index search each.
	linesOfLog = `WITH RECURSIVE t AS (
	(SELECT line, grp, topic FROM {p:log} ORDER BY line, pos LIMIT 1)
	UNION ALL SELECT n.* FROM t CROSS JOIN LATERAL (SELECT line, grp, topic FROM {p:log} WHERE line > t.line ORDER BY line, pos LIMIT 1) AS n)
`

	// sqlLogStats searches for rows that were passed before they were finished only in lines that may have some. It does
	// so in a function, which a session plans only when it is called.
	sqlLogStats = linesOfLog + `SELECT t.grp, t.topic,
	(SELECT count(*) FROM (SELECT 1 FROM {p:log} WHERE line = t.line AND pos > coalesce(last.pos, -1) LIMIT $1::bigint) AS n)
	+ late.n + coalesce(work.open - work.held, 0), coalesce(work.held, 0),
	least((SELECT created_at FROM {p:log} WHERE line = t.line AND pos > coalesce(last.pos, -1) ORDER BY pos LIMIT 1),
		late.oldest, work.ended_at)
FROM t LEFT JOIN LATERAL (SELECT pos, low, seen, horizon, since FROM {p:batches} WHERE line = t.line ORDER BY n DESC LIMIT 1) AS last
ON true
CROSS JOIN LATERAL {p:log_late_counts}(t.line, $1::bigint, last.pos, last.seen, last.horizon, last.since) AS late
CROSS JOIN LATERAL (SELECT sum(b.open) AS open,
		coalesce(sum(b.open) FILTER (WHERE b.lease_until > statement_timestamp()), 0) AS held,
		min(b.lease_until) FILTER (WHERE b.lease_until <= statement_timestamp()) AS ended_at
	FROM {p:batches} AS b WHERE b.line = t.line AND b.n >= last.low AND b.open > 0 AND NOT ` + hasEnded + ` OFFSET 0) AS work`
)

// bothLanes reads the log and then the records, in one round trip. A record that moves between
// the two reads is found at least once, and is in the result once.
func (s *Store) bothLanes(ctx context.Context, operation string, log, records step) ([]placed, error) {
	var found, logged []placed
	records.row, log.row = collect(&found), nil
	steps := []step{records}
	has, err := s.seesLog(ctx, operation)
	if err != nil {
		return nil, err
	}
	if has && log.template != "" {
		log.row = collect(&logged)
		steps = []step{log, records}
	}
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		found, logged = nil, nil
		return t.finish(ctx, steps...)
	})
	if err != nil || len(logged) == 0 {
		return found, err
	}
	known := map[outmill.WorkItemID]bool{}
	for _, p := range found {
		known[p.record.ID] = true
	}
	for _, p := range logged {
		if !known[p.record.ID] {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return bytes.Compare(a.record.ID[:], b.record.ID[:]) })
	return found, nil
}

// logStats counts the log's records.
func logStats(into *[]outmill.TopicStats, limit int) step {
	*into = nil
	return step{template: sqlLogStats, args: []any{limit}, row: func(scan func(...any) error) error {
		stats := outmill.TopicStats{}
		var oldest pgtype.Timestamptz
		if err := scan(&stats.Group, &stats.Topic, &stats.Pending, &stats.Leased, &oldest); err != nil {
			return err
		}
		stats.OldestDue = utc(oldest)
		*into = append(*into, stats)
		return nil
	}}
}
