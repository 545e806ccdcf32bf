package postgres

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
)

const (
	sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r WHERE r.id = $1::text::uuid`

	sqlDelete = `WITH gone AS (DELETE FROM {p:records} WHERE id = ANY ($1::text[]::uuid[]) RETURNING grp, topic, key, step, stage),
opened AS (` + openLanesOf + `),
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'd' AS how, step FROM gone WHERE stage < 6) AS n WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT count(*) FROM gone, (SELECT count(*) FROM noted) AS n`

	sqlParkedTopics = `SELECT DISTINCT grp, topic FROM {p:records} WHERE id = ANY ($1::text[]::uuid[]) AND parked IS TRUE AND grp IS NOT NULL`

	// sqlRequeue makes the records due by time (stage 3), so that those that have
	// been due for longer go first where no order is wanted. It takes those along
	// that were parked with their keys, all by id, so that it follows those that
	// change just now.
	sqlRequeue = `WITH dead AS (SELECT id, grp, topic, key, parked FROM {p:records} WHERE id = ANY ($1::text[]::uuid[]) AND stage + 0 = 7),
back AS (UPDATE {p:records} SET stage = 3, available_at = statement_timestamp(), next_at = statement_timestamp(),
	attempts = 0, expiries = 0, expires_at = NULL, parked = false
WHERE id = ANY (ARRAY(SELECT id FROM dead
	UNION ALL SELECT r.id FROM (SELECT DISTINCT grp, topic, key FROM dead WHERE parked) AS d
	CROSS JOIN LATERAL (SELECT id FROM {p:records}
		WHERE hashtextextended(key, hashtextextended(topic, 0)) = hashtextextended(d.key, hashtextextended(d.topic, 0))
		AND grp IS NOT DISTINCT FROM d.grp AND topic IS NOT DISTINCT FROM d.topic AND key IS NOT DISTINCT FROM d.key AND parked OFFSET 0) AS r))
AND stage + 0 = 7 RETURNING step),
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'r' AS how, step FROM back) AS n WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT count(*) FROM back, (SELECT count(*) FROM noted) AS n`
)

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	args := []any{id.String()}
	found, err := s.bothLanes(ctx, "get", step{template: sqlLogGet, args: args}, step{template: sqlGet, args: args})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, "get", outmill.ErrNotFound)
	}
	return found[0].record, nil
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "delete", s.ready(ctx))
	}
	if _, err := s.seesLog(ctx, "delete"); err != nil {
		return 0, err
	}
	var deleted int
	var counted []string
	err := s.durably(ctx, "delete", func(ctx context.Context, t *txn) error {
		if err := t.moveByID(ctx, idTexts(ids), false); err != nil {
			return err
		}
		return t.finish(ctx, step{
			template: sqlDelete, args: []any{idTexts(ids)},
			row: func(scan func(...any) error) error { return scan(&deleted) },
		}, countSteps(&counted))
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return deleted, nil
}

// Requeue makes dead records pending again. See outmill.Inspector. Where a
// parked key comes back it waits for a claim that is under way, which would
// else park what it meets next.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "requeue", s.ready(ctx))
	}
	var requeued int
	var counted []string
	err := s.durably(ctx, "requeue", func(ctx context.Context, t *txn) error {
		var locks []int64
		err := t.run(ctx, step{template: sqlParkedTopics, args: []any{idTexts(ids)}, row: func(scan func(...any) error) error {
			var group, topic string
			err := scan(&group, &topic)
			locks = append(locks, s.lockOfTopic(group, topic))
			return err
		}})
		if err != nil {
			return err
		}
		return t.finish(ctx, append(lockTopics(locks), step{
			template: sqlRequeue, args: []any{idTexts(ids)},
			row: func(scan func(...any) error) error { return scan(&requeued) },
		}, countSteps(&counted))...)
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	if requeued > 0 {
		s.wake()
	}
	return requeued, nil
}

// lockTopics locks in one order, whoever locks.
func lockTopics(locks []int64) []step {
	slices.Sort(locks)
	steps := make([]step, len(locks))
	for i, lock := range locks {
		steps[i] = step{template: sqlLock, args: []any{lock}}
	}
	return steps
}

func idTexts(ids []outmill.WorkItemID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}
