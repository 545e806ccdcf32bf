package postgres

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlWhereInLog finds the lines of those of the records $1 that are in the log, and of the
	// other records of their messages.
	sqlWhereInLog = `SELECT DISTINCT r.id::text, r.grp, r.topic FROM (
	SELECT l.id, l.grp, l.topic FROM {p:log} AS l WHERE l.id = ANY ($1::text[]::uuid[])
	UNION ALL SELECT o.id, o.grp, o.topic FROM (SELECT step FROM {p:log} WHERE id = ANY ($1::text[]::uuid[]) AND step IS NOT NULL
		UNION SELECT step FROM {p:records} WHERE id = ANY ($1::text[]::uuid[]) AND step IS NOT NULL) AS m
	CROSS JOIN LATERAL (SELECT id, grp, topic FROM {p:log} WHERE step = m.step OFFSET 0) AS o WHERE $2::boolean) AS r`

	// sqlMovePending moves rows that no claim has passed.
	sqlMovePending = `WITH l AS (DELETE FROM {p:log} AS l WHERE l.id = ANY ($1::text[]::uuid[])
		AND NOT {p:log_passed}(l.line, l.xid, l.pos) RETURNING l.*)
` + moveInLine + ` FROM l`

	sqlKeysOf = `SELECT DISTINCT grp, topic, key FROM (
	SELECT grp, topic, key FROM {p:records} WHERE id = ANY ($1::text[]::uuid[])
	UNION ALL SELECT grp, topic, key FROM {p:log} WHERE id = ANY ($1::text[]::uuid[])) AS r WHERE key <> '' AND grp IS NOT NULL`

	// sqlMoveOfKey moves the next rows of the key $2 that are among the next $3 rows of the
	// line.
	sqlMoveOfKey = `WITH near AS MATERIALIZED (SELECT pos, key FROM {p:log} WHERE line = $1::bigint AND pos > coalesce((SELECT pos ` +
		newestBatch + `), -1) ORDER BY pos LIMIT $3::bigint),
l AS (DELETE FROM {p:log} AS l WHERE l.line = $1::bigint AND l.pos = ANY (ARRAY(SELECT pos FROM near WHERE key = $2::text)) RETURNING l.*)
` + moveInLine + ` FROM l`

	sqlTopicsOfLog = linesOfLog + `SELECT topic FROM t WHERE grp = $1::text`
)

const (
	// moveBytes is the most bytes that one transaction moves, unless one row is larger.
	moveBytes = 16 << 20

	// sqlPlaces is sqlLogPage with places and sizes alone, because the server moves the rows.
	// $3 is the limit in bytes.
	sqlPlaces = `WITH late AS MATERIALIZED (SELECT l.* FROM (` + passedFinished + `) AS c
	CROSS JOIN LATERAL (SELECT pos, size FROM {p:log} WHERE line = $1::bigint AND pos > c.from_pos AND pos <= c.to_pos
	AND xid = c.xid ORDER BY pos LIMIT $2::bigint) AS l
	ORDER BY l.pos LIMIT $2::bigint)
SELECT late, seen, pos, size FROM (SELECT *, sum(size) OVER (ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM (
	SELECT true AS late, true AS seen, pos, size FROM late
	UNION ALL SELECT false, r.* FROM (SELECT ` + seenByMark + ` AS seen, pos, size
		FROM {p:log} WHERE line = $1::bigint AND pos > coalesce((SELECT pos ` + newestBatch + `), -1) ORDER BY pos LIMIT $2::bigint - (SELECT
			count(*) FROM late)) AS r) AS p) AS q
WHERE before IS NULL OR before < $3::bigint ORDER BY pos`

	sqlNextLines = linesOfBatches + ` SELECT max(line), count(*) FROM t`

	sqlInWork = `SELECT count(*) FROM {p:batches} AS b WHERE ` + inWorkOfLine
)

var (
	// sqlMoveSomeLeased moves the records in work of the line $1, with their leases: as many
	// batches as have about $2 records.
	sqlMoveSomeLeased = moveOpenOf(`b.line = $1::bigint AND b.open > 0 AND b.n = ANY (ARRAY(SELECT w.n
		FROM (SELECT b.n, sum(b.open) OVER (ORDER BY b.n) - b.open AS before
	FROM {p:batches} AS b WHERE `+inWorkOfLine+`) AS w WHERE w.before < $2::bigint))`, `FOR UPDATE`)

	// sqlLogBackSome is sqlLogBack for the next lines, at most $2 after the line $1: as many
	// batches as have about $3 records.
	sqlLogBackSome = moveOpenOf(`b.ctid = ANY (ARRAY(`+linesOfBatches+`
		SELECT o.ctid FROM (SELECT i.line, i.n, sum(i.open) OVER (ORDER BY i.lease_until, i.line, i.n) - i.open AS before
			FROM t CROSS JOIN LATERAL (SELECT b.line, b.n, b.open, b.lease_until FROM {p:batches} AS b WHERE b.line = t.line AND b.n >= t.low
			AND b.open > 0
				AND b.lease_until <= statement_timestamp() AND NOT `+hasEnded+` OFFSET 0) AS i) AS w
		CROSS JOIN LATERAL (SELECT ctid FROM {p:batches} WHERE line = w.line AND n = w.n OFFSET 0) AS o
		WHERE w.before < $3::bigint))
	AND b.lease_until <= statement_timestamp() ORDER BY b.line, b.n`, `FOR UPDATE SKIP LOCKED`)
)

// moveByID moves records from the log to the records, with their leases, so that the same
// transaction can change them there. It locks their lines. siblings: it also moves the other
// records of their messages.
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

// moveGroup moves all records of the group from the log to the records.
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

// moveTopic moves all records of a line from the log to the records.
func (s *Store) moveTopic(ctx context.Context, operation, group, topic string) error {
	_, err := s.moveSome(ctx, operation, group, topic, math.MaxInt)
	return err
}

// moveSome is moveTopic with a limit. Records in work do not count for it.
func (s *Store) moveSome(ctx context.Context, operation, group, topic string, limit int) (all int, err error) {
	// An empty step is repeated once, because rows that were only just committed may have
	// hidden the others.
	for empty := 0; empty < 2 && all < limit; {
		var moved lineMove
		err := s.onThisServer(ctx, operation, func(ctx context.Context, t *txn) (err error) {
			moved, err = t.moveLine(ctx, group, topic, min(limit-all, adoptAtOnce))
			return err
		})
		all += moved.pending
		switch {
		case err != nil:
			return all, err
		case moved.pending > 0 || moved.left:
			empty = 0
		case !moved.hidden:
			return all, nil
		default:
			empty++
		}
	}
	return all, nil
}

// lineMove is the result of one step of moving a line.
type lineMove struct {
	pending, leased int
	// left: more records are in work. hidden: there may be hidden rows, see logLine.hidden.
	left, hidden bool
}

// moveLine moves up to want records of a line, in the order of a claim, and about as many of
// those in work. It reads places alone.
func (t *txn) moveLine(ctx context.Context, group, topic string, want int) (moved lineMove, err error) {
	c := &claim{s: t.s, req: outmill.ClaimRequest{Group: group}}
	l := &logLine{line: c.newLine(t, topic, want), number: lineOf(group, topic), room: moveBytes}
	err = t.run(ctx, l.lock(), l.mark(), step{template: sqlMoveSomeLeased, args: []any{l.number, want}, count: &moved.leased},
		step{template: sqlInWork, args: []any{l.number}, row: func(scan func(...any) error) error {
			var batches int
			err := scan(&batches)
			moved.left = batches > 0
			return err
		}},
		step{template: sqlTopicState, args: l.ofTopic(outmill.OwnerToken{}.String(), l.number, int(outmill.OrderNone)), row: l.state},
		step{template: sqlPlaces, args: []any{l.number, want, moveBytes}, row: l.place})
	if err != nil {
		return lineMove{}, err
	}
	var moving []int64
	for i := range l.log {
		moving = append(moving, l.log[i].Seq)
	}
	l.handled = len(moving)
	moved.pending, moved.hidden = len(moving), l.unread > 0
	var steps []step
	if len(moving) > 0 {
		steps = append(steps, step{template: sqlMoveHeld, args: []any{l.number, moving}})
	}
	return moved, t.finish(ctx, append(steps, l.goOn(nil, nil)...)...)
}

// place reads a row of sqlPlaces.
func (l *logLine) place(scan func(...any) error) error {
	var late bool
	var seen pgtype.Bool
	var r storekit.Candidate
	if err := scan(&late, &seen, &r.Seq, &r.Size); err != nil {
		return err
	}
	if !seen.Valid {
		return &otherHistory{place: r.Seq}
	}
	if !seen.Bool {
		l.unread, l.unreadSize = l.unread+1, l.unreadSize+r.Size
		return nil
	}
	if late {
		l.late++
	}
	l.log = append(l.log, r)
	return nil
}

// failAndPark is Fail with parked keys. It first moves the next rows of these keys from the log
// to the records. A claim parks the others when it meets them.
func (s *Store) failAndPark(ctx context.Context, items []outmill.Settlement, parking []string) error {
	moves, err := s.toRecords(ctx, storekit.LeasesOf(items))
	if err != nil {
		return err
	}
	fails, err := stepsFor(sqlFail, items, nil, storekit.ParkedError, s.atOnce.Park())
	if err != nil {
		return s.explain(ctx, "fail", err)
	}
	var counted []outmill.JoinID
	err = s.durably(ctx, "fail", func(ctx context.Context, t *txn) error {
		var locks []int64
		var ahead []step
		err := t.run(ctx, step{template: sqlKeysOf, args: []any{parking}, row: func(scan func(...any) error) error {
			var group, topic, key string
			err := scan(&group, &topic, &key)
			locks = append(locks, s.lockOfTopic(group, topic))
			ahead = append(ahead, step{template: sqlMoveOfKey, args: []any{lineOf(group, topic), key, s.atOnce.Park()}})
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
