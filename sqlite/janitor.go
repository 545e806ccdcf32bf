package sqlite

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

const (
	sqlEndedLeases = `SELECT seq FROM {p:records} INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4`

	sqlReap = `UPDATE {p:records} SET status = 'pending', ` + dueAsBefore + `, owner = '',
	attempts = attempts + (expiries >= 2), expiries = expiries + 1 WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlExpired = `SELECT seq FROM {p:records} INDEXED BY {p:expiring}
WHERE stage < 6 AND expires_at <= ?1 AND (stage <> 4 OR available_at <= ?1) ORDER BY expires_at LIMIT ?2`

	sqlExpire = `UPDATE {p:records} SET status = 'dead', stage = 6, available_at = NULL, paused_by = NULL, owner = '', last_error = 'expired'
WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlDeleteProcessed = `DELETE FROM {p:records} WHERE seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:processed} WHERE processed_at <= ?1 ORDER BY processed_at LIMIT ?2)`

	sqlDeleteDedup = `DELETE FROM {p:dedup} WHERE (topic, dedup_key) IN (
	SELECT topic, dedup_key FROM {p:dedup} INDEXED BY {p:dedup_expires} WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)`
)

// ReapExpired makes leased records pending if their lease has ended. See outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	reaped, err := s.tidy(ctx, "reap", limit, (*txn).reap)
	s.logger.Reaped(reaped)
	if reaped > 0 {
		s.waker.notifier.Notify()
	}
	return reaped, err
}

// tidy runs one bounded batch of work.
func (s *Store) tidy(ctx context.Context, operation string, limit int, work func(t *txn, ctx context.Context, limit int) (int, error)) (int,
	error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	var done int
	err := s.writeSteps(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		done, err = work(t, ctx, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return done, nil
}

func (t *txn) reap(ctx context.Context, limit int) (int, error) {
	var reaped int
	var group, topic string
	for reaped < limit {
		found, err := t.one(ctx, []any{&group, &topic}, sqlNextLater, group, topic)
		if err != nil || !found {
			return reaped, err
		}
		seqs, err := t.seqs(ctx, sqlEndedLeases, group, topic, t.now, limit-reaped)
		if err != nil {
			return 0, err
		}
		if err := t.openLanes(ctx, seqs); err != nil {
			return 0, err
		}
		if _, err := t.exec(ctx, sqlReap, seqList(seqs)); err != nil {
			return 0, err
		}
		reaped += len(seqs)
	}
	return reaped, nil
}

// ExpireDue makes records dead whose expiry has passed and that are not leased. See
// outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		seqs, err := t.seqs(ctx, sqlExpired, t.now, limit)
		if err != nil {
			return 0, err
		}
		if err := t.openLanes(ctx, seqs); err != nil {
			return 0, err
		}
		if err := t.moveSteps(ctx, isDead, sqlStepsOf, seqList(seqs)); err != nil {
			return 0, err
		}
		return t.exec(ctx, sqlExpire, seqList(seqs))
	})
}

// DeleteProcessed deletes processed records older than Config.Retain. See
// outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete processed", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		return t.exec(ctx, sqlDeleteProcessed, t.now-s.config.Retain.Microseconds(), limit)
	})
}

// DeleteDedupKeys deletes dedup keys whose window has ended. See
// outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete dedup keys", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		return t.exec(ctx, sqlDeleteDedup, t.now, limit)
	})
}

// Maintain does nothing, because SQLite needs no upkeep apart from the other calls. See
// outmill.Janitor.
func (s *Store) Maintain(ctx context.Context) (more bool, err error) {
	return false, s.explain(ctx, "maintain", s.ready(ctx))
}
