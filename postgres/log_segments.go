package postgres

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// The log has segments: one is written to, and those behind it are truncated as
// soon as all that is in them has been handed out and settled. No argument about
// what a claim finds depends on the segment of a row.

const (
	segments = 3
	// segmentBytes is the size at which another segment is written to, if one is
	// empty, and smallSegment that below which a segment is left as it is.
	segmentBytes = 64 << 20
	smallSegment = 4 << 20
	segmentAge   = 30 * time.Second
	// manyBatches is the size of the tables of batches from which on those that are over
	// are dropped.
	manyBatches = 1 << 20
	// upkeepEvery is how often one process looks after the segments, upkeepIdly how
	// often where it has found nothing to do and claimed nothing since.
	upkeepEvery = 2 * time.Second
	upkeepIdly  = 30 * time.Second
	// evacuateAfter is how long after it was left a segment is emptied into the
	// records, so that a group that nobody reads keeps none.
	evacuateAfter = 10 * time.Minute
)

const (
	// sqlSegments also counts large payloads, which are beside the tables.
	sqlSegments = `SELECT pg_postmaster_start_time(), segment, statement_timestamp() - rotated_at > $1::bigint * interval '1 microsecond', statement_timestamp() - rotated_at > $2::bigint * interval '1 microsecond',
	ARRAY(SELECT (SELECT pg_relation_size(oid) + coalesce(pg_relation_size(reltoastrelid), 0) FROM pg_class WHERE oid = segments.oid)
		FROM (VALUES (0, {q:log_0}::regclass), (1, {q:log_1}::regclass), (2, {q:log_2}::regclass)) AS segments (nth, oid) ORDER BY nth),
	` + sequenceNow + `, (SELECT coalesce(max(pos), -1) FROM {p:log_newest}()), CASE WHEN has_table_privilege({q:batches}, 'TRUNCATE') AND has_table_privilege({q:ended}, 'TRUNCATE') THEN
	pg_table_size({q:batches}::regclass) + pg_table_size({q:ended}::regclass) ELSE 0 END
FROM {p:meta} WHERE only_row AND logged`

	// sqlRotate has appends write to the segment $2 in the place of $1.
	sqlRotate = `UPDATE {p:meta} SET segment = $2::smallint, rotated_at = statement_timestamp() WHERE only_row AND segment = $1::smallint`

	// lockSegment waits as long as claims take, which others wait for then. Who has it
	// for longer has the upkeep come again.
	waitBriefly = `SELECT set_config('lock_timeout', '20ms', true)`
	lockSegment = `LOCK TABLE {p:log_%[1]d} IN ACCESS EXCLUSIVE MODE`

	sqlTidy = `SELECT {p:log_tidy}()`

	truncateSegment = `TRUNCATE {p:log_%[1]d}`

	// neededOf finds lines of which something in a segment is still to be handed out
	// or settled: it is beyond what was read, or was passed before it was finished, or
	// is in a batch. It is asked with the segment locked, so that nothing in it is of
	// a transaction that is still open.
	neededOf = `WITH RECURSIVE t AS (
	(SELECT line, grp, topic FROM {p:log_%[1]d} ORDER BY line, pos LIMIT 1)
	UNION ALL SELECT n.* FROM t CROSS JOIN LATERAL (SELECT line, grp, topic FROM {p:log_%[1]d} WHERE line > t.line ORDER BY line, pos LIMIT 1) AS n)
SELECT t.grp, t.topic FROM t LEFT JOIN LATERAL (SELECT pos, low FROM {p:batches} WHERE line = t.line ORDER BY n DESC LIMIT 1) AS last ON true
WHERE last.pos IS NULL
	OR (SELECT 1 FROM {p:log_%[1]d} WHERE line = t.line AND pos > last.pos LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:log_unfinished}(t.line, pg_current_snapshot()) AS u CROSS JOIN LATERAL (SELECT 1 FROM {p:log_%[1]d} AS l
		WHERE l.line = t.line AND l.pos > u.from_pos AND l.pos <= u.to_pos AND l.xid = u.xid LIMIT 1) AS r LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:batches} AS b WHERE b.line = t.line AND b.n >= last.low AND b.open > 0 AND NOT ` + hasEnded + `
		AND b.positions[1] <= (SELECT pos FROM {p:log_%[1]d} WHERE line = t.line ORDER BY pos DESC LIMIT 1) LIMIT 1) IS NOT NULL
LIMIT $1::bigint`

	// sqlIdleLines finds lines, $2 at most after the line $1, of which nothing is left
	// in the log.
	sqlIdleLines = `WITH RECURSIVE t AS (
	(SELECT line, grp, topic FROM {p:batches} WHERE line > $1::bigint ORDER BY line LIMIT 1)
	UNION ALL SELECT n.* FROM t CROSS JOIN LATERAL (SELECT line, grp, topic FROM {p:batches} WHERE line > t.line ORDER BY line LIMIT 1) AS n)
SELECT t.line, t.grp, t.topic, ` + idleLine + ` FROM (SELECT * FROM t LIMIT $2::bigint) AS t`

	idleLine = `((SELECT 1 FROM {p:log} WHERE line = t.line LIMIT 1) IS NULL AND (SELECT 1 FROM {p:batches} AS b WHERE b.line = t.line AND b.open > 0 AND NOT ` + hasEnded + ` LIMIT 1) IS NULL)`

	// sqlForgetLine forgets how far a line has been read. What is committed later
	// comes as if it were new, and there is nothing else of the line to come again.
	sqlForgetLine = `WITH t AS MATERIALIZED (SELECT $1::bigint AS line), gone AS (DELETE FROM {p:late} AS l USING t WHERE l.line = t.line AND ` + idleLine + `)
DELETE FROM {p:batches} AS b USING t WHERE b.line = t.line AND ` + idleLine
)

// segmentState is what upkeep looks at.
type segmentState struct {
	current   int16
	old, gone bool
	sizes     [segments]int64
	// at is where the sequence is, read how far the line is that was read furthest.
	at, read int64
	// batches is the size of their tables, 0 where they are not to be truncated.
	batches int64
}

// upkeepLog has appends write to another segment when one is full, and truncates
// those of which nothing is needed. It waits for a lock for 20 ms at most, and what
// cannot be done just then is done another time.
func (s *Store) upkeepLog(ctx context.Context) {
	every := upkeepIdly
	if s.logUsed.Load() {
		every = upkeepEvery
	}
	now := time.Now().UnixNano()
	last := s.upkeep.Load()
	if !s.readsLog() || now-last < int64(every) || !s.upkeep.CompareAndSwap(last, now) {
		return
	}
	s.logUsed.Store(false)
	// Whoever may not truncate leaves it to others.
	if err := s.tendSegments(ctx); err != nil && code(err) != codeNoRight && !passes(err) && ctx.Err() == nil {
		s.logger.Error("The segments of the log were not looked after; it is tried again", err, nil)
	}
}

func (s *Store) tendSegments(ctx context.Context) error {
	if err := s.checkCluster(ctx); err != nil {
		return s.explain(ctx, "upkeep", err)
	}
	var found segmentState
	var since time.Time
	logged := false
	err := s.writeAll(ctx, "upkeep", step{template: sqlSegments, args: []any{segmentAge.Microseconds(), evacuateAfter.Microseconds()}, row: func(scan func(...any) error) error {
		logged = true
		return scan(&since, &found.current, &found.old, &found.gone, &found.sizes, &found.at, &found.read, &found.batches)
	}})
	if err != nil || !logged {
		return err
	}
	if found.read > found.at {
		// What was appended meanwhile is taken for read, and would be truncated.
		return s.sequenceBehind(found.at, found.read)
	}
	if since.UnixMicro() != s.serverSince.Load() {
		s.serverSince.Store(0)
		return nil
	}
	if err := s.tidyBatches(ctx, found.batches); err != nil {
		return err
	}
	free, emptied := -1, false
	for i := range segments {
		if int16(i) == found.current || found.sizes[i] == 0 {
			if int16(i) != found.current {
				free = i
			}
			continue
		}
		truncated, err := s.truncate(ctx, i)
		if err != nil {
			return err
		}
		if truncated {
			free, emptied = i, true
		} else if found.gone {
			if err := s.evacuate(ctx, i); err != nil {
				return err
			}
		}
	}
	if emptied {
		s.logUsed.Store(true)
		if err := s.forgetLines(ctx); err != nil {
			return err
		}
	}
	size := found.sizes[found.current]
	if free < 0 || size < smallSegment || size < segmentBytes && !found.old {
		return nil
	}
	s.logUsed.Store(true)
	return s.writeAll(ctx, "upkeep", step{template: sqlRotate, args: []any{found.current, free}})
}

// truncate empties a segment of which nothing is needed.
func (s *Store) truncate(ctx context.Context, segment int) (truncated bool, err error) {
	needed := false
	look := step{template: fmt.Sprintf(neededOf, segment), args: []any{1}, row: func(func(...any) error) error {
		needed = true
		return nil
	}}
	// First without the lock, which others have to wait for.
	if err := s.writeAll(ctx, "upkeep", look); err != nil || needed || !s.refusals[segment].over() {
		return false, err
	}
	// Once: who has it locked has it for a while.
	err = s.in(ctx, s.relaxed, func(ctx context.Context, t *txn) error {
		err := t.run(ctx, step{template: waitBriefly}, step{template: fmt.Sprintf(lockSegment, segment)}, look)
		if err != nil || needed {
			return err
		}
		truncated = true
		return t.finish(ctx, step{template: fmt.Sprintf(truncateSegment, segment)})
	})
	if code(err) == codeLockTimeout {
		s.refusals[segment].more()
		return false, nil
	}
	s.refusals[segment].none()
	return truncated && err == nil, err
}

// tidyBatches drops the batches that are over, where they are many.
func (s *Store) tidyBatches(ctx context.Context, size int64) error {
	if size < max(manyBatches, 2*s.batchesKept.Load()) || !s.batchesRefused.over() {
		return nil
	}
	err := s.in(ctx, s.relaxed, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, step{template: waitBriefly}, step{template: sqlTidy, row: func(scan func(...any) error) error {
			var kept int64
			err := scan(&kept)
			s.batchesKept.Store(kept)
			return err
		}})
	})
	if code(err) == codeLockTimeout {
		s.batchesRefused.more()
		return nil
	}
	s.batchesRefused.none()
	return err
}

// refusals have what could not be locked left alone for longer each time:
// a transaction that has written to it may stay open for hours.
type refusals struct{ until, pause atomic.Int64 }

const maxRefusal = 30 * time.Second

func (r *refusals) over() bool { return time.Now().UnixNano() >= r.until.Load() }

func (r *refusals) more() {
	pause := min(max(2*r.pause.Load(), int64(upkeepEvery)), int64(maxRefusal))
	r.pause.Store(pause)
	r.until.Store(time.Now().UnixNano() + pause)
}

func (r *refusals) none() {
	r.pause.Store(0)
	r.until.Store(0)
}

// evacuateAtOnce is how many lines of a segment one round of upkeep empties.
const evacuateAtOnce = 20

// evacuate moves what is needed of a segment to the records.
func (s *Store) evacuate(ctx context.Context, segment int) error {
	var lines [][2]string
	err := s.writeAll(ctx, "upkeep", step{template: fmt.Sprintf(neededOf, segment), args: []any{evacuateAtOnce}, row: func(scan func(...any) error) error {
		var line [2]string
		err := scan(&line[0], &line[1])
		lines = append(lines, line)
		return err
	}})
	if err != nil {
		return err
	}
	for _, line := range lines {
		s.logger.Info("What a group has not read for long moves from the log to the records", watermill.LogFields{"group": line[0], "topic": line[1]})
		if err := s.moveTopic(ctx, "upkeep", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// linesAtOnce is how many lines one round of upkeep looks at.
const linesAtOnce = 1000

// forgetLines has nothing stay of topics that are written to no more.
func (s *Store) forgetLines(ctx context.Context) error {
	type line struct {
		number int64
		lock   int64
	}
	var idle []line
	next := int64(math.MinInt64)
	looked := 0
	err := s.writeAll(ctx, "upkeep", step{template: sqlIdleLines, args: []any{s.forgotten.Load(), linesAtOnce}, row: func(scan func(...any) error) error {
		var number int64
		var group, topic string
		var isIdle bool
		err := scan(&number, &group, &topic, &isIdle)
		if isIdle {
			idle = append(idle, line{number, s.lockOfTopic(group, topic)})
		}
		next, looked = number, looked+1
		return err
	}})
	if err != nil {
		return err
	}
	if looked < linesAtOnce {
		next = math.MinInt64
	}
	s.forgotten.Store(next)
	for _, l := range idle {
		// The lock comes first, and its statement is one of its own, so that the next
		// one sees what a claim has done meanwhile.
		if err := s.writeAll(ctx, "upkeep", step{template: sqlLockTopic, args: []any{l.lock}}, step{template: sqlForgetLine, args: []any{l.number}}); err != nil {
			return err
		}
	}
	return nil
}
