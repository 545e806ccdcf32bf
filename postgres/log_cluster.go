package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// After a dump is restored into another cluster, the transaction numbers of the log's rows are
// those of the old cluster. All these transactions were committed, and all places that are
// given from then on are behind theirs.
//
// The cluster's identifier shows most such restores; it is checked once for each start of the
// server. A copy of the disk has the same identifier, though, and then writes its own numbers.
// So claims check the numbers too: on one server each claim's number is above that of the
// line's claim before, and no row has a number that is still to be given. If all numbers of the
// copy are above those of the dump, the dump's numbers mean finished transactions, as they do
// after a restore in the same cluster.

const (
	sqlClusterNow = `SELECT pg_postmaster_start_time(), system_identifier::text, (SELECT cluster FROM {p:meta} WHERE only_row)
		FROM pg_control_system()`

	sqlSince = `SELECT pg_postmaster_start_time()`

	sqlClusterThen = `SELECT cluster FROM {p:meta} WHERE only_row FOR UPDATE`

	// A transaction that has written to the log on this server, and is still open, also has a
	// place before past. So the call waits for it, but only shortly, because appends wait as
	// long.
	sqlWaitShortly = `SELECT set_config('lock_timeout', '50ms', true)`
	sqlStopAppends = `LOCK TABLE {p:log} IN SHARE MODE`
	sqlStopClaims  = `LOCK TABLE {p:batches} IN SHARE ROW EXCLUSIVE MODE`

	newestBatches = `SELECT DISTINCT ON (line) * FROM {p:batches} ORDER BY line, n DESC`

	// sqlListOld lists the transactions that were passed before they were finished, because the
	// server will give their numbers again.
	sqlListOld = `INSERT INTO {p:late} (line, xid, from_pos, to_pos)
SELECT b.line, u.xid, u.from_pos, u.to_pos FROM (` + newestBatches + `) AS b CROSS JOIN LATERAL {p:log_unfinished}(b.line, NULL) AS u
WHERE (SELECT 1 FROM {p:log} AS l WHERE l.line = b.line AND l.pos > u.from_pos AND l.pos <= u.to_pos AND l.xid = u.xid LIMIT 1) IS NOT NULL
ON CONFLICT DO NOTHING`

	// sqlReadAnew gives each line a batch with its position and a snapshot of no open transactions.
	sqlReadAnew = `INSERT INTO {p:batches} (line, n, pos, seen, horizon, since, low, lease_until, owner, open, steps, grp, topic, done,
		positions, keys, token)
SELECT b.line, b.n + 1, b.pos, (c.xid::text || ':' || c.xid::text || ':')::pg_snapshot, c.xid, ARRAY[b.pos], b.low, NULL, b.owner, 0,
false, b.grp, b.topic, '', '{}', NULL, 0
FROM (` + newestBatches + `) AS b CROSS JOIN (SELECT pg_current_xact_id() AS xid) AS c`

	sqlSetCluster = `UPDATE {p:meta} SET cluster = $1::text, past = CASE WHEN cluster = '' THEN past ELSE ` + sequenceNow +
		` END WHERE only_row`

	// sqlLastPlace returns the place of the sequence, and the last place of all records.
	// Records behind the sequence were not written on this server.
	sqlLastPlace = `WITH RECURSIVE t AS (
	(SELECT line, pos FROM {p:log} ORDER BY line DESC, pos DESC LIMIT 1)
	UNION ALL SELECT n.* FROM t CROSS JOIN LATERAL (SELECT line, pos FROM {p:log} WHERE line < t.line ORDER BY line DESC, pos DESC
	LIMIT 1) AS n)
SELECT coalesce(greatest((SELECT max(pos) FROM t), (SELECT max(pos) FROM {p:log_newest}())), -1), place FROM ` + sequenceNow + ` AS s`

	// sqlStillOther reports whether the log still has to be adapted to this server, after a
	// claim met a number of another server: that of a row at the place $1, or that of a batch.
	sqlStillOther = `SELECT past < $1::bigint OR EXISTS (SELECT 1 FROM {p:log_newest}() AS b
		WHERE b.horizon >= pg_snapshot_xmax(pg_current_snapshot())) FROM {p:meta} WHERE only_row FOR UPDATE`

	sqlSetPast = `UPDATE {p:meta} SET past = ` + sequenceNow + ` WHERE only_row`
)

// errServerChanged: the server was restarted since the check, or is another one.
var errServerChanged = errors.New("the server was restarted during the call")

// otherHistory is the error of a claim that met a number of another server: that of the row at
// place or, if place is -1, that of a batch.
type otherHistory struct{ place int64 }

func (*otherHistory) Error() string {
	return "the log has transaction numbers that this server has not given"
}

// onThisServer is write for transactions that read the log, which must know the server.
func (s *Store) onThisServer(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	for tries := 1; ; tries++ {
		if err := s.checkCluster(ctx); err != nil {
			return s.explain(ctx, operation, err)
		}
		err := s.write(ctx, operation, fn)
		var other *otherHistory
		switch {
		case tries == attempts:
			return err
		case errors.Is(err, errServerChanged):
			s.serverSince.Store(0)
		case errors.As(err, &other):
			if err := s.readOnHere(ctx, other.place); err != nil {
				return s.explain(ctx, operation, err)
			}
		default:
			return err
		}
	}
}

// readOnHere adapts the log to this server, unless another process has done so: see
// sqlStillOther.
func (s *Store) readOnHere(ctx context.Context, place int64) error {
	var still bool
	err := s.try(ctx, sqlSettings, func(ctx context.Context, t *txn) error {
		still = false
		err := t.run(ctx, step{template: sqlStillOther, args: []any{place}, row: func(scan func(...any) error) error { return scan(&still) }})
		if err != nil || !still {
			return err
		}
		return t.readAnew(ctx, step{template: sqlSetPast})
	})
	if err == nil && still {
		s.logger.Info("The database was restored on another server that has the same identifier: "+
			"readers continue at their positions in the log", nil)
	}
	return err
}

// readAnew adapts the log's numbers to this server, and commits. It requires that no record is
// behind the sequence.
func (t *txn) readAnew(ctx context.Context, last step) error {
	var most, place int64
	err := t.run(ctx, step{template: sqlWaitShortly}, step{template: sqlStopAppends}, step{template: sqlStopClaims},
		step{template: sqlLastPlace, row: func(scan func(...any) error) error { return scan(&most, &place) }})
	switch {
	case err != nil:
		return err
	case most > place:
		return t.s.sequenceBehind(place, most)
	}
	return t.finish(ctx, step{template: sqlListOld}, step{template: sqlReadAnew}, last)
}

// checkCluster adapts the log to the current server, once for each start of the server. It does
// nothing if the role may not read the server's identity.
func (s *Store) checkCluster(ctx context.Context) error {
	if s.serverSince.Load() != 0 {
		return nil
	}
	var since time.Time
	var now, then string
	switch err := s.safe().QueryRow(ctx, s.sql.text(sqlClusterNow)).Scan(&since, &now, &then); {
	case code(err) == codeNoRight:
		err := s.safe().QueryRow(ctx, sqlSince).Scan(&since)
		if err == nil {
			s.serverSince.Store(since.UnixMicro())
		}
		return err
	case err != nil:
		return err
	case then == now:
		s.serverSince.Store(since.UnixMicro())
		return nil
	}
	err := s.try(ctx, sqlSettings, func(ctx context.Context, t *txn) error {
		err := t.run(ctx, step{template: sqlClusterThen, row: func(scan func(...any) error) error { return scan(&then) }})
		switch {
		case err != nil || then == now:
			return err
		case then == "":
			return t.finish(ctx, step{template: sqlSetCluster, args: []any{now}})
		}
		return t.readAnew(ctx, step{template: sqlSetCluster, args: []any{now}})
	})
	if err != nil {
		return err
	}
	if then != "" && then != now {
		s.logger.Info("The database was restored on another server: readers continue at their positions in the log",
			watermill.LogFields{"cluster": now, "before": then})
	}
	s.serverSince.Store(since.UnixMicro())
	return nil
}
