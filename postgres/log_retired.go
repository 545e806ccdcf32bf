package postgres

import (
	"context"
	"time"
)

// TRUNCATE heeds no snapshots: a pg_dump that took its snapshot while something of a
// segment was still needed, and locks the segment after it was truncated, has lost that.
// So a segment of which nothing is needed any more is retired first, and truncated when
// no snapshot from before that may still come to read it:
//
//	needed ──all handed out and settled──► retired ──no older snapshot is heeded──► truncated
//	                                        │ ▲
//	                                        └─┘ a transaction has written to it since: it is retired again
//
// Each arrow is one transaction that keeps others from writing to the segment, so what is in
// it then is of finished transactions. A crash between two of them leaves a row in the table retired, with
// which the next round of any process goes on. What is written later has a place behind the
// row's pos, so the row is not taken to speak of it. A snapshot is older than the row if it
// is of a session of this database whose xmin is not above the row's number, and whose
// transaction, as far as this role may see, did not begin after it.
//
// Not every older snapshot is heeded, or a report that takes an hour would have the log
// grow for an hour. A dump locks all tables at once after it took its snapshot, unless
// it has to wait for the lock of one of them. So a snapshot is heeded while it is younger
// than dumpWithin (where its age is not to be seen, the row's counts), while its session
// waits for the lock of a table, and for dumpWithin after any such session was seen to wait.

// dumpWithin is how long a dump may take from its snapshot to the last of its locks, apart
// from the time that it waits for one.
const dumpWithin = time.Minute

const (
	// sqlRetireAgain has a segment retired again that was written to since: it has a row at $2.
	sqlRetireAgain = `DELETE FROM {p:retired} WHERE segment = $1::smallint AND pos < $2::bigint`

	sqlRetire = `INSERT INTO {p:retired} (segment, pos, xid, retired_at)
		SELECT $1::smallint, place, pg_current_xact_id(), clock_timestamp() FROM ` + sequenceNow + ` AS s
ON CONFLICT DO NOTHING`

	// sqlHeeded counts the snapshots that are heeded. A session that has waited for less than a second
	// may wait for the lock of the upkeep itself.
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

// retire retires a segment that nobody can write to and of which nothing is needed, unless
// it is retired, and returns how many snapshots keep it from being truncated. latest is the
// last place of the segment.
func (t *txn) retire(ctx context.Context, segment int, latest int64) (heeded int, err error) {
	err = t.run(ctx,
		step{template: sqlRetireAgain, args: []any{segment, latest}},
		step{template: sqlRetire, args: []any{segment}},
		step{template: sqlHeeded, args: []any{segment, t.s.dumpWithin.Microseconds()}, row: func(scan func(...any) error) error {
			return scan(&heeded)
		}})
	return heeded, err
}
