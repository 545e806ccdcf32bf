package postgres

import (
	"context"
	"math"

	"github.com/outmill/outmill/storekit"
)

const (
	// sqlReap takes ended leases of all topics. It searches topic by topic, because the index
	// starts with the topic.
	sqlReap = `WITH RECURSIVE t AS (
	(SELECT grp, topic FROM {p:records} WHERE grp IS NOT NULL AND stage = 4 ORDER BY grp, topic LIMIT 1)
	UNION ALL
	SELECT n.grp, n.topic FROM t CROSS JOIN LATERAL (SELECT grp, topic FROM {p:records}
		WHERE stage = 4 AND (grp, topic) > (t.grp, t.topic) ORDER BY grp, topic LIMIT 1) AS n),
gone AS (UPDATE {p:records} SET ` + dueAsBefore + `,
		attempts = attempts + CASE WHEN expiries >= 2 THEN 1 ELSE 0 END, expiries = expiries + 1
	WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM t CROSS JOIN LATERAL (SELECT ctid FROM {p:records}
		WHERE grp = t.grp AND topic = t.topic AND stage = 4 AND available_at <= statement_timestamp()
		ORDER BY available_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED) AS r LIMIT $1::bigint))
	RETURNING grp, topic, key),
opened AS (` + openLanesOf + `)
SELECT count(*) FROM gone`

	sqlExpire = `WITH gone AS (UPDATE {p:records} SET stage = 7, available_at = NULL, owner = NULL, paused_by = NULL, last_error = 'expired'
	WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:records}
		WHERE expires_at <= statement_timestamp() AND stage < 6 AND (stage <> 4 OR available_at <= statement_timestamp())
		ORDER BY expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))
	RETURNING grp, topic, key, step),
opened AS (` + openLanesOf + `),
noted AS MATERIALIZED (` + noteDead + `)
SELECT count(*) FROM gone, (SELECT count(*) FROM noted) AS n`

	sqlDeleteProcessed = `WITH gone AS (DELETE FROM {p:records} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:records}
	WHERE processed_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY processed_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM gone`

	sqlDeleteDedup = `WITH gone AS (DELETE FROM {p:dedup} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:dedup}
	WHERE expires_at <= statement_timestamp() ORDER BY expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM gone`
)

// ReapExpired makes leased records pending if their lease has ended. See outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	if logged, err := s.seesLog(ctx, "reap"); err != nil {
		return 0, err
	} else if logged && limit > 0 {
		if err := s.logBack(ctx, limit); err != nil {
			return 0, err
		}
	}
	reaped, err := s.tidy(ctx, "reap", sqlReap, limit)
	s.logger.Reaped(reaped)
	if reaped > 0 {
		s.wake()
	}
	return reaped, err
}

// reapWalks is the most steps in which one call searches for leases in the log. If there are
// more lines, the next call continues; claims check the leases of their topics anyway.
const reapWalks = 10

// logBack moves the unsettled records of batches whose lease has ended to the records, about
// limit records at most.
func (s *Store) logBack(ctx context.Context, limit int) error {
	for walks, moved := 0, 0; walks < reapWalks && moved < limit; walks++ {
		var last *int64
		var lines, n int
		from := s.reaped.Load()
		err := s.writeAll(ctx, "reap",
			step{template: sqlNextLines, args: []any{from, linesAtOnce}, row: func(scan func(...any) error) error { return scan(&last, &lines) }},
			step{template: sqlLogBackSome, args: []any{from, linesAtOnce, limit - moved}, count: &n})
		if err != nil {
			return err
		}
		moved += n
		switch {
		case moved >= limit:
			return nil
		case lines < linesAtOnce:
			s.reaped.Store(math.MinInt64)
			return nil
		}
		s.reaped.Store(*last)
	}
	return nil
}

// tidy runs one bounded batch of work. It skips records that another transaction has locked.
func (s *Store) tidy(ctx context.Context, operation, template string, limit int, more ...any) (int, error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	var done int
	err := s.writeSteps(ctx, operation, step{
		template: template,
		args:     append([]any{limit}, more...),
		row:      func(scan func(...any) error) error { return scan(&done) },
	})
	if err != nil {
		return 0, err
	}
	return done, nil
}

// ExpireDue makes records dead whose expiry has passed and that are not leased. See
// outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire", sqlExpire, limit)
}

// DeleteProcessed deletes processed records older than Config.Retain. See
// outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete processed", sqlDeleteProcessed, limit, s.config.Retain.Microseconds())
}

// DeleteDedupKeys deletes dedup keys whose window has ended. See
// outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete dedup keys", sqlDeleteDedup, limit)
}
