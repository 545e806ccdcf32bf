package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// dueAtOnce is the number of records of each kind that are compared with the pauses.
const dueAtOnce = 1000

var (
	sqlDueParts         = dueParts(`grp = $3::text`)
	sqlDuePartsUnrouted = dueParts(`grp IS NULL`)

	// sqlLogDueParts is dueParts for the line $1 of the log.
	sqlLogDueParts = `(SELECT created_at, key, tenant_id FROM {p:log} WHERE line = $1::bigint
	AND pos > coalesce((SELECT pos ` + newestBatch + `), -1) ORDER BY pos LIMIT $2::bigint)
UNION ALL (SELECT l.created_at, l.key, l.tenant_id FROM {p:log_unfinished}($1::bigint, pg_current_snapshot()) AS c
	CROSS JOIN LATERAL (SELECT created_at, key, tenant_id FROM {p:log} WHERE line = $1::bigint
	AND pos > c.from_pos AND pos <= c.to_pos AND xid = c.xid ORDER BY pos LIMIT $2::bigint) AS l LIMIT $2::bigint)
UNION ALL (SELECT f.lease_until, l.key, l.tenant_id FROM (SELECT b.line, b.lease_until, u.pos FROM {p:batches} AS b
	CROSS JOIN LATERAL unnest(b.positions) WITH ORDINALITY AS u (pos, nth)
	WHERE ` + inWorkOfLine + ` AND b.lease_until <= statement_timestamp() AND get_bit(b.done, u.nth::integer - 1) = 0
	LIMIT $2::bigint) AS f ` + ofLog + `)`
)

// dueParts reads the first $2 records of each kind that are due, of the topic $1.
func dueParts(group string) string {
	of := `FROM {p:records} WHERE ` + group + ` AND topic = $1::text AND `
	return `(SELECT greatest(next_at, created_at), key, tenant_id ` + of + `stage = 0 AND num_nulls(turn) = 1
	ORDER BY grp, topic, seq LIMIT $2::bigint)
UNION ALL (SELECT greatest(next_at, created_at), key, tenant_id ` + of + `stage = 0 AND num_nulls(turn) = 0
	ORDER BY grp, topic, seq LIMIT $2::bigint)
UNION ALL (SELECT greatest(next_at, created_at), key, tenant_id ` + of + `stage = 1 ORDER BY grp, topic, seq LIMIT $2::bigint)
UNION ALL (SELECT greatest(next_at, created_at), key, tenant_id ` + of + `stage = -1 ORDER BY grp, topic, paused_by, seq LIMIT $2::bigint)
UNION ALL (SELECT available_at, key, tenant_id ` + of + `stage = 2 AND available_at <= statement_timestamp()
	ORDER BY grp, topic, stage, available_at LIMIT $2::bigint)
UNION ALL (SELECT available_at, key, tenant_id ` + of + `stage = 3 AND available_at <= statement_timestamp()
	ORDER BY grp, topic, stage, available_at LIMIT $2::bigint)
UNION ALL (SELECT available_at, key, tenant_id ` + of + `stage = 4 AND available_at <= statement_timestamp()
	ORDER BY grp, topic, available_at LIMIT $2::bigint)`
}

// leaveOutPaused sets OldestDue of topics without the paused records. It needs a second
// transaction only where a part of a topic is paused.
func (s *Store) leaveOutPaused(ctx context.Context, operation string, pauses *storekit.PauseList, found []outmill.TopicStats,
	logged bool) error {
	var inPart []*outmill.TopicStats
	for i := range found {
		of := &found[i]
		switch {
		case of.OldestDue.IsZero():
		case pauses.Topic(of.Group, of.Topic):
			of.OldestDue = time.Time{}
		case hasParts(pauses, of):
			inPart = append(inPart, of)
		}
	}
	if len(inPart) == 0 {
		return nil
	}
	return s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		var steps []step
		for _, of := range inPart {
			of.OldestDue = time.Time{}
			steps = append(steps, oldestUnpaused(pauses, of, logged)...)
		}
		return t.finish(ctx, steps...)
	})
}

// hasParts reports whether a key or a tenant is paused that may concern the topic.
func hasParts(pauses *storekit.PauseList, of *outmill.TopicStats) bool {
	if !pauses.HasParts() {
		return false
	}
	for _, p := range pauses.All() {
		if (p.Key != "" || p.TenantID != "") && (p.Group == "" || p.Group == of.Group) && (p.Topic == "" || p.Topic == of.Topic) {
			return true
		}
	}
	return false
}

// oldestUnpaused returns the steps that find OldestDue among the first records.
func oldestUnpaused(pauses *storekit.PauseList, of *outmill.TopicStats, logged bool) []step {
	row := func(scan func(...any) error) error {
		var at pgtype.Timestamptz
		var key string
		var tenant *string
		err := scan(&at, &key, &tenant)
		if due := utc(at); pauses.Of(of.Group, of.Topic, key, textOf(tenant)) == 0 && (of.OldestDue.IsZero() || due.Before(of.OldestDue)) {
			of.OldestDue = due
		}
		return err
	}
	if of.Group == "" {
		return []step{{template: sqlDuePartsUnrouted, args: []any{of.Topic, dueAtOnce}, row: row}}
	}
	steps := []step{{template: sqlDueParts, args: []any{of.Topic, dueAtOnce, of.Group}, row: row}}
	if logged {
		// The log is read first, because records move from the log to the records.
		log := step{template: sqlLogDueParts, args: []any{lineOf(of.Group, of.Topic), dueAtOnce}, row: row}
		steps = append([]step{log}, steps...)
	}
	return steps
}
