package postgres

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Every change of a record of the log other than an ack is a change of a row of the records:
// the record moves there first, in the same transaction, and its batch marks it done.

const (
	movedColumns = `seq, id, grp, topic, key, stage, available_at, due_at, next_at, created_at, owner, size, claims,
	message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, metadata, payload`

	// movedID gives a row another id if a record, or a row that moves with it, has its id. Only
	// this separates two appends with one id in different segments.
	movedID = `CASE WHEN (SELECT 1 FROM {p:records} AS taken WHERE taken.id = l.id LIMIT 1) IS NULL
		AND row_number() OVER (PARTITION BY l.id ORDER BY l.pos) = 1
	THEN l.id ELSE gen_random_uuid() END`

	movedValues = `l.message_id, l.correlation_id, l.causation_id, l.tenant_id, l.traceparent, l.tracestate, l.dedup_key, l.step, l.joins,
		l.metadata::jsonb, l.payload`

	moveInLine = `INSERT INTO {p:records} (` + movedColumns + `) OVERRIDING SYSTEM VALUE
SELECT l.pos, ` + movedID + `, l.grp, l.topic, l.key, 0, NULL, l.created_at, l.created_at, l.created_at, NULL, l.size, 0, ` + movedValues

	moveLeased = `INSERT INTO {p:records} (` + movedColumns + `) OVERRIDING SYSTEM VALUE
SELECT l.pos, ` + movedID + `, l.grp, l.topic, l.key, 4, f.lease_until, l.created_at, l.created_at, l.created_at, f.owner, l.size, 1, ` +
		movedValues

	ofLog = `CROSS JOIN LATERAL (SELECT * FROM {p:log} WHERE line = f.line AND pos = f.pos OFFSET 0) AS l`

	// sqlMoveHeld moves rows at the places $2 that are not leased.
	sqlMoveHeld = moveInLine + ` FROM (SELECT $1::bigint AS line, p AS pos FROM unnest($2::bigint[]) AS p) AS f ` + ofLog

	// sqlMoveAside moves rows at the places $2 aside, for the pauses $3.
	sqlMoveAside = `INSERT INTO {p:records} (` + movedColumns + `, paused_by) OVERRIDING SYSTEM VALUE
SELECT l.pos, ` + movedID + `, l.grp, l.topic, l.key, -1, NULL, l.created_at, l.created_at, l.created_at, NULL, l.size, 0,
	` + movedValues + `, f.pause
FROM (SELECT $1::bigint AS line, p AS pos, pause FROM unnest($2::bigint[], $3::bigint[]) AS u (p, pause)) AS f ` + ofLog

	// sqlLockBatch locks the batch $1, $2 of the token $3 before a statement settles its
	// records. The end of a batch locks its row without changing it, so a statement that waited
	// for the lock keeps its old snapshot. Only a statement that begins afterwards sees the
	// end.
	sqlLockBatch = `SELECT 1 FROM {p:batches} WHERE line = $1::bigint AND n = $2::bigint AND token = $3::bigint FOR UPDATE`

	// thatBatch is the batch $1, $2 of the token $3, if it has not ended.
	thatBatch = `FROM {p:batches} AS b WHERE b.line = $1::bigint AND b.n = $2::bigint AND b.token = $3::bigint AND b.open > 0 AND NOT ` +
		hasEnded

	// sqlMoveLeased moves the records at the ordinals $4 of the batch $1, $2 of the token $3,
	// with their lease; $5 is a mask of these.
	sqlMoveLeased = `WITH old AS MATERIALIZED (SELECT b.line, b.n, b.owner, b.lease_until, b.done, b.positions ` + thatBatch + `),
f AS MATERIALIZED (SELECT o.line, o.owner, o.lease_until, o.positions[u.nth + 1] AS pos FROM old AS o
CROSS JOIN unnest($4::integer[]) AS u (nth)
	WHERE get_bit(o.done, u.nth) = 0),
moved AS (` + moveLeased + ` FROM f ` + ofLog + ` RETURNING 1)
` + settleMask + ` RETURNING 1`

	// settleMask sets the bits $5 of the batch $1, $2 that was read as old.
	settleMask = `UPDATE {p:batches} AS b SET done = o.done | $5::text::varbit, open = length(replace((~(o.done | $5::text::varbit))::text,
		'0', '')),
	lease_until = CASE WHEN strpos((o.done | $5::text::varbit)::text, '0') > 0 THEN b.lease_until END,
	positions = CASE WHEN strpos((o.done | $5::text::varbit)::text, '0') > 0 THEN b.positions ELSE '{}' END,
	keys = CASE WHEN strpos((o.done | $5::text::varbit)::text, '0') > 0 THEN b.keys END
FROM old AS o WHERE b.line = $1::bigint AND b.n = $2::bigint`

	// sqlLogAck acks the records at the ordinals $4 of a batch; $5 is a mask of these. If $6,
	// it fails if any of them was done before, or the batch is gone.
	sqlLogAck = `WITH old AS MATERIALIZED (SELECT b.line, b.n, b.token, b.done, ` + wholeAcked + ` ` + thatBatch +
		` AND cardinality($4::integer[]) > 0),
` + ackMask + `
` + allAcked

	// sqlLogAckSteps is sqlLogAck for records that are steps of joins.
	sqlLogAckSteps = `WITH old AS MATERIALIZED (SELECT b.line, b.n, b.token, b.done, b.positions, ` + wholeAcked + ` ` + thatBatch + `),
gone AS MATERIALIZED (SELECT l.step FROM (SELECT o.line, o.positions[u.nth + 1] AS pos FROM old AS o
CROSS JOIN unnest($4::integer[]) AS u (nth)
	WHERE get_bit(o.done, u.nth) = 0) AS f ` + ofLog + ` WHERE l.step IS NOT NULL),
noted AS MATERIALIZED (` + noteAcked + `),
` + ackMask + `
` + allAcked + ` FROM (SELECT count(*) FROM noted) AS n`

	// wholeAcked reports whether the bits $5 are the last ones of a batch.
	wholeAcked = `strpos((b.done | $5::text::varbit)::text, '0') = 0 AS whole`

	// ackMask sets the bits $5 of the batch that was read as old, or ends it.
	ackMask = `over AS (INSERT INTO {p:ended} (line, n, token) SELECT line, n, token FROM old WHERE whole),
set AS (` + settleMask + ` AND NOT o.whole)`

	allAcked = `SELECT CASE WHEN $6::boolean AND strpos(coalesce((SELECT (done & $5::text::varbit)::text FROM old), '1'), '1') > 0
		THEN {p:log_moved}() END`

	// sqlOpenLanesOf makes the next claim check the keys of the records at the ordinals $6 of
	// the batch $1, $2: see 0002_log.sql.
	sqlOpenLanesOf = `SELECT {p:log_open_lanes}($1::bigint, $2::bigint, $3::text, $4::text, $5::text, $6::integer[])`

	// sqlFindBatches finds the batches that have the records $1: those of the owner $2 or, if
	// it is empty, of all owners.
	sqlFindBatches = `SELECT r.id, b.owner::text, b.line, b.n, b.token, b.grp, b.topic, b.steps, b.keys IS NOT NULL, length(b.done),
		array_position(b.positions, r.pos) - 1
FROM (SELECT DISTINCT u AS id FROM unnest($1::text[]::uuid[]) AS u) AS i
CROSS JOIN LATERAL (SELECT id, line, pos FROM {p:log} WHERE id = i.id OFFSET 0) AS r
CROSS JOIN LATERAL (SELECT * FROM {p:batches} AS b WHERE line = r.line AND n >= (SELECT low FROM {p:batches} WHERE line = r.line
ORDER BY n DESC LIMIT 1)
	AND ($2::text = '' OR owner = nullif($2::text, '')::uuid) AND open > 0 AND positions @> ARRAY[r.pos] AND NOT ` + hasEnded +
		` OFFSET 0) AS b`
)

// sqlLogBack moves the unsettled records of the line's ($1) batches whose lease has ended, with
// that lease. It does the same for batches that are still open after 256 others, so that a
// claim never reads more than these. It takes the $2 oldest: a fleet that dies may leave 256
// batches of 5,000 records. The records of the others stay leased until the next claim takes
// them, and block their keys for other owners.
var sqlLogBack = moveOpenOf(toTakeBack, `ORDER BY b.n LIMIT $2::bigint FOR UPDATE`)

const toTakeBack = inWorkOfLine + ` AND (b.lease_until <= statement_timestamp() OR b.n < (SELECT n ` + newestBatch + `) - 256)`

// moveOpenOf moves the unsettled records of the batches b that satisfy the condition, with
// their leases, and ends the batches. If a session waited for a batch that an ack has ended,
// its snapshot does not show the end, but its insert into ended finds it.
func moveOpenOf(condition, lock string) string {
	return `WITH old AS MATERIALIZED (SELECT b.line, b.n, b.token, b.owner, b.lease_until, b.done, b.positions FROM {p:batches} AS b WHERE ` +
		condition + ` ` + lock + `),
over AS (INSERT INTO {p:ended} (line, n, token) SELECT line, n, token FROM old ON CONFLICT DO NOTHING RETURNING line, n),
f AS MATERIALIZED (SELECT o.line, o.owner, o.lease_until, u.pos FROM old AS o JOIN over USING (line, n)
CROSS JOIN LATERAL unnest(o.positions) WITH ORDINALITY AS u (pos, nth)
	WHERE get_bit(o.done, u.nth::integer - 1) = 0)
` + moveLeased + ` FROM f ` + ofLog
}

// sqlLogExtend extends the lease of a batch if the mask $4 has all its unsettled records, and
// returns these.
const sqlLogExtend = `UPDATE {p:batches} AS b SET lease_until = statement_timestamp() + $5::bigint * interval '1 microsecond'
WHERE b.line = $1::bigint AND b.n = $2::bigint AND b.token = $3::bigint AND b.open > 0 AND NOT ` + hasEnded +
	` AND strpos((b.done | $4::text::varbit)::text, '0') = 0
RETURNING (~b.done)::text`

// codeMoved is the code of the error that log_moved raises.
const codeMoved = "OM001"

// mask has a 1 for each of the ordinals.
func (b *batchRef) mask(ordinals []int) string {
	bits := []byte(strings.Repeat("0", b.size))
	for _, i := range ordinals {
		bits[i] = '1'
	}
	return string(bits)
}

func (b *batchRef) args(ordinals []int) []any {
	return []any{b.line, b.n, b.token, numbers(ordinals), b.mask(ordinals)}
}

func (b *batchRef) lock() step {
	return step{template: sqlLockBatch, args: []any{b.line, b.n, b.token}}
}

// move moves leased records to the records.
func (b *batchRef) move(ordinals []int) []step {
	return []step{b.lock(), {template: sqlMoveLeased, args: b.args(ordinals)}}
}

// openLanes returns no step if no record has a key.
func (b *batchRef) openLanes(ordinals []int) []step {
	if !b.keyed {
		return nil
	}
	return []step{{template: sqlOpenLanesOf, args: []any{b.line, b.n, b.group, b.topic, b.owner.String(), numbers(ordinals)}}}
}

// inOneOrder returns the batches in the order in which all transactions lock them.
func inOneOrder(batches map[*batchRef][]int) []*batchRef {
	list := make([]*batchRef, 0, len(batches))
	for b := range batches {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *batchRef) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.n, b.n)) })
	return list
}

// ackSteps acks records in batches. strictly: see sqlLogAck.
func ackSteps(batches map[*batchRef][]int, strictly bool) []step {
	var steps []step
	for _, b := range inOneOrder(batches) {
		template := sqlLogAck
		if b.steps {
			template = sqlLogAckSteps
		}
		steps = append(steps, b.openLanes(batches[b])...)
		steps = append(steps, b.lock(), step{template: template, args: append(b.args(batches[b]), strictly)})
	}
	return steps
}

// ackLog acks leases that may belong to the log. Usually all belong to batches that this store
// has claimed, and no record has moved.
func (s *Store) ackLog(ctx context.Context, leases []outmill.Lease) error {
	const operation = "ack"
	batches, others := s.refs.take(leases)
	if len(others) == 0 {
		write := s.writeAll
		for b := range batches {
			if b.steps {
				write = s.writeSteps
			}
		}
		err := write(ctx, operation, ackSteps(batches, true)...)
		var moved *pgconn.PgError
		if err == nil || !errors.As(err, &moved) || moved.Code != codeMoved {
			return err
		}
	}
	found, err := s.findBatches(ctx, others)
	if err != nil {
		return err
	}
	more, _ := grouped(others, found)
	maps.Copy(batches, more)
	// Records that have moved are found in the table of records, so it is searched after the
	// log.
	steps := ackSteps(batches, false)
	for _, same := range sorted(storekit.Bare(leases)) {
		steps = append(steps, step{template: sqlDeleteAcked, args: same.args()})
	}
	return s.writeSteps(ctx, operation, steps...)
}

// extendLog extends leases that may belong to the log.
func (s *Store) extendLog(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	places, err := s.findAll(ctx, leases, false)
	if err != nil {
		return nil, err
	}
	batches, _ := grouped(leases, places)
	var extended []outmill.Lease
	pauses := s.lookAtPauses()
	standing := map[*batchRef]string{}
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		extended = nil
		clear(standing)
		var whole []step
		for _, b := range inOneOrder(batches) {
			whole = append(whole, b.lock(), step{
				template: sqlLogExtend, args: []any{b.line, b.n, b.token, b.mask(batches[b]), sqlkit.CeilMicros(lease)},
				row: func(scan func(...any) error) error {
					var open string
					err := scan(&open)
					standing[b] = open
					return err
				},
			})
		}
		if err := t.run(ctx, whole...); err != nil {
			return err
		}
		// If only a part of a batch is extended, that part moves to the records and is extended
		// there.
		rest := leases[:0:0]
		seen := map[outmill.Lease]bool{}
		for _, l := range leases {
			place, known := places[l.ID]
			open, all := standing[place.batchRef]
			switch {
			case !known || !place.of(l) || !all || open[place.ordinal] != '1':
				// The record may have moved before.
				rest = append(rest, l)
			case !seen[l]:
				extended = append(extended, l)
				seen[l] = true
			}
		}
		parts, _ := grouped(rest, places)
		return t.finish(ctx, append(append(moveSteps(parts), extendSteps(lease, rest, &extended)...), pauses.step())...)
	})
	if err != nil {
		return nil, err
	}
	pauses.list()
	for b := range standing {
		s.refs.keep(b, lease)
	}
	return extended, nil
}

// moveSteps move leased records of the log to the records, with their leases, so that the same
// transaction can change them there.
func moveSteps(batches map[*batchRef][]int) []step {
	var steps []step
	for _, b := range inOneOrder(batches) {
		steps = append(steps, b.openLanes(batches[b])...)
		steps = append(steps, b.move(batches[b])...)
	}
	return steps
}

// toRecords returns the steps that move those of the leased records that are in the log.
func (s *Store) toRecords(ctx context.Context, leases []outmill.Lease) ([]step, error) {
	if logged, err := s.hasLog(ctx, "settle"); err != nil || !logged {
		return nil, err
	}
	places, err := s.findAll(ctx, leases, true)
	if err != nil {
		return nil, err
	}
	batches, _ := grouped(leases, places)
	return moveSteps(batches), nil
}

// grouped sorts leases by their batches, each once; others are the leases without a known
// batch.
func grouped(leases []outmill.Lease, places map[outmill.WorkItemID]inBatch) (batches map[*batchRef][]int, others []outmill.Lease) {
	batches = map[*batchRef][]int{}
	seen := make(map[inBatch]bool, len(leases))
	for _, l := range leases {
		place, known := places[l.ID]
		switch {
		case !known || !place.of(l):
			others = append(others, l)
		case !seen[place]:
			seen[place] = true
			batches[place.batchRef] = append(batches[place.batchRef], place.ordinal)
		}
	}
	return batches, others
}

// findAll finds the positions of leases, also of those that other stores have claimed. If
// forget is true, it drops them from refs, because they are about to be settled.
func (s *Store) findAll(ctx context.Context, leases []outmill.Lease, forget bool) (map[outmill.WorkItemID]inBatch, error) {
	places := s.refs.places(leases, forget)
	_, others := grouped(leases, places)
	found, err := s.findBatches(ctx, others)
	maps.Copy(places, found)
	return places, err
}

// foundBatches are records of the log that are in work, with their batches.
type foundBatches struct {
	known   map[[2]int64]*batchRef
	records []foundRecord
}

type foundRecord struct {
	id outmill.WorkItemID
	inBatch
}

// step searches for records of one owner or, if that is empty, of all owners.
func (f *foundBatches) step(ids []string, owner string) step {
	return step{template: sqlFindBatches, args: []any{ids, owner}, row: func(scan func(...any) error) error {
		var id [16]byte
		var b batchRef
		var owner string
		var ordinal int
		if err := scan(&id, &owner, &b.line, &b.n, &b.token, &b.group, &b.topic, &b.steps, &b.keyed, &b.size, &ordinal); err != nil {
			return err
		}
		if err := b.owner.Scan(owner); err != nil {
			return err
		}
		if f.known == nil {
			f.known = map[[2]int64]*batchRef{}
		}
		at := [2]int64{b.line, b.n}
		if f.known[at] == nil {
			f.known[at] = &b
		}
		f.records = append(f.records, foundRecord{id, inBatch{f.known[at], ordinal}})
		return nil
	}}
}

// findBatches finds the positions of leases that another process, or a store that is now
// closed, has claimed.
func (s *Store) findBatches(ctx context.Context, leases []outmill.Lease) (map[outmill.WorkItemID]inBatch, error) {
	places := map[outmill.WorkItemID]inBatch{}
	for _, same := range sorted(storekit.Bare(leases)) {
		if same.claim != 1 {
			continue
		}
		var found foundBatches
		if err := s.writeAll(ctx, "settle", found.step(same.ids, same.owner.String())); err != nil {
			return nil, err
		}
		for _, r := range found.records {
			places[r.id] = r.inBatch
		}
	}
	return places, nil
}
