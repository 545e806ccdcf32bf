package postgres

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r WHERE r.id = $1::text::uuid`

	sqlParkedKeys = `SELECT DISTINCT grp, topic, key, statement_timestamp()::text FROM {p:records} WHERE id = ANY ($1::text[]::uuid[])
		AND stage + 0 = 7 AND parked AND grp IS NOT NULL
ORDER BY grp, topic, key`
)

var (
	// sqlDelete also writes the entry of the audit.
	sqlDelete = `WITH gone AS (DELETE FROM {p:records} WHERE id = ANY ($1::text[]::uuid[])
	AND ($2::text = '' OR $2::text = ` + statusOf + `) RETURNING grp, topic, key, step, stage),
opened AS (` + openLanesOf + `),
audited AS (` + noted(3, `(SELECT count(*) AS n FROM gone) AS changed`) + `),
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'd' AS how, step FROM gone WHERE stage < 6) AS n
	WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT count(*) FROM gone, (SELECT count(*) FROM noted) AS n`

	// sqlRequeue makes the records due by time, so that without an order those that have been due
	// longest go first. They wait (stage 2), because a claim makes only some of them ready at a
	// time and skips locked ones, and these must not let a later record of their key pass. It
	// finds them by id, so that it also finds those that change during the statement.
	sqlRequeue = `WITH ` + requeued(`$1::text[]::uuid[]`, `statement_timestamp()`, auditRequeued(2))

	// sqlRequeueParked requeues the first $4 records that are parked with a key. All of them
	// become due at one time, so that they become ready in the order of their places, whichever
	// transaction requeued them.
	sqlRequeueParked = `WITH ` + requeued(`ARRAY(SELECT id FROM {p:records} WHERE `+ofKey(`$3::text`)+` AND parked
	ORDER BY hashtextextended(key, hashtextextended(topic, 0)), seq LIMIT $4::bigint)`, `$5::text::timestamptz`, auditRequeued(6))
)

// requeued requeues those of the records that are dead. It returns how many it has requeued, and how many ids there are: more, if others
// have changed some of these records during the statement. audit is a further part of the statement that writes the entry of the audit,
// or "".
func requeued(ids, due, audit string) string {
	return `found AS MATERIALIZED (SELECT ` + ids + ` AS ids),
back AS (UPDATE {p:records} SET stage = CASE WHEN grp IS NULL THEN 3 ELSE 2 END, available_at = ` + due + `, next_at = ` + due + `,
	attempts = 0, expiries = 0, expires_at = NULL, parked = false
WHERE id = ANY ((SELECT ids FROM found)::uuid[]) AND stage + 0 = 7 RETURNING step),` + audit + `
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'r' AS how, step FROM back) AS n WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT count(*), (SELECT cardinality(ids) FROM found) FROM back, (SELECT count(*) FROM noted) AS n`
}

// auditRequeued writes the entry of the audit, whose arguments begin with first.
func auditRequeued(first int) string {
	return `
audited AS (` + noted(first, `(SELECT count(*) AS n FROM back) AS changed`) + `),`
}

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
	return s.delete(ctx, "", ids)
}

// delete deletes the records that have the status; "" is any.
func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "delete", s.ready(ctx))
	}
	if _, err := s.seesLog(ctx, "delete"); err != nil {
		return 0, err
	}
	entry := storekit.NewAuditEntry(ctx, roles.AuditDelete, ids...)
	var deleted int
	var counted []outmill.JoinID
	err := s.durably(ctx, "delete", func(ctx context.Context, t *txn) error {
		if err := t.moveByID(ctx, idTexts(ids), false); err != nil {
			return err
		}
		return t.finish(ctx, step{
			template: sqlDelete, args: entryArgs(entry, idTexts(ids), string(status)),
			row: func(scan func(...any) error) error { return scan(&deleted) },
		}, countSteps(&counted))
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return deleted, nil
}

// Requeue makes dead records pending again. See outmill.Inspector. It requeues a parked key in
// several transactions, its first records first.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	const operation = "requeue"
	if len(ids) == 0 {
		return 0, s.explain(ctx, operation, s.ready(ctx))
	}
	keys, err := s.parkedKeys(ctx, operation, ids)
	if err != nil {
		return 0, err
	}
	defer func() {
		if requeued > 0 {
			s.wake()
		}
	}()
	entry := storekit.NewAuditEntry(ctx, roles.AuditRequeue, ids...)
	for _, key := range keys {
		n, err := s.requeueParked(ctx, operation, entry, key)
		if requeued += n; err != nil {
			return requeued, err
		}
	}
	n, _, err := s.requeue(ctx, operation, step{template: sqlRequeue, args: entryArgs(entry, idTexts(ids))})
	return requeued + n, err
}

// parkedKey is a key of a group's topic that has parked records. due is the time, by the
// server's clock, at which all of them become due.
type parkedKey struct{ group, topic, key, due string }

func (s *Store) parkedKeys(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]parkedKey, error) {
	var keys []parkedKey
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		keys = nil
		return t.finish(ctx, step{template: sqlParkedKeys, args: []any{idTexts(ids)}, row: func(scan func(...any) error) error {
			var k parkedKey
			err := scan(&k.group, &k.topic, &k.key, &k.due)
			keys = append(keys, k)
			return err
		}})
	})
	return keys, err
}

// requeueParked waits for a running claim, which would otherwise park the records that it meets
// next. If claims park records again between two transactions, the next transaction requeues
// them too. The last one has found fewer than it may requeue, so it leaves nothing parked. What a worker
// parks again behind it does not keep the call going.
func (s *Store) requeueParked(ctx context.Context, operation string, entry roles.AuditEntry, k parkedKey) (requeued int, err error) {
	for nth := 0; ; nth++ {
		limit := s.atOnce.Requeue(nth)
		n, found, err := s.requeue(ctx, operation, append(lockTopics([]int64{s.lockOfTopic(k.group, k.topic)}),
			step{template: sqlRequeueParked, args: entryArgs(entry, k.group, k.topic, k.key, limit, k.due)})...)
		if requeued += n; err != nil || found < limit {
			return requeued, err
		}
	}
}

// requeue runs the steps in one transaction. The last step returns the numbers: see requeued.
func (s *Store) requeue(ctx context.Context, operation string, list ...step) (n, found int, err error) {
	var counted []outmill.JoinID
	list[len(list)-1].row = func(scan func(...any) error) error { return scan(&n, &found) }
	err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, append(slices.Clone(list), countSteps(&counted))...)
	})
	if err != nil {
		return 0, 0, err
	}
	s.hurry(ctx, counted)
	return n, found, nil
}

// lockTopics locks the topics in a fixed order, so that two callers cannot deadlock.
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
