package postgres

import (
	"context"
	"time"
)

// TRUNCATE ignores snapshots. If a pg_dump takes its snapshot while a segment still has needed
// records, and locks the segment after it was truncated, the dump has lost those records. So a
// segment without needed records is retired first. It is truncated when no older snapshot can
// still read it:
//
//	needed ──all handed out and settled──► retired ──no older snapshot is heeded──► truncated
//	                                        │ ▲
//	                                        └─┘ a transaction has written to it since: it is retired again
//
// Each arrow is one transaction that keeps others from writing to the segment, so all its
// records are then of finished transactions. A crash between two of these transactions leaves a
// row in the table retired, with which the next round of any process continues. Records that
// are written later have a place behind the row's pos, so the row does not apply to them. A
// snapshot is older than the row if three conditions hold: it belongs to a session of this
// database, the session's xmin is not above the row's number, and its transaction did not begin
// after the row, as far as this role may see.
//
// Not every older snapshot is heeded, or the log would grow for an hour because of a report
// that takes an hour. A dump locks all tables at once after it took its snapshot, unless it has
// to wait for the lock of one of them. So a snapshot is heeded while it is younger than
// dumpWithin (if its age is not visible, the row's age counts), while its session waits for the
// lock of a table, and for dumpWithin after any such session was seen to wait.

// dumpWithin is the most time that a dump may take from its snapshot to its last lock, without
// the time that it waits for locks.
const dumpWithin = time.Minute

const (
	// sqlRetireAgain deletes the row of a segment that was written to since: the segment has a
	// row at $2.
	sqlRetireAgain = `DELETE FROM {p:retired} WHERE segment = $1::smallint AND pos < $2::bigint`

	sqlRetire = `INSERT INTO {p:retired} (segment, pos, xid, retired_at)
		SELECT $1::smallint, place, pg_current_xact_id(), clock_timestamp() FROM ` + sequenceNow + ` AS s
ON CONFLICT DO NOTHING`

	// sqlHeeded counts the heeded snapshots. A session that has waited for less than a second
	// may wait for a lock of the upkeep itself.
	sqlHeeded = `WITH s AS MATERIALIZED (SELECT xid, retired_at, heed_until FROM {p:retired} WHERE segment = $1::smallint),
old AS MATERIALIZED (SELECT coalesce(a.xact_start, s.retired_at) > clock_timestamp() - $2::bigint * interval '1 microsecond'
OR s.heed_until > clock_timestamp() AS young,
		(SELECT max(clock_timestamp() - l.waitstart) FROM pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted
		AND l.locktype = 'relation') AS waits
	FROM s CROSS JOIN pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
		AND age(a.backend_xmin) >= age(s.xid::xid) AND coalesce(a.xact_start <= s.retired_at, true)),
noted AS (UPDATE {p:retired} SET heed_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
	WHERE segment = $1::smallint AND EXISTS (SELECT 1 FROM old WHERE waits > interval '1 second'))
SELECT count(*) FROM old WHERE young OR waits IS NOT NULL`

	// sqlUnretire is for a segment that may have been truncated.
	sqlUnretire = `DELETE FROM {p:retired} WHERE segment = %[1]d AND (SELECT 1 FROM {p:log_%[1]d} LIMIT 1) IS NULL`
)

// retire retires a segment without needed records, to which nobody can write, unless it is
// retired already. It returns the number of snapshots that keep it from being truncated. latest
// is the last place of the segment.
func (t *txn) retire(ctx context.Context, segment int, latest int64) (heeded int, err error) {
	err = t.run(ctx,
		step{template: sqlRetireAgain, args: []any{segment, latest}},
		step{template: sqlRetire, args: []any{segment}},
		step{template: sqlHeeded, args: []any{segment, t.s.dumpWithin.Microseconds()}, row: func(scan func(...any) error) error {
			return scan(&heeded)
		}})
	return heeded, err
}
