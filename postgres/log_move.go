package postgres

import (
	"context"
	"math"
	"slices"

	"github.com/outmill/outmill"
)

const (
	// sqlWhereInLog finds the lines of the records $1 that are in the log, and of
	// the other records of their messages.
	sqlWhereInLog = `SELECT DISTINCT r.id::text, r.grp, r.topic FROM (
	SELECT l.id, l.grp, l.topic FROM {p:log} AS l WHERE l.id = ANY ($1::text[]::uuid[])
	UNION ALL SELECT o.id, o.grp, o.topic FROM (SELECT step FROM {p:log} WHERE id = ANY ($1::text[]::uuid[]) AND step IS NOT NULL
		UNION SELECT step FROM {p:records} WHERE id = ANY ($1::text[]::uuid[]) AND step IS NOT NULL) AS m
	CROSS JOIN LATERAL (SELECT id, grp, topic FROM {p:log} WHERE step = m.step OFFSET 0) AS o WHERE $2::boolean) AS r`

	// sqlMovePending moves what no claim has gone past.
	sqlMovePending = `WITH l AS (DELETE FROM {p:log} AS l WHERE l.id = ANY ($1::text[]::uuid[]) AND NOT {p:log_passed}(l.line, l.xid, l.pos) RETURNING l.*)
` + moveInLine + ` FROM l`

	sqlKeysOf = `SELECT DISTINCT grp, topic, key FROM (
	SELECT grp, topic, key FROM {p:records} WHERE id = ANY ($1::text[]::uuid[])
	UNION ALL SELECT grp, topic, key FROM {p:log} WHERE id = ANY ($1::text[]::uuid[])) AS r WHERE key <> '' AND grp IS NOT NULL`

	// sqlMoveOfKey moves what is next of the key $2, as far as it is among the next
	// $3 rows of the line.
	sqlMoveOfKey = `WITH near AS MATERIALIZED (SELECT pos, key FROM {p:log} WHERE line = $1::bigint AND pos > coalesce((SELECT pos ` + newestBatch + `), -1) ORDER BY pos LIMIT $3::bigint),
l AS (DELETE FROM {p:log} AS l WHERE l.line = $1::bigint AND l.pos = ANY (ARRAY(SELECT pos FROM near WHERE key = $2::text)) RETURNING l.*)
` + moveInLine + ` FROM l`

	sqlTopicsOfLog = linesOfLog + `SELECT topic FROM t WHERE grp = $1::text`
)

var (
	// sqlMoveAllLeased moves what is in work of the line $1, with its leases.
	sqlMoveAllLeased = moveOpenOf(inWorkOfLine, `FOR UPDATE`)

	// sqlLogBackAll is sqlLogBack for all lines: as many batches as have about $1
	// records.
	sqlLogBackAll = moveOpenOf(`b.ctid = ANY (ARRAY(SELECT o.ctid FROM (SELECT line, n, sum(open) OVER (ORDER BY lease_until, line, n) - open AS before
		FROM {p:log_in_work}() WHERE lease_until <= statement_timestamp()) AS w CROSS JOIN LATERAL (SELECT ctid FROM {p:batches} WHERE line = w.line AND n = w.n OFFSET 0) AS o
		WHERE w.before < $1::bigint))
	AND b.lease_until <= statement_timestamp() ORDER BY b.line, b.n`, `FOR UPDATE SKIP LOCKED`)
)

// moveByID moves records of the log to the records, those that are leased with
// their leases, for what is to be done to them there in the same transaction. It
// locks their lines. siblings: with the other records of their messages.
func (t *txn) moveByID(ctx context.Context, ids []string, siblings bool) error {
	if !t.s.readsLog() {
		return nil
	}
	var found []string
	var locks []int64
	err := t.run(ctx, step{template: sqlWhereInLog, args: []any{ids, siblings}, row: func(scan func(...any) error) error {
		var id, group, topic string
		err := scan(&id, &group, &topic)
		found, locks = append(found, id), append(locks, t.s.lockOfTopic(group, topic))
		return err
	}})
	if err != nil || len(found) == 0 {
		return err
	}
	var open foundBatches
	err = t.run(ctx, append(lockTopics(locks), open.step(found, ""))...)
	if err != nil {
		return err
	}
	ordinals := map[*batchRef][]int{}
	for _, r := range open.records {
		ordinals[r.batchRef] = append(ordinals[r.batchRef], r.ordinal)
	}
	steps := []step{{template: sqlMovePending, args: []any{found}}}
	for _, b := range inOneOrder(ordinals) {
		steps = append(steps, b.move(ordinals[b])...)
	}
	return t.run(ctx, steps...)
}

// moveGroup moves all of the group that is in the log to the records.
func (s *Store) moveGroup(ctx context.Context, operation, group string) error {
	if logged, err := s.seesLog(ctx, operation); err != nil || !logged {
		return err
	}
	var topics []string
	if err := s.writeAll(ctx, operation, step{template: sqlTopicsOfLog, args: []any{group}, row: texts(&topics)}); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := s.moveTopic(ctx, operation, group, topic); err != nil {
			return err
		}
	}
	return nil
}

// moveTopic moves all of a line that is in the log to the records.
func (s *Store) moveTopic(ctx context.Context, operation, group, topic string) error {
	_, err := s.moveSome(ctx, operation, group, topic, math.MaxInt)
	return err
}

// moveSome is moveTopic until it has moved as many as limit says, besides what is in
// work.
func (s *Store) moveSome(ctx context.Context, operation, group, topic string, limit int) (all int, err error) {
	// What had only just been committed may have hidden the rest once.
	for empty := 0; empty < 2 && all < limit; {
		var moved int
		var hidden bool
		err := s.onThisServer(ctx, operation, func(ctx context.Context, t *txn) (err error) {
			moved, hidden, err = t.moveLine(ctx, group, topic, min(limit-all, adoptAtOnce))
			return err
		})
		all += moved
		switch {
		case err != nil:
			return all, err
		case moved > 0:
			empty = 0
		case !hidden:
			return all, nil
		default:
			empty++
		}
	}
	return all, nil
}

// moveLine moves up to want of a line, as a claim would take it, and what is in work,
// and tells how many, and whether others may have been hidden: see logLine.hidden.
func (t *txn) moveLine(ctx context.Context, group, topic string, want int) (moved int, hidden bool, err error) {
	c := &claim{s: t.s, req: outmill.ClaimRequest{Group: group}}
	l := &logLine{line: c.newLine(t, topic, want), number: lineOf(group, topic)}
	err = t.run(ctx, l.lock(), l.mark(), step{template: sqlMoveAllLeased, args: []any{l.number}},
		step{template: sqlTopicState, args: l.ofTopic(outmill.OwnerToken{}.String(), l.number), row: l.state}, l.logPage())
	if err != nil {
		return 0, false, err
	}
	var moving []int64
	for i := range l.log {
		moving = append(moving, l.log[i].Seq)
	}
	l.handled = len(moving)
	var steps []step
	if len(moving) > 0 {
		steps = append(steps, step{template: sqlMoveHeld, args: []any{l.number, moving}})
	}
	return len(moving), l.unread > 0, t.finish(ctx, append(steps, l.goOn(nil, nil)...)...)
}

// parkAhead is how far ahead in the log records are parked at once with one that
// is failed with Park. The others are parked when a claim comes to them.
const parkAhead = 10_000

// failAndPark is Fail where keys are parked: what is behind in the log moves to the
// records first.
func (s *Store) failAndPark(ctx context.Context, items []settling, parking []string) error {
	moves, err := s.toRecords(ctx, leasesOf(items))
	if err != nil {
		return err
	}
	fails, err := stepsFor(sqlFail, items, nil, parkedError)
	if err != nil {
		return s.explain(ctx, "fail", err)
	}
	var counted []string
	err = s.durably(ctx, "fail", func(ctx context.Context, t *txn) error {
		var locks []int64
		var ahead []step
		err := t.run(ctx, step{template: sqlKeysOf, args: []any{parking}, row: func(scan func(...any) error) error {
			var group, topic, key string
			err := scan(&group, &topic, &key)
			locks = append(locks, s.lockOfTopic(group, topic))
			ahead = append(ahead, step{template: sqlMoveOfKey, args: []any{lineOf(group, topic), key, parkAhead}})
			return err
		}})
		if err != nil {
			return err
		}
		return t.finish(ctx, append(slices.Concat(lockTopics(locks), moves, ahead, fails), countSteps(&counted))...)
	})
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}
