package postgres

import (
	"context"
	"math"
	"sync/atomic"
)

// Finished batches are dropped now and then. If few rows would stay, both tables are truncated,
// which leaves no work for a vacuum. If many would stay, or somebody reads the tables for long,
// the rows are deleted line by line. The newest batch of a line stays, because it has the
// position up to which the line was read.

const (
	// manyBatches is the size of the batches' tables from which finished batches are dropped.
	manyBatches = 1 << 20
	// tidyLines and tidyPlaces limit the rows that stay after a truncation, because others wait
	// while these rows are written again.
	tidyLines  = 500
	tidyPlaces = 50_000
	// dropAtOnce is how many batches one statement deletes.
	dropAtOnce = 5000

	sqlTidy = `SELECT {p:log_tidy}($1::integer, $2::integer)`

	// linesOfBatches finds the lines that have batches by one index search each, at most $2
	// after the line $1, with the newest batch of each.
	linesOfBatches = `WITH RECURSIVE leap AS (
	(SELECT line, n, pos, low, grp, topic FROM {p:batches} WHERE line = (SELECT line FROM {p:batches} WHERE line > $1::bigint
	ORDER BY line LIMIT 1) ORDER BY n DESC LIMIT 1)
	UNION ALL SELECT p.* FROM leap CROSS JOIN LATERAL (SELECT line, n, pos, low, grp, topic FROM {p:batches}
		WHERE line = (SELECT line FROM {p:batches} WHERE line > leap.line ORDER BY line LIMIT 1) ORDER BY n DESC LIMIT 1) AS p),
t AS MATERIALIZED (SELECT * FROM leap LIMIT $2::bigint)`

	// sqlDropBatches deletes at most $3 finished batches of these lines.
	sqlDropBatches = linesOfBatches + `,
gone AS (DELETE FROM {p:batches} WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM t CROSS JOIN LATERAL (SELECT ctid FROM {p:batches} AS b
		WHERE b.line = t.line AND b.n < t.n AND (b.open = 0 OR ` + hasEnded + `) ORDER BY b.n LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS o
			LIMIT $3::bigint)) RETURNING line, n, token),
notes AS (DELETE FROM {p:ended} AS e USING gone AS g WHERE e.line = g.line AND e.n = g.n AND e.token = g.token)
SELECT (SELECT max(line) FROM t), (SELECT count(*) FROM t), (SELECT count(*) FROM gone)`

	// sqlIdleLines finds lines without records in the log, at most $2 after the line $1.
	sqlIdleLines = linesOfBatches + `
SELECT t.line, t.grp, t.topic, ` + idleLine + ` FROM t`

	idleLine = `((SELECT 1 FROM {p:log} WHERE line = t.line LIMIT 1) IS NULL AND (SELECT 1 FROM {p:batches} AS b WHERE b.line = t.line
		AND b.open > 0 AND NOT ` + hasEnded + ` LIMIT 1) IS NULL)`

	// sqlForgetLine deletes the position of a line. Records that are committed later are read
	// as those of a new line, and no other record of the line exists.
	sqlForgetLine = `WITH t AS MATERIALIZED (SELECT $1::bigint AS line),
		late AS (DELETE FROM {p:late} AS l USING t WHERE l.line = t.line AND ` + idleLine + `),
notes AS (DELETE FROM {p:ended} AS e USING t WHERE e.line = t.line AND ` + idleLine + `)
DELETE FROM {p:batches} AS b USING t WHERE b.line = t.line AND ` + idleLine
)

// log_tidy returns these if it has not truncated.
const (
	tidyRefused = -1 // somebody has locked the tables
	tidyTooMany = -2
)

// dropBatches drops finished batches if there are many. It reports whether there are more.
func (s *Store) dropBatches(ctx context.Context, size int64) (more bool, err error) {
	if size < max(manyBatches, 2*s.batchesKept.Load()) {
		return false, nil
	}
	kept := int64(tidyRefused)
	if s.batchesRefused.over() {
		err = s.in(ctx, s.relaxed, func(ctx context.Context, t *txn) error {
			return t.finish(ctx, step{template: sqlTidy, args: []any{tidyLines, tidyPlaces}, row: func(scan func(...any) error) error {
				return scan(&kept)
			}})
		})
	}
	switch {
	case err != nil:
		return false, err
	case kept >= 0:
		s.batchesKept.Store(kept)
		s.batchesRefused.none()
		return false, nil
	case kept == tidyRefused:
		s.batchesRefused.more()
	}
	return s.deleteBatches(ctx)
}

// deleteBatches deletes finished batches of the next lines.
func (s *Store) deleteBatches(ctx context.Context) (more bool, err error) {
	var last *int64
	var lines, gone int
	err = s.writeAll(ctx, "maintain",
		step{template: sqlDropBatches, args: []any{s.dropped.Load(), linesAtOnce, dropAtOnce}, row: func(scan func(...any) error) error {
			return scan(&last, &lines, &gone)
		}})
	switch {
	case err != nil:
		return false, err
	case gone == dropAtOnce:
		return true, nil
	case lines == linesAtOnce:
		s.dropped.Store(*last)
	default:
		s.dropped.Store(math.MinInt64)
	}
	return false, nil
}

// forgetting is a scan of the lines, which begins after a segment was truncated.
type forgetting struct {
	active atomic.Bool
	after  atomic.Int64
}

func (f *forgetting) begin() {
	if !f.active.Swap(true) {
		f.after.Store(math.MinInt64)
	}
}

// forgetAtOnce is the most lines of one call. Each may take a transaction.
const forgetAtOnce = 200

// forgetLines deletes the positions of topics to which nobody writes any more. It reports
// whether there are more lines to check.
func (s *Store) forgetLines(ctx context.Context) (more bool, err error) {
	if !s.forget.active.Load() {
		return false, nil
	}
	type line struct {
		number int64
		lock   int64
	}
	var idle []line
	var last int64
	looked := 0
	err = s.writeAll(ctx, "maintain",
		step{template: sqlIdleLines, args: []any{s.forget.after.Load(), forgetAtOnce}, row: func(scan func(...any) error) error {
			var group, topic string
			var isIdle bool
			err := scan(&last, &group, &topic, &isIdle)
			if isIdle {
				idle = append(idle, line{last, s.lockOfTopic(group, topic)})
			}
			looked++
			return err
		}})
	if err != nil {
		return false, err
	}
	for _, l := range idle {
		// The lock comes first, in its own statement, so that the next statement sees the
		// changes of claims that held it.
		if err := s.writeAll(ctx, "maintain", step{template: sqlLock, args: []any{l.lock}},
			step{template: sqlForgetLine, args: []any{l.number}}); err != nil {
			return false, err
		}
	}
	more = looked == forgetAtOnce
	s.forget.after.Store(last)
	s.forget.active.Store(more)
	return more, nil
}
