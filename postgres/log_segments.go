package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// The log has segments. One is written to. The others are truncated as soon as all their
// records are handed out and settled. The result of a claim never depends on the segment of a
// row.
//
// A segment that is not written to is needed by no line in the end. A line that does not need
// it stays so, because a finished batch stays finished, unless a transaction with an old
// snapshot still writes to the segment. So the search for a line that needs it continues where
// it last found one. Before the truncation all lines are searched once more while nobody can
// write to the segment: under SHARE, for which claims and appends to other segments do not
// wait. In that transaction the segment is retired, which heeds the snapshots of dumps: see
// log_retired.go. Only the truncation itself takes ACCESS EXCLUSIVE. A crash between any two of
// these steps leaves the segment as it was, and the truncation commits after all acks of the
// records that it drops.

const (
	segments = 3
	// segmentBytes is the size at which appends switch to another segment, if one is empty. A
	// segment smaller than smallSegment is left as it is.
	segmentBytes = 64 << 20
	smallSegment = 4 << 20
	segmentAge   = 30 * time.Second
	// evacuateAfter is the age at which the records of a left segment are moved to the records,
	// so that a group without readers does not keep the segment.
	evacuateAfter = 10 * time.Minute
	// largeSegment is the size from which the store logs that no other segment can follow. It
	// logs it again after tellAgain.
	largeSegment = 8 * segmentBytes
	tellAgain    = 10 * time.Minute
	// linesAtOnce is the number of lines of one statement, at about 20 µs each.
	linesAtOnce = 1000
)

const (
	// sqlSegments also counts large payloads, which PostgreSQL stores in separate tables.
	sqlSegments = `SELECT pg_postmaster_start_time(), segment, statement_timestamp() - rotated_at > $1::bigint * interval '1 microsecond',
		statement_timestamp() - rotated_at > $2::bigint * interval '1 microsecond',
	ARRAY(SELECT (SELECT pg_relation_size(oid) + coalesce(pg_relation_size(reltoastrelid), 0) FROM pg_class WHERE oid = segments.oid)
		FROM (VALUES (0, {q:log_0}::regclass), (1, {q:log_1}::regclass), (2, {q:log_2}::regclass)) AS segments (nth, oid) ORDER BY nth),
	CASE WHEN has_table_privilege({q:batches}, 'TRUNCATE') AND has_table_privilege({q:ended}, 'TRUNCATE') THEN
	pg_table_size({q:batches}::regclass) + pg_table_size({q:ended}::regclass) ELSE 0 END
FROM {p:meta} WHERE only_row AND logged`

	// sqlRotate makes appends write to the segment $2 instead of $1.
	sqlRotate = `UPDATE {p:meta} SET segment = $2::smallint, rotated_at = statement_timestamp() WHERE only_row AND segment = $1::smallint`

	sqlNeeded      = `SELECT line, grp, topic, needed, furthest, latest FROM {p:log_needed}($1::smallint, $2::bigint, $3::integer)`
	sqlFurthest    = linesOfBatches + ` SELECT max(line), count(*), coalesce(max(pos), -1) FROM t`
	sqlPlaceNow    = `SELECT place FROM ` + sequenceNow + ` AS s`
	sqlStopWriting = `SELECT {p:log_stop_writing}($1::text)`
	sqlTruncate    = `SELECT {p:log_truncate}($1::text)`
	sqlWaitingFor  = `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = $1::text::regclass
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`
)

// segmentState is the state that the upkeep reads.
type segmentState struct {
	current   int16
	old, gone bool
	sizes     [segments]int64
	// batches is the size of the batches' tables, 0 if they are not to be truncated.
	batches int64
}

// tendSegments makes appends write to another segment if one is full, truncates segments
// without needed records, and empties those that were needed for long. Each call does some
// bounded transactions. If a lock is not available, it leaves the work for a later call.
func (s *Store) tendSegments(ctx context.Context) (more bool, err error) {
	if err := s.checkCluster(ctx); err != nil {
		return false, s.explain(ctx, "maintain", err)
	}
	var found segmentState
	var since time.Time
	logged := false
	err = s.writeAll(ctx, "maintain",
		step{template: sqlSegments, args: []any{segmentAge.Microseconds(), evacuateAfter.Microseconds()},
			row: func(scan func(...any) error) error {
				logged = true
				return scan(&since, &found.current, &found.old, &found.gone, &found.sizes, &found.batches)
			}})
	if err != nil || !logged {
		return false, err
	}
	if since.UnixMicro() != s.serverSince.Load() {
		s.serverSince.Store(0)
		return true, nil
	}
	s.maintained.noteSizes(found.sizes)
	if err := s.lookAtSequence(ctx); err != nil {
		return false, err
	}
	more, err = s.freeSegments(ctx, found)
	// If one kind of work fails, the others still run.
	dropping, dropErr := s.dropBatches(ctx, found.batches)
	forgetting, forgetErr := s.forgetLines(ctx)
	return more || dropping || forgetting, errors.Join(err, dropErr, forgetErr)
}

// freeSegments empties segments, and makes appends write to another one.
func (s *Store) freeSegments(ctx context.Context, found segmentState) (more bool, err error) {
	free := -1
	for i := range segments {
		if int16(i) == found.current {
			continue
		}
		if found.sizes[i] == 0 {
			free = i
			continue
		}
		look, err := s.truncate(ctx, i)
		if err != nil {
			return false, err
		}
		more = more || look.more
		if look.truncated {
			free = i
			s.forget.begin()
		} else if look.needed && found.gone {
			moved, err := s.evacuate(ctx, look)
			if err != nil {
				return false, err
			}
			more = more || moved
		}
	}
	size := found.sizes[found.current]
	if free < 0 {
		s.tellOfGrowth(size)
	}
	if free < 0 || size < smallSegment || size < segmentBytes && !found.old {
		return more, nil
	}
	s.segmentLooks[free].begin()
	return true, s.writeAll(ctx, "maintain", step{template: sqlRotate, args: []any{found.current, free}})
}

// tellOfGrowth logs now and then that a segment has become large, because no other message
// shows that something keeps the other segments.
func (s *Store) tellOfGrowth(size int64) {
	now := time.Now().UnixNano()
	if last := s.toldOfGrowth.Load(); size < s.largeSegment || last != 0 && now-last < int64(tellAgain) ||
		!s.toldOfGrowth.CompareAndSwap(last, now) {
		return
	}
	s.logger.Error("The log grows, because neither of the other two segments can be emptied", errSegmentsKept,
		watermill.LogFields{"bytes": size})
}

var errSegmentsKept = errors.New("a group has not read their records yet, or a transaction that has written to them is open, or was " +
	"prepared and forgotten: end what is old in pg_stat_activity and pg_prepared_xacts")

// segmentLook is the result of a search of some lines of a segment: the first line that needs
// it, or the last that was searched.
type segmentLook struct {
	line         *int64
	group, topic *string
	needed       bool
	truncated    bool
	// latest is the last place of the segment in these lines.
	latest int64
	// more: there are lines that were not searched.
	more bool
}

// steps searches lines of a segment, from a line on.
func (l *segmentLook) steps(s *Store, segment int, from int64) []step {
	furthest := new(int64)
	*l = segmentLook{}
	return []step{
		{template: sqlNeeded, args: []any{segment, from, linesAtOnce}, row: func(scan func(...any) error) error {
			err := scan(&l.line, &l.group, &l.topic, &l.needed, furthest, &l.latest)
			l.more = l.line != nil && !l.needed
			return err
		}},
		s.notBehind(furthest),
	}
}

// notBehind fails if a line was read further than the sequence is: a record that was appended
// since would count as read, and would be truncated. It comes after the search of the lines,
// because claims move their positions.
func (s *Store) notBehind(furthest *int64) step {
	return step{template: sqlPlaceNow, row: func(scan func(...any) error) error {
		var place int64
		if err := scan(&place); err != nil || *furthest <= place {
			return err
		}
		return s.sequenceBehind(place, *furthest)
	}}
}

// lookAtSequence fails if one of the next lines was read further than the sequence is.
func (s *Store) lookAtSequence(ctx context.Context) error {
	furthest := new(int64)
	var last *int64
	var lines int
	err := s.writeAll(ctx, "maintain",
		step{template: sqlFurthest, args: []any{s.checkedUpTo.Load(), linesAtOnce}, row: func(scan func(...any) error) error {
			return scan(&last, &lines, furthest)
		}}, s.notBehind(furthest))
	if err != nil {
		return err
	}
	if lines < linesAtOnce {
		s.checkedUpTo.Store(math.MinInt64)
	} else {
		s.checkedUpTo.Store(*last)
	}
	return nil
}

// cursor is the line at which a search continues.
type cursor struct{ at atomic.Int64 }

func (c *cursor) begin() { c.at.Store(math.MinInt64) }

// goOn notes the result, and reports whether the search is at its end.
func (c *cursor) goOn(found segmentLook) (ended bool) {
	switch {
	case found.line == nil || !found.needed && *found.line == math.MaxInt64:
		c.begin()
		return true
	case found.needed:
		c.at.Store(*found.line)
	default:
		c.at.Store(*found.line + 1)
	}
	return false
}

// truncate empties a segment without needed records, or finds the line that needs it.
func (s *Store) truncate(ctx context.Context, segment int) (look segmentLook, err error) {
	at := &s.segmentLooks[segment]
	if !s.refusals[segment].over() {
		return look, nil
	}
	// Search first without a lock, because others would have to wait for it.
	if err := s.writeAll(ctx, "maintain", look.steps(s, segment, at.at.Load())...); err != nil || !at.goOn(look) {
		return look, err
	}
	name := s.sql.text(fmt.Sprintf(`{p:log_%d}`, segment))
	refused, heeded := false, 0
	err = s.in(ctx, s.relaxed, func(ctx context.Context, t *txn) error {
		locked := false
		answer := func(scan func(...any) error) error { return scan(&locked) }
		err := t.run(ctx, append([]step{{template: sqlStopWriting, args: []any{name}, row: answer}}, look.steps(s, segment, math.MinInt64)...)...)
		latest := look.latest
		for err == nil && locked && !at.goOn(look) && !look.needed && !refused {
			steps := look.steps(s, segment, at.at.Load())
			err = t.run(ctx, append(steps,
				step{template: sqlWaitingFor, args: []any{name}, row: func(scan func(...any) error) error { return scan(&refused) }})...)
			latest = max(latest, look.latest)
		}
		refused = refused || !locked
		if err != nil || refused || look.needed {
			return err
		}
		if heeded, err = t.retire(ctx, segment, latest); err != nil {
			return err
		}
		if heeded > 0 {
			return t.finish(ctx)
		}
		err = t.finish(ctx, step{template: sqlTruncate, args: []any{name}, row: answer}, step{template: fmt.Sprintf(sqlUnretire, segment)})
		look.truncated, refused = locked && err == nil, !locked
		return err
	})
	switch {
	case refused:
		look.more = false
		s.refusals[segment].more()
	case err == nil:
		s.refusals[segment].none()
	}
	return look, err
}

// refusals are the pauses after a lock was refused, each longer than the last: a transaction
// that has written to a segment may stay open for hours.
type refusals struct{ until, pause atomic.Int64 }

const maxRefusal = 30 * time.Second

func (r *refusals) over() bool { return time.Now().UnixNano() >= r.until.Load() }

func (r *refusals) more() {
	pause := min(max(2*r.pause.Load(), int64(lookEvery)), int64(maxRefusal))
	r.pause.Store(pause)
	r.until.Store(time.Now().UnixNano() + pause)
}

func (r *refusals) none() {
	r.pause.Store(0)
	r.until.Store(0)
}

// evacuateAtOnce is the most records that one step of an evacuation moves.
const evacuateAtOnce = 2000

// evacuate moves some needed records of a segment to the records, and reports whether it moved
// any.
func (s *Store) evacuate(ctx context.Context, look segmentLook) (moved bool, err error) {
	s.logger.Debug("Moving records that a group has not read for long from the log to the table of records",
		watermill.LogFields{"group": *look.group, "topic": *look.topic})
	err = s.onThisServer(ctx, "maintain", func(ctx context.Context, t *txn) error {
		some, err := t.moveLine(ctx, *look.group, *look.topic, evacuateAtOnce)
		moved = some.pending+some.leased > 0 || some.left
		return err
	})
	return moved, err
}
