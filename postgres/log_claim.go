package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// A claim of a topic that may have records in the log reads both lanes: the log, and the ready
// records of the table. It takes from both in one transaction, which holds the topic's lock:
// see docs/postgres-log.md.

const (
	// sqlMark reads the sequence and the snapshot and, last, gives the transaction its number:
	// rows with a place up to here have lower numbers. It returns the server's start time,
	// whether the transaction had a number before, which would be too low, and how many places
	// a session caches.
	sqlMark = `SELECT pg_postmaster_start_time(), pg_current_xact_id_if_assigned() IS NOT NULL, (SELECT seqcache FROM pg_sequence
		WHERE seqrelid = {q:records_seq_seq}::regclass),
	place, set_config('outmill.mark', place || '|' || pg_current_snapshot()::text || '|' || pg_current_xact_id()::text, true)
FROM ` + sequenceNow + ` AS s`

	markedPlace   = `split_part(current_setting('outmill.mark'), '|', 1)::bigint`
	markedNow     = `split_part(current_setting('outmill.mark'), '|', 2)::pg_snapshot`
	markedHorizon = `split_part(current_setting('outmill.mark'), '|', 3)::xid8`

	newestBatch = `FROM {p:batches} WHERE line = $1::bigint ORDER BY n DESC LIMIT 1`

	// passedFinished are the transactions that the line $1 was read past and that are finished
	// by now. Each has the places between which it may have rows that were not read.
	passedFinished = `SELECT xid, from_pos, to_pos FROM {p:log_unfinished}($1::bigint, ` + markedNow + `)`

	// ofPassed are the rows of the line $1 that belong to the transactions c, each between its
	// places. One scan of the index finds all of them, because the index has the transactions
	// too: the cost must not be the number of transactions times that of the rows. Most rows
	// belong to later transactions.
	ofPassed = `{p:log} AS l WHERE l.line = $1::bigint AND l.pos > (SELECT min(c.from_pos) FROM c) AND l.pos <= (SELECT max(c.to_pos) FROM c)
	AND l.xid >= (SELECT c.xid FROM c ORDER BY c.xid LIMIT 1) AND l.xid <= (SELECT c.xid FROM c ORDER BY c.xid DESC LIMIT 1)
	AND coalesce(l.xid IN (SELECT c.xid FROM c), false)
	AND (SELECT 1 FROM c WHERE c.xid = l.xid AND l.pos > c.from_pos AND l.pos <= c.to_pos LIMIT 1) IS NOT NULL`

	// sqlUnseen finds the first row of the line $1 that was read past and is visible now, but
	// was not when the claim marked. It matters only if $2 and $3 have ready or held records,
	// because the log is read as of the mark, and the records as of now.
	sqlUnseen = `WITH c AS MATERIALIZED (SELECT xid, from_pos, to_pos FROM {p:log_unfinished}($1::bigint, pg_current_snapshot())
		WHERE NOT pg_visible_in_snapshot(xid, (SELECT ` + markedNow + `)))
SELECT (SELECT l.pos FROM ` + ofPassed + ` AND l.pos > (SELECT past FROM {p:meta} WHERE only_row) ORDER BY l.pos LIMIT 1)
WHERE (SELECT 1 FROM {p:records} WHERE grp = $2::text AND topic = $3::text AND stage = 0 LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:records} WHERE grp = $2::text AND topic = $3::text AND stage = 1 LIMIT 1) IS NOT NULL`

	// seenByMark reports whether a row was finished when the claim marked. It is NULL if the
	// row has a number that this server has not given.
	seenByMark = `CASE WHEN pos <= (SELECT past FROM {p:meta} WHERE only_row) OR pg_visible_in_snapshot(xid, (SELECT ` + markedNow +
		`)) THEN true
		WHEN xid < (SELECT pg_snapshot_xmax(pg_current_snapshot())) THEN false END`

	// logRow leaves out the metadata and payload of a row of more than $5 bytes.
	logRow = `grp = $3::text AND topic = $4::text AS same, pos, id, key, created_at, size, joins::text AS joins, message_id, correlation_id,
		causation_id, tenant_id, traceparent, tracestate, dedup_key,
	CASE WHEN size <= $5::bigint THEN metadata END AS metadata, CASE WHEN size <= $5::bigint THEN payload END AS payload`

	// sqlLogPage reads the next rows of the line $1, at most $2: first those that were read
	// past before they were finished. seen is false for a row that was not finished when the
	// claim marked but is by now, and NULL for one that has a number that this server has not
	// given.
	sqlLogPage = `WITH c AS MATERIALIZED (` + passedFinished + `),
late AS MATERIALIZED (SELECT true AS seen, ` + logRow + ` FROM ` + ofPassed + ` ORDER BY l.pos LIMIT $2::bigint)
SELECT true, late.* FROM late
UNION ALL SELECT false, r.* FROM (SELECT ` + seenByMark + ` AS seen, ` + logRow + `
	FROM {p:log} WHERE line = $1::bigint AND pos > coalesce((SELECT pos ` + newestBatch + `), -1) ORDER BY pos LIMIT $2::bigint - (SELECT
		count(*) FROM late)) AS r`

	// sqlLogPageWithin is sqlLogPage with a limit of $6 bytes, which takes a third longer.
	sqlLogPageWithin = `SELECT late, ` + logRowOut + ` FROM (SELECT *, sum(size) OVER (ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING
		AND 1 PRECEDING) AS before FROM (` +
		sqlLogPage + `) AS p (late, ` + logRowOut + `)) AS q WHERE before IS NULL OR before < $6::bigint ORDER BY pos`

	logRowOut = `seen, same, pos, id, key, created_at, size, joins, message_id, correlation_id, causation_id, tenant_id, traceparent,
		tracestate, dedup_key, metadata, payload`

	// inWorkOfLine are the unfinished batches b of the line $1. The finished ones are read once
	// for all of them.
	inWorkOfLine = `b.line = $1::bigint AND b.n >= (SELECT low ` + newestBatch + `) AND b.open > 0
	AND (b.n, b.token) NOT IN (SELECT e.n, e.token FROM {p:ended} AS e WHERE e.line = $1::bigint AND e.n >= (SELECT low ` + newestBatch + `))`

	// hasEnded reports whether the batch b has ended.
	hasEnded = `(SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NOT NULL`

	// sqlOthers reads the unfinished batches of other owners, and the owner's own batches whose
	// lease has ended, because their records will be delivered again.
	sqlOthers = `SELECT b.owner::text, b.lease_until, b.done::text, b.keys FROM {p:batches} AS b WHERE ` + inWorkOfLine +
		` AND (b.owner <> $2::text::uuid OR b.lease_until <= statement_timestamp())`

	// sqlAddBatch notes how far a line was read, and which records were handed out. The number
	// of a line's first batch is the current place of the sequence, so that it rarely equals
	// the number of a deleted batch. The token distinguishes them if it does.
	sqlAddBatch = `WITH last AS MATERIALIZED (SELECT n, pos, seen, horizon, since ` + newestBatch + `),
known AS MATERIALIZED (SELECT x.xid, x.since FROM last CROSS JOIN LATERAL ROWS
FROM (pg_snapshot_xip(last.seen), unnest(last.since)) AS x (xid, since))
INSERT INTO {p:batches} (line, n, pos, seen, horizon, since, low, lease_until, owner, open, steps, grp, topic, done, positions, keys, token)
SELECT $1::bigint, new.n, $2::bigint, ` + markedNow + `, ` + markedHorizon + `, ` + sinceMarked + `,
	coalesce((SELECT b.n FROM {p:batches} AS b WHERE ` + inWorkOfLine + ` ORDER BY b.n LIMIT 1), new.n),
	CASE WHEN cardinality($3::bigint[]) > 0 THEN statement_timestamp() + $4::bigint * interval '1 microsecond' END,
	$5::text::uuid, cardinality($3::bigint[]), $6::boolean, $7::text, $8::text, repeat('0', cardinality($3::bigint[]))::varbit, $3::bigint[],
	$9::bigint[], $10::bigint
FROM (SELECT coalesce((SELECT n FROM last), ` + markedPlace + `) + 1 AS n) AS new
RETURNING n, lease_until`

	// sinceMarked is the column since of the batch after last. A transaction that got its
	// number after last's horizon has no place up to last's pos. For another one the value is
	// copied from last. Both lists are read once, because a cluster may have a thousand open
	// transactions.
	sinceMarked = `(SELECT array_agg(CASE WHEN p.xid >= last.horizon THEN last.pos WHEN p.xid >= last.upto THEN last.rest
		ELSE coalesce(o.since, -1) END ORDER BY p.nth)
	FROM pg_snapshot_xip(` + markedNow + `) WITH ORDINALITY AS p (xid, nth)
	LEFT JOIN (SELECT pos, horizon, pg_snapshot_xmax(seen) AS upto, since[cardinality(since)] AS rest FROM last OFFSET 0) AS last ON true
	LEFT JOIN known AS o ON o.xid = p.xid) || coalesce((SELECT pos FROM last), -1)`

	// sqlKeepLate notes that the rows after $2 of the passed transactions are still to be read.
	// Of the new transactions it keeps only those that have such rows, because each claim meets
	// some without. Those that were kept before stay until all their rows are read, because the
	// claim need not scan the rest. more scans the passed rows once for all transactions, from
	// the first row of one to the first row of the next, because each search would read the
	// index from from_pos to to_pos.
	sqlKeepLate = `WITH RECURSIVE c AS MATERIALIZED (` + passedFinished + `),
fresh AS MATERIALIZED (SELECT c.xid, c.from_pos, c.to_pos FROM c WHERE c.xid NOT IN (SELECT k.xid FROM {p:late} AS k
WHERE k.line = $1::bigint)),
bounds AS MATERIALIZED (SELECT count(*) AS n, greatest(min(from_pos), $2::bigint) AS from_pos, max(to_pos) AS to_pos FROM fresh),
more (pos, found) AS (SELECT from_pos, '{}'::xid8[] FROM bounds WHERE n > 0
	UNION ALL SELECT l.pos, m.found || l.xid FROM more AS m CROSS JOIN LATERAL (SELECT l.pos, l.xid FROM {p:log} AS l
		WHERE cardinality(m.found) < (SELECT n FROM bounds) AND l.line = $1::bigint AND l.pos > m.pos AND l.pos <= (SELECT to_pos FROM bounds)
		AND l.xid >= (SELECT fresh.xid FROM fresh ORDER BY fresh.xid LIMIT 1) AND l.xid <= (SELECT fresh.xid FROM fresh
		ORDER BY fresh.xid DESC LIMIT 1)
		AND coalesce(l.xid IN (SELECT fresh.xid FROM fresh), false) AND l.xid <> ALL (m.found) ORDER BY l.pos LIMIT 1) AS l),
done AS (DELETE FROM {p:late} WHERE line = $1::bigint AND to_pos <= $2::bigint)
INSERT INTO {p:late} (line, xid, from_pos, to_pos) SELECT $1::bigint, c.xid, greatest(c.from_pos, $2::bigint), c.to_pos FROM c
WHERE c.to_pos > $2::bigint AND (c.xid NOT IN (SELECT fresh.xid FROM fresh) OR c.xid = ANY ((SELECT more.found FROM more
ORDER BY cardinality(more.found) DESC LIMIT 1)::xid8[]))
ON CONFLICT (line, xid, to_pos) DO UPDATE SET from_pos = excluded.from_pos`

	sqlForgetLate = `DELETE FROM {p:late} WHERE line = $1::bigint`
)

var (
	// sqlInLine reads the ready records and, if $4, those that claims by key have held.
	sqlInLine = `SELECT id::text, seq, key, expired, expiries, size, due, tenant_id, expires_at FROM (
	SELECT * FROM (` + readyLine(`$3::bigint`) + `) AS line
	UNION ALL
	SELECT * FROM (SELECT ` + lineColumns + ` FROM {p:records}
		WHERE $4::boolean AND grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $3::bigint) AS held) AS r
ORDER BY seq LIMIT $3::bigint`

	// sqlTopicState returns, for the line $4: how far it was read, whether that was on this
	// server, and whether transactions that were passed must be noted. For the topic: whether
	// all its records have their group, whether any record may block a key, whether another
	// owner has a lease, the first waiting record, and the last place of the log or of the
	// ready records. It also returns the counter of the pauses, asideInOrder, may_have_rows, and the
	// place of the sequence, read last so that it is not before that one.
	sqlTopicState = `SELECT coalesce((SELECT pos FROM {p:batches} WHERE line = $4::bigint ORDER BY n DESC LIMIT 1), -1),
	coalesce((SELECT horizon FROM {p:batches} WHERE line = $4::bigint ORDER BY n DESC LIMIT 1) < ` + markedHorizon + `, true),
	(SELECT 1 FROM {p:late} WHERE line = $4::bigint LIMIT 1) IS NOT NULL OR coalesce((SELECT {p:log_stale}(b) FROM {p:batches} AS b
	WHERE line = $4::bigint ORDER BY n DESC LIMIT 1), false),
	` + allRouted + `,
	` + anyOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4`) + ` OR ` + anyOf(`{p:records} WHERE `+waitingOfTopic) + `
	OR ` + anyOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 1`) + ` OR ` + anyOf(`{p:records} WHERE parked`) + `,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND owner <> $3::text::uuid
		AND (available_at > statement_timestamp() OR ` + notExpired + `) LIMIT 1) IS NOT NULL,
	(SELECT seq FROM {p:records} WHERE ` + waitingOfTopic + ` AND ` + notExpired + ` ORDER BY seq LIMIT 1),
	coalesce(greatest((SELECT pos FROM {p:log} WHERE line = $4::bigint ORDER BY pos DESC LIMIT 1),
		(SELECT seq FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 1
			ORDER BY seq DESC LIMIT 1),
		(SELECT seq FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 0
			ORDER BY seq DESC LIMIT 1)), -1),
	(SELECT pauses FROM {p:meta} WHERE only_row), ` + asideInOrder(`$5::integer`) + `, {p:may_have_rows}(),
	(SELECT place FROM ` + sequenceNow + ` AS s)`

	// sqlLogState is sqlTopicState for a topic that has no row outside the log, with the line $1. It
	// reports whether that is so, and nothing is to be taken back (sqlLogBack).
	sqlLogState = `SELECT coalesce((SELECT pos ` + newestBatch + `), -1),
	coalesce((SELECT horizon ` + newestBatch + `) < ` + markedHorizon + `, true),
	(SELECT 1 FROM {p:late} WHERE line = $1::bigint LIMIT 1) IS NOT NULL OR coalesce((SELECT {p:log_stale}(b) FROM {p:batches} AS b
	WHERE line = $1::bigint ORDER BY n DESC LIMIT 1), false),
	NOT {p:may_have_rows}() AND NOT ` + anyOf(`{p:batches} AS b WHERE `+toTakeBack) + `,
	coalesce((SELECT pos FROM {p:log} WHERE line = $1::bigint ORDER BY pos DESC LIMIT 1), -1),
	(SELECT pauses FROM {p:meta} WHERE only_row), (SELECT place FROM ` + sequenceNow + ` AS s)`

	// sqlStates returns the blockers of the keys $4.
	sqlStates = `SELECT k.key, ` + stateColumns + ` FROM (SELECT u.key, 1 AS nth FROM unnest($4::text[]) AS u (key)) AS k` + stateOfKey
)

const (
	// maxBatch is the most records of one batch.
	maxBatch = 5_000
	// backAtOnce is the most batches with an ended lease that one claim takes back.
	backAtOnce = 4
)

// logLine is a claim of one topic in both lanes, in one transaction.
type logLine struct {
	*line
	number int64
	order  outmill.Order
	token  int64
	// plain: the claim reads the log alone, because there are no other rows.
	plain bool
	// The following fields were read from the database.
	lastValue             int64
	pos                   int64
	leftovers, routed     bool
	busy, leasedElsewhere bool
	waiting, unseen       *int64
	items                 []storekit.Candidate
	log                   []storekit.Candidate
	rows                  []logItem // of log
	lanes                 []lane
	served                bool
	others                map[int64]storekit.KeyState
	otherBatches          bool
	late                  int // number of records of log that are late
	// unread is the number of rows of the page that were not finished when the claim marked,
	// and unreadSize their size.
	unread, unreadSize int
	room               int64
	// large: a row was larger than its share of the byte budget. within: the page is read with
	// a running sum of bytes, up to the budget.
	large, within bool
	keyed         bool
	steps         bool
	batch         struct {
		n     int64
		until pgtype.Timestamptz
	}
	logged  []int // indexes of the leased records in log
	handled int
}

// logItem has further data of a row of the log.
type logItem struct {
	record *outmill.Record
}

// takeBoth leases up to want records of the topic in the claim's order.
func (c *claim) takeBoth(ctx context.Context, topic string, want int) error {
	var done *logLine
	var counted []outmill.JoinID
	err := c.inTurn(ctx, topic, func() error {
		return c.s.onThisServer(ctx, "claim", func(ctx context.Context, t *txn) error {
			l := &logLine{line: c.newLine(t, topic, min(want, maxBatch)), number: lineOf(c.req.Group, topic), order: c.req.Order,
				token: rand.Int64()}
			done = l
			if err := l.read(ctx); err != nil {
				return err
			}
			if err := l.decide(ctx); err != nil {
				return err
			}
			steps := l.carryOut()
			if l.hasParked {
				steps = append(steps, countSteps(&counted))
			}
			return t.finish(ctx, steps...)
		})
	})
	if err != nil {
		return err
	}
	c.s.hurry(ctx, counted)
	done.handOver()
	return nil
}

func (l *logLine) ofTopic(more ...any) []any { return append([]any{l.c.req.Group, l.topic}, more...) }

// read reads both lanes, after due records became ready. Without an order nothing must become
// ready: candidates are the records of any stage that have been due longest.
func (l *logLine) read(ctx context.Context) error {
	begin := []step{l.lock(), l.mark()}
	back := l.bringBack()
	// Usually all records are in the log. Then the statements that read the others are left out, because a session needs a
	// long time to plan them at first. The same snapshot that finds that there are no others is that of the claim's
	// decisions.
	if l.plain = len(back.steps) == 0 && !l.c.s.hasRows.Load(); l.plain {
		if err := l.readAfter(ctx, begin...); err != nil {
			return err
		}
		begin = nil
	}
	if !l.plain {
		if err := l.readWithRows(ctx, begin, back); err != nil {
			return err
		}
	}
	var err error
	if l.served, err = l.heedPauses(ctx); err != nil || !l.served || l.order == outmill.OrderNone {
		return err
	}
	return l.lookAtLanes(ctx)
}

func (l *logLine) readWithRows(ctx context.Context, begin []step, back *bringing) error {
	var moved int
	begin = append(append(begin, step{template: sqlLogBack, args: []any{l.number, min(backAtOnce, l.c.s.atOnce.Park())}, count: &moved}),
		back.steps...)
	if l.order != outmill.OrderNone {
		begin = append(begin, l.admit())
	}
	err := l.readAfter(ctx, begin...)
	// There may be more such batches.
	l.c.again = l.c.again || moved > 0 || back.full()
	return err
}

// readAfter reads both lanes after other steps, in their round trip. A running sum of bytes
// would make each read slower. So the log is read without it, and read again with it if a row
// was larger than its share of the byte budget.
func (l *logLine) readAfter(ctx context.Context, steps ...step) error {
	plain := l.plain
	l.within = l.c.s.largeRows.Load()
	if err := l.t.run(ctx, append(steps, l.reads()...)...); err != nil {
		return err
	}
	if l.plain != plain {
		return nil
	}
	l.c.s.largeRows.Store(l.large)
	if !l.large || l.within {
		return nil
	}
	l.within = true
	return l.t.run(ctx, l.reads()...)
}

func (l *logLine) mark() step {
	return step{template: sqlMark, row: func(scan func(...any) error) error {
		var since time.Time
		var early bool
		var cache int64
		var mark string
		err := scan(&since, &early, &cache, &l.lastValue, &mark)
		switch {
		case err != nil:
			return err
		case since.UnixMicro() != l.c.s.serverSince.Load():
			return errServerChanged
		case early:
			return errors.New("the claim got its transaction number before it read the sequence")
		}
		return l.c.s.checkCache(cache)
	}}
}

func (l *logLine) reads() []step {
	owner := l.c.req.Owner.String()
	l.items, l.log, l.rows, l.late, l.others, l.otherBatches, l.unseen = nil, nil, nil, 0, nil, false, nil
	others := step{template: sqlOthers, args: []any{l.number, owner}, row: l.other}
	if l.plain {
		steps := []step{{template: sqlLogState, args: []any{l.number}, row: l.plainState}, l.logPage()}
		if l.order != outmill.OrderNone {
			steps = append([]step{others}, steps...)
		}
		return steps
	}
	state := step{template: sqlTopicState, args: l.ofTopic(owner, l.number, int(l.order)), row: l.state}
	if l.order == outmill.OrderNone {
		return []step{state, {template: sqlDueOf, args: l.ofTopic(l.rowsAtOnce()), row: l.item}, l.logPage()}
	}
	// Read the log's unfinished batches before the records. Then a record that moves from the
	// log to the records between the two reads is seen at least once.
	steps := []step{
		others,
		state,
		l.inLine(),
		{template: sqlUnseen, args: []any{l.number, l.c.req.Group, l.topic}, row: func(scan func(...any) error) error { return scan(&l.unseen) }},
		l.logPage(),
	}
	if l.order == outmill.OrderKey {
		steps = append(steps, l.lanesStep(&l.lanes))
	}
	return steps
}

func (l *logLine) state(scan func(...any) error) error {
	var here, rows bool
	var last, place int64
	err := scan(&l.pos, &here, &l.leftovers, &l.routed, &l.busy, &l.leasedElsewhere, &l.waiting, &last, &l.counter, &l.asideInOrder,
		&rows, &place)
	l.c.s.hasRows.Store(rows)
	if err != nil {
		return err
	}
	return l.checkState(here, last, place)
}

// plainState reads the state of a topic all of whose records are in the log, or finds that there are
// others.
func (l *logLine) plainState(scan func(...any) error) error {
	var here bool
	var last, place int64
	err := scan(&l.pos, &here, &l.leftovers, &l.plain, &last, &l.counter, &place)
	if err != nil {
		return err
	}
	l.routed, l.busy, l.leasedElsewhere, l.waiting, l.asideInOrder = true, false, false, nil, false
	return l.checkState(here, last, place)
}

func (l *logLine) checkState(here bool, last, place int64) error {
	switch {
	case l.pos > l.lastValue || last > place:
		return l.c.s.sequenceBehind(min(l.lastValue, place), max(l.pos, last))
	case !here:
		return &otherHistory{place: -1}
	}
	return nil
}

func (l *logLine) inLine() step {
	return step{template: sqlInLine, args: l.ofTopic(l.pageSize(), l.order != outmill.OrderKey), row: l.item}
}

func (l *logLine) item(scan func(...any) error) error {
	var c storekit.Candidate
	err := scanCandidate(&c, scan)
	l.items = append(l.items, c)
	return err
}

// rowsAtOnce is the number of rows of the log that are read at a time.
func (l *logLine) rowsAtOnce() int { return max(l.Want, l.ask) }

// roomInBytes is the byte budget, 0 if there is no limit.
func (l *logLine) roomInBytes() int64 {
	if l.MaxBytes <= 0 {
		return 0
	}
	return int64(max(1, l.MaxBytes-l.Bytes))
}

func (l *logLine) logPage() step {
	l.room, l.large, l.unread, l.unreadSize = l.roomInBytes(), false, 0, 0
	share := int64(math.MaxInt64)
	if l.room > 0 {
		share = l.room / int64(l.rowsAtOnce())
	}
	s := step{template: sqlLogPage, args: []any{l.number, l.rowsAtOnce(), l.c.req.Group, l.topic, share}}
	if l.within && l.room > 0 {
		s = step{template: sqlLogPageWithin, args: []any{l.number, l.rowsAtOnce(), l.c.req.Group, l.topic, int64(math.MaxInt64), l.room}}
	}
	reader := newLogReader(l.c.req.Group, l.topic, l.c.req.Owner)
	s.row = func(scan func(...any) error) error {
		if err := reader.read(scan); err != nil {
			return err
		}
		if !reader.seen.Valid {
			return &otherHistory{place: reader.place}
		}
		if !reader.seen.Bool {
			l.unread++
			l.unreadSize += reader.size
			if l.unseen == nil || reader.place < *l.unseen {
				l.unseen = &[]int64{reader.place}[0]
			}
			return nil
		}
		// The rest of the claim relies on this order.
		if n := len(l.log); n > 0 && l.log[n-1].Seq >= reader.place || reader.late && n > l.late {
			return fmt.Errorf("the log was not read in its order: %d after %d", reader.place, l.log[n-1].Seq)
		}
		if reader.late {
			l.late++
		}
		l.large = l.large || int64(reader.size) > share
		if len(l.log) == cap(l.log) {
			// Grow by a few rows at first, up to the wanted number.
			more := max(1, min(l.rowsAtOnce()-len(l.log), max(32, 31*len(l.log))))
			l.log, l.rows = slices.Grow(l.log, more), slices.Grow(l.rows, more)
		}
		l.log = append(l.log, storekit.Candidate{Seq: reader.place, Key: reader.row.record.Key, TenantID: reader.row.record.TenantID,
			Size: reader.size, Due: reader.row.record.CreatedAt})
		l.rows = append(l.rows, reader.row)
		return nil
	}
	return s
}

// other notes the keys of which another owner has records of the log in work.
func (l *logLine) other(scan func(...any) error) error {
	var owner, done string
	var until pgtype.Timestamptz
	var keys []int64
	if err := scan(&owner, &until, &done, &keys); err != nil {
		return err
	}
	l.otherBatches = true
	end := utc(until)
	for i, key := range keys {
		if key != 0 && i < len(done) && done[i] == '0' {
			if l.others == nil {
				l.others = map[int64]storekit.KeyState{}
			}
			l.others[key] = storekit.KeyState{Other: owner, OtherEnd: &end}
		}
	}
	return nil
}

// inTheWay adds to a key's state the records of the log that others have in work.
func (l *logLine) inTheWay(key string, state storekit.KeyState) storekit.KeyState {
	if other, found := l.others[keyHash(key)]; found && key != "" && state.Other == "" {
		state.Other, state.OtherEnd = other.Other, other.OtherEnd
	}
	return state
}

// lookAtLanes makes held records ready: see line.begin.
func (l *logLine) lookAtLanes(ctx context.Context) error {
	for l.order == outmill.OrderKey && len(l.lanes) > 0 {
		lanes, done := l.lanes, laneLook{}
		for i := range lanes {
			lanes[i].state = l.inTheWay(lanes[i].key, lanes[i].state)
		}
		steps, err := l.lookAt(lanes, &done)
		if err != nil {
			return err
		}
		if err := l.readAfter(ctx, steps...); err != nil {
			return err
		}
		if !l.lookFurther(len(lanes), done) {
			return nil
		}
	}
	return nil
}

// decide merges both lanes into one page, and decides about it.
func (l *logLine) decide(ctx context.Context) error {
	if !l.served || l.order != outmill.OrderNone && (!l.routed || l.order == outmill.OrderTopic && (l.leasedElsewhere || l.otherBatches)) {
		l.items, l.log = nil, nil
		l.leftovers, l.lastValue = false, -1
		return nil
	}
	page := l.merged()
	if l.order == outmill.OrderKey {
		var err error
		if page, err = l.readStates(ctx, page); err != nil {
			return err
		}
	}
	l.Page(page)
	// There may be more records behind those that have expired, or that were held or set aside.
	l.c.again = l.c.again || (len(l.Expired)+len(l.Holding)+len(l.Parked)+len(l.Aside) > 0 || l.hidden(len(page))) && !l.Full
	if len(page) > 0 {
		l.askMore(l.rowsAtOnce()) // this page keeps its size
	}
	return nil
}

// hidden reports whether rows that were not finished when the claim marked may have kept the
// claim from later rows. It returns true once at most, because such rows are never finished on
// a restored server that the log cannot distinguish from the original one.
func (l *logLine) hidden(page int) bool {
	if page > 0 || l.unread == 0 || l.c.lookedAgain {
		return false
	}
	l.c.lookedAgain = true
	return true
}

// merged merges both lanes: by place or, without an order, by due time.
func (l *logLine) merged() []storekit.Candidate {
	end := l.end()
	items := slices.DeleteFunc(slices.Clone(l.items), func(c storekit.Candidate) bool { return c.Seq > end })
	log := l.log
	if n := len(log); n > 0 && log[n-1].Seq > end {
		n, _ = l.find(end + 1)
		log = log[:n]
	}
	if len(items) == 0 {
		return log
	}
	page := make([]storekit.Candidate, 0, len(items)+len(log))
	nth := 0
	for len(items) > 0 && nth < len(log) {
		first := items[0].Seq < log[nth].Seq
		if l.order == outmill.OrderNone {
			first = !log[nth].Due.Before(items[0].Due)
		}
		if first {
			page, items = append(page, items[0]), items[1:]
		} else {
			page, nth = append(page, log[nth]), nth+1
		}
	}
	return append(append(page, items...), log[nth:]...)
}

// end is the last place that an ordered claim may use. If the page of a lane was full, later
// places may have earlier records in that lane.
func (l *logLine) end() int64 {
	end := int64(storekit.NoSeq - 1)
	if l.order == outmill.OrderNone {
		return end
	}
	if len(l.items) >= l.pageSize() {
		end = l.items[len(l.items)-1].Seq
	}
	if n := len(l.log); n > 0 && !l.exhausted() {
		end = min(end, l.log[n-1].Seq)
	}
	if l.order == outmill.OrderTopic && l.waiting != nil && l.c.req.KeyPolicy != outmill.KeySkip {
		end = min(end, *l.waiting-1)
	}
	if n := len(l.items); n > 0 && l.unseen != nil && l.items[n-1].Seq > *l.unseen {
		// The next claim sees the row.
		end, l.c.again = min(end, *l.unseen-1), true
	}
	return end
}

// find returns the index of the log's record at a place, or the index where it would be.
func (l *logLine) find(place int64) (int, bool) {
	return slices.BinarySearchFunc(l.log, place, func(r storekit.Candidate, place int64) int { return cmp.Compare(r.Seq, place) })
}

// exhausted reports whether the log had no more rows than were read.
func (l *logLine) exhausted() bool {
	if len(l.log)+l.unread >= l.rowsAtOnce() {
		return false
	}
	read := int64(l.unreadSize)
	for i := range l.log {
		read += int64(l.log[i].Size)
	}
	return l.room == 0 || read < l.room
}

// readStates finds the blockers of the page's keys, and returns the part of the page that may
// be used.
func (l *logLine) readStates(ctx context.Context, page []storekit.Candidate) ([]storekit.Candidate, error) {
	if !l.busy && len(l.others) == 0 {
		return page, nil
	}
	first := map[string]*storekit.Candidate{}
	for i := range page {
		c := &page[i]
		if _, known := first[c.Key]; known || c.Key == "" {
			continue
		}
		c.First = true
		c.State = l.inTheWay(c.Key, storekit.KeyState{Waiting: storekit.NoSeq, Held: storekit.NoSeq})
		first[c.Key] = c
	}
	if !l.busy || len(first) == 0 {
		return page, nil
	}
	read := l.items
	l.items = nil
	err := l.t.run(ctx, step{
		template: sqlStates, args: l.ofTopic(l.c.req.Owner.String(), slices.Collect(maps.Keys(first))),
		row: func(scan func(...any) error) error {
			var key string
			var s scanState
			var state storekit.KeyState
			err := scan(append([]any{&key}, s.columns(&state)...)...)
			s.into(&state)
			if c := first[key]; c != nil {
				c.State = l.inTheWay(key, state)
			}
			return err
		},
	}, l.inLine())
	if err != nil {
		return nil, err
	}
	l.cameBack(read, first)
	end, _ := slices.BinarySearchFunc(page, l.end(), func(c storekit.Candidate, end int64) int {
		if c.Seq <= end {
			return -1
		}
		return 1
	})
	return page[:end], nil
}

// cameBack blocks keys at records that became ready after the line was read. They were given
// back before the states were read, so the states do not have them.
func (l *logLine) cameBack(read []storekit.Candidate, first map[string]*storekit.Candidate) {
	known := make(map[int64]bool, len(read))
	for i := range read {
		known[read[i].Seq] = true
	}
	for i := range l.items {
		if c := first[l.items[i].Key]; c != nil && !known[l.items[i].Seq] {
			c.State.Held = min(c.State.Held, l.items[i].Seq)
		}
	}
}

// carryOut returns the steps that carry out the decisions.
func (l *logLine) carryOut() []step {
	// Records to hold or park move to the records first, and are then treated like the others.
	moving := append(l.moving(l.Holding), l.moving(l.Parked)...)
	asides, numbers := l.movingAside()
	positions, keys := l.lease()
	l.handled = len(moving) + len(asides) + len(positions)
	var steps []step
	if len(moving) > 0 {
		steps = append(steps, step{template: sqlMoveHeld, args: []any{l.number, moving}})
	}
	if len(asides) > 0 {
		steps = append(steps, step{template: sqlMoveAside, args: []any{l.number, asides, numbers}})
	}
	steps = append(steps, l.settle()...)
	return append(steps, l.goOn(positions, keys)...)
}

// moving returns the places of those of the records that are in the log, and sets the ids that
// they will have.
func (l *logLine) moving(records []storekit.Candidate) []int64 {
	var places []int64
	for i := range records {
		if at, is := l.find(records[i].Seq); is {
			records[i].ID = l.rows[at].record.ID.String()
			places = append(places, records[i].Seq)
		}
	}
	return places
}

// movingAside removes the log's records from Aside, and returns their places, and the numbers of
// their pauses.
func (l *logLine) movingAside() (places, pauses []int64) {
	l.Aside = slices.DeleteFunc(l.Aside, func(r storekit.Candidate) bool {
		_, is := l.find(r.Seq)
		if is {
			places, pauses = append(places, r.Seq), append(pauses, r.Pause)
		}
		return is
	})
	return places, pauses
}

// lease removes the log's records from Leasing. It returns their places, and their keys if any
// has one.
func (l *logLine) lease() (places, keys []int64) {
	places, keys = make([]int64, 0, len(l.Leasing)), make([]int64, 0, len(l.Leasing))
	l.logged = make([]int, 0, len(l.Leasing))
	records := l.Leasing[:0]
	next := 0
	for i := range l.Leasing {
		r := &l.Leasing[i]
		at, is := next, next < len(l.log) && l.log[next].Seq == r.Seq
		if !is {
			at, is = l.find(r.Seq)
		}
		if !is {
			records = append(records, *r)
			continue
		}
		next = at + 1
		places, keys = append(places, r.Seq), append(keys, keyHash(r.Key))
		l.keyed, l.steps = l.keyed || r.Key != "", l.steps || len(l.rows[at].record.Joins) > 0
		l.logged = append(l.logged, at)
	}
	l.Leasing = records
	if !l.keyed {
		keys = nil
	}
	return places, keys
}

// farJump is the least number of places by which a claim that finds nothing moves the line's
// position.
const farJump = 10_000

// goOn notes how far the line was read, and which records were handed out.
func (l *logLine) goOn(positions, keys []int64) []step {
	pos := l.pos
	all := l.handled == len(l.log) && l.exhausted()
	switch {
	case all && l.lastValue >= 0:
		pos = max(pos, l.lastValue)
	case l.handled > l.late:
		pos = max(pos, l.log[l.handled-1].Seq)
	}
	if far := l.leftovers || pos-l.pos > farJump; l.handled == 0 && (!all || !far) {
		return nil
	}
	late := step{template: sqlForgetLate, args: []any{l.number}}
	if !all && l.handled > 0 && l.handled <= l.late && (l.handled < l.late || l.late == len(l.log)) {
		late = step{template: sqlKeepLate, args: []any{l.number, l.log[l.handled-1].Seq}}
	}
	var hashes any // NULL if no record has a key
	if keys != nil {
		hashes = numbers(keys)
	}
	return []step{late, {
		template: sqlAddBatch,
		args: []any{l.number, pos, numbers(positions), sqlkit.CeilMicros(l.c.req.Lease), l.c.req.Owner.String(), l.steps, l.c.req.Group,
			l.topic, hashes, l.token},
		row: func(scan func(...any) error) error { return scan(&l.batch.n, &l.batch.until) },
	}}
}

// handOver adds the leased records to the claim.
func (l *logLine) handOver() {
	c := l.c
	c.over, c.bytes = c.over || l.Over, l.Bytes
	if l.Taken > 0 {
		c.ask = 0
	}
	leased := slices.DeleteFunc(l.leased, func(p placed) bool { return p.stage != storekit.StageLeased })
	if len(l.logged) > 0 {
		leased = l.withLogged(leased)
	}
	switch {
	case len(leased) == len(l.logged):
		// In the order of the log.
	case l.order == outmill.OrderNone:
		slices.SortStableFunc(leased, func(a, b placed) int { return a.due.Compare(b.due) })
	default:
		slices.SortFunc(leased, func(a, b placed) int { return cmp.Compare(a.seq, b.seq) })
	}
	c.records = slices.Grow(c.records, len(leased))
	for i := range leased {
		c.records = append(c.records, leased[i].record)
	}
}

// withLogged adds the leased records of the log, and remembers their batch.
func (l *logLine) withLogged(leased []placed) []placed {
	c := l.c
	c.s.logUsed.Store(true)
	until := utc(l.batch.until)
	leased = slices.Grow(leased, len(l.logged))
	ids := make([]outmill.WorkItemID, len(l.logged))
	for i, at := range l.logged {
		r := l.rows[at].record
		r.LeaseUntil, ids[i] = until, r.ID
		leased = append(leased, placed{seq: l.log[at].Seq, stage: storekit.StageLeased, due: r.CreatedAt, record: r})
	}
	c.s.refs.add(&batchRef{
		line: l.number, n: l.batch.n, owner: c.req.Owner, group: c.req.Group, topic: l.topic,
		token: l.token, size: len(ids), steps: l.steps, keyed: l.keyed, until: time.Now().Add(c.req.Lease),
	}, ids)
	return leased
}

// logReader reads the rows of the log into one buffer: see recordReader.
type logReader struct {
	group, topic                           string
	owner                                  outmill.OwnerToken
	late, same                             bool
	seen                                   pgtype.Bool
	place                                  int64
	size                                   int
	row                                    logItem
	id                                     pgtype.UUID
	created                                pgtype.Timestamptz
	key, messageID, correlation, causation sharedText
	tenant, traceParent, traceState, dedup sharedText
	joins                                  sharedText
	metadata                               pgtype.DriverBytes
	payload                                []byte
	columns                                []any
}

func newLogReader(group, topic string, owner outmill.OwnerToken) *logReader {
	r := &logReader{group: group, topic: topic, owner: owner}
	r.columns = []any{
		&r.late, &r.seen, &r.same, &r.place, &r.id, &r.key, &r.created, &r.size, &r.joins, &r.messageID, &r.correlation, &r.causation,
		&r.tenant, &r.traceParent, &r.traceState, &r.dedup, &r.metadata, &r.payload,
	}
	return r
}

func (r *logReader) read(scan func(...any) error) error {
	if err := scan(r.columns...); err != nil {
		return err
	}
	if !r.same {
		return fmt.Errorf("group %q and topic %q share the number of their line with another topic: rename one of them", r.group, r.topic)
	}
	created := utc(r.created)
	record := &outmill.Record{
		ID: r.id.Bytes, Group: r.group, Topic: r.topic, Key: r.key.text, Status: outmill.StatusLeased,
		Claims: 1, Owner: r.owner, CreatedAt: created, DueAt: created,
		MessageID: r.messageID.text, CorrelationID: r.correlation.text, CausationID: r.causation.text, TenantID: r.tenant.text,
		TraceParent: r.traceParent.text, TraceState: r.traceState.text, DedupKey: r.dedup.text, Payload: r.payload,
	}
	var err error
	if record.Joins, err = r.joins.joins(); err != nil {
		return fmt.Errorf("record %s: %w", record.ID, err)
	}
	if len(r.metadata) > 0 {
		if record.Metadata, err = storekit.ParseMetadata(r.metadata); err != nil {
			return fmt.Errorf("record %s: metadata: %w", record.ID, err)
		}
	}
	r.row.record = record
	return nil
}
