-- The upkeep of the log. {segment} is the number of a segment.

-- name: upkeep_turn
-- Takes the turn $1 for $3 microseconds, if nobody has it and the last one ended $2 microseconds ago. A time that is far in the future is
-- from a clock that was set back.
UPDATE {p:upkeep} AS u SET turn = $1::bigint, until = t.now + $3::bigint FROM (SELECT {p:now}() AS now) AS t
WHERE (u.until <= t.now OR u.until > t.now + 600000000) AND (u.ended_at <= t.now - $2::bigint OR u.ended_at > t.now + 600000000)

-- name: upkeep_end
-- Ends the turn.
UPDATE {p:upkeep} SET until = {p:now}(), ended_at = {p:now}() WHERE turn = $1::bigint

-- name: segments_state
-- The segment to which appends write, for how long, and the sizes of all, with large payloads, which are in tables of their own.
SELECT m.segment, {p:now}() - m.rotated_at, ARRAY(SELECT (SELECT pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0)
	FROM pg_class AS c WHERE c.oid = s.oid) FROM (VALUES (0, {q:log_0}::regclass), (1, {q:log_1}::regclass), (2, {q:log_2}::regclass)) AS s (nth, oid) ORDER BY s.nth)
FROM {p:meta} AS m

-- name: segments_rotate
-- Has appends write to the segment $2 instead of $1.
UPDATE {p:meta} SET segment = $2::integer, rotated_at = {p:now}() WHERE segment = $1::integer

-- name: segment_lines
-- The next lines of the segment behind $1, at most $2, with the place of the last row of each.
WITH RECURSIVE leap AS (
	(SELECT s.topic FROM {p:log_{segment}} AS s WHERE s.topic > $1::text ORDER BY s.topic LIMIT 1)
	UNION ALL SELECT (SELECT s.topic FROM {p:log_{segment}} AS s WHERE s.topic > leap.topic ORDER BY s.topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL)
SELECT leap.topic, (SELECT s.pos FROM {p:log_{segment}} AS s WHERE s.topic = leap.topic ORDER BY s.pos DESC LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL
LIMIT $2::bigint

-- name: segment_needed
-- The first of the chains that needs the segment: a row of it is behind the cursor, late, left, or in a batch. $1 to $4 are the chains with
-- their begins. Of one that has ended, $5, only batches count.
SELECT c.nth - 1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) WITH ORDINALITY AS c (topic, chain, begin_pos, begin_seen, ended, nth)
CROSS JOIN LATERAL {p:log_cursor_of}(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot) AS cur
WHERE NOT c.ended AND ((SELECT 1 FROM {p:log_{segment}} AS l WHERE l.topic = c.topic AND l.pos > cur.pos LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:log_{segment}} AS l WHERE l.topic = c.topic AND l.pos <= cur.pos
		AND l.pos > least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
		AND l.xid >= pg_snapshot_xmin(cur.seen) AND NOT pg_visible_in_snapshot(l.xid, cur.seen)
		AND NOT {p:log_skipped}(c.topic, c.chain, l.pos, l.xid) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:left_rows} AS k JOIN {p:log_{segment}} AS l ON l.topic = k.topic AND l.pos > k.from_pos AND l.pos <= k.to_pos AND l.xid = k.xid
		WHERE k.topic = c.topic AND k.chain = c.chain LIMIT 1) IS NOT NULL)
	OR (SELECT 1 FROM {p:log_in_work}(c.topic, c.chain) AS b JOIN {p:log_{segment}} AS l ON l.topic = c.topic AND l.pos > b.from_pos AND l.pos <= b.pos
		AND b.positions IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:log_in_work}(c.topic, c.chain) AS b CROSS JOIN LATERAL unnest(b.positions) AS u (pos)
		JOIN {p:log_{segment}} AS l ON l.topic = c.topic AND l.pos = u.pos LIMIT 1) IS NOT NULL
ORDER BY c.nth LIMIT 1

-- name: segment_chains
-- The chains of the lines $1 that the tables know, with those that have ended.
WITH RECURSIVE leap AS (
	SELECT u.topic, (SELECT b.chain FROM {p:batches} AS b WHERE b.topic = u.topic ORDER BY b.chain LIMIT 1) AS chain FROM unnest($1::text[]) AS u (topic)
	UNION ALL SELECT leap.topic, (SELECT b.chain FROM {p:batches} AS b WHERE b.topic = leap.topic AND b.chain > leap.chain ORDER BY b.chain LIMIT 1)
	FROM leap WHERE leap.chain IS NOT NULL)
SELECT leap.topic, leap.chain FROM leap WHERE leap.chain IS NOT NULL

-- name: segment_stop
-- Keeps others from writing to the segment.
SELECT {p:segment_stop}({q:log_{segment}})

-- name: segment_wanted
-- Whether somebody waits for the segment.
SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = {q:log_{segment}}::regclass
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))

-- name: segment_written
-- Forgets that the segment was retired if there is a row up to $1 that came later.
DELETE FROM {p:retired} WHERE segment = {segment} AND pos < $1::bigint

-- name: segment_retire
-- Notes that nothing up to the last row is needed.
INSERT INTO {p:retired} (segment, pos, xid, retired_at) VALUES ({segment}, $1::bigint, pg_current_xact_id(), {p:now}()) ON CONFLICT DO NOTHING

-- name: segment_heeded
-- How many snapshots may still come to read the segment: those of sessions of this database that are not younger than the note. One is heeded
-- until it is $1 microseconds old, while its session waits for a table, and for $1 after a session was seen to wait. Who waits for less
-- than a second may wait for the upkeep itself.
WITH s AS MATERIALIZED (SELECT xid, to_timestamp(retired_at / 1000000.0) AS retired_at, heed_until > {p:now}() AS heeds FROM {p:retired} WHERE segment = {segment}),
old AS MATERIALIZED (SELECT coalesce(a.xact_start, s.retired_at) > clock_timestamp() - $1::bigint * interval '1 microsecond' OR s.heeds AS young,
		(SELECT max(clock_timestamp() - l.waitstart) FROM pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted AND l.locktype = 'relation') AS waits
	FROM s CROSS JOIN pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
		AND age(a.backend_xmin) >= age(s.xid::xid) AND coalesce(a.xact_start <= s.retired_at, true)),
noted AS (UPDATE {p:retired} SET heed_until = {p:now}() + $1::bigint
	WHERE segment = {segment} AND EXISTS (SELECT 1 FROM old WHERE waits > interval '1 second'))
SELECT count(*) FROM old WHERE young OR waits IS NOT NULL

-- name: segment_truncate
-- Empties the segment.
SELECT {p:segment_truncate}({q:log_{segment}})

-- name: segment_unretire
-- Forgets that the segment was retired.
DELETE FROM {p:retired} WHERE segment = {segment} AND (SELECT 1 FROM {p:log_{segment}} LIMIT 1) IS NULL

-- name: tidy_any
-- Whether the tables know a chain.
SELECT (SELECT 1 FROM {p:batches} LIMIT 1) IS NOT NULL OR (SELECT 1 FROM {p:skips} LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:skip_ranges} LIMIT 1) IS NOT NULL

-- name: tidy_chains
-- The next chains behind $1 and $2 that the tables know, at most $3.
WITH RECURSIVE leap AS (
	(SELECT k.topic, k.chain FROM ((SELECT b.topic, b.chain FROM {p:batches} AS b WHERE (b.topic, b.chain) > ($1::text, $2::bigint) ORDER BY b.topic, b.chain LIMIT 1)
		UNION ALL (SELECT s.topic, s.chain FROM {p:skips} AS s WHERE (s.topic, s.chain) > ($1::text, $2::bigint) ORDER BY s.topic, s.chain LIMIT 1)
		UNION ALL (SELECT r.topic, r.chain FROM {p:skip_ranges} AS r WHERE (r.topic, r.chain) > ($1::text, $2::bigint) ORDER BY r.topic, r.chain LIMIT 1)) AS k
		ORDER BY k.topic, k.chain LIMIT 1)
	UNION ALL SELECT n.topic, n.chain FROM leap CROSS JOIN LATERAL (SELECT k.topic, k.chain FROM (
		(SELECT b.topic, b.chain FROM {p:batches} AS b WHERE (b.topic, b.chain) > (leap.topic, leap.chain) ORDER BY b.topic, b.chain LIMIT 1)
		UNION ALL (SELECT s.topic, s.chain FROM {p:skips} AS s WHERE (s.topic, s.chain) > (leap.topic, leap.chain) ORDER BY s.topic, s.chain LIMIT 1)
		UNION ALL (SELECT r.topic, r.chain FROM {p:skip_ranges} AS r WHERE (r.topic, r.chain) > (leap.topic, leap.chain) ORDER BY r.topic, r.chain LIMIT 1)) AS k
		ORDER BY k.topic, k.chain LIMIT 1) AS n)
SELECT l.topic, l.chain, (SELECT 1 FROM {p:log} AS r WHERE r.topic = l.topic LIMIT 1) IS NULL FROM (SELECT * FROM leap LIMIT $3::bigint) AS l

-- name: tidy_batches
-- Deletes at most $3 batches of the chains $1 and $2 that are over, with their ends. The newest of a chain is its cursor.
WITH gone AS (DELETE FROM {p:batches} AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL (SELECT b.ctid FROM {p:batches} AS b WHERE b.topic = c.topic AND b.chain = c.chain
		AND b.n < (SELECT i.n FROM {p:batches} AS i WHERE i.topic = c.topic AND i.chain = c.chain ORDER BY i.n DESC LIMIT 1)
		AND (b.size = 0 OR (SELECT 1 FROM {p:ended} AS e WHERE e.topic = b.topic AND e.chain = b.chain AND e.n = b.n AND e.token = b.token) IS NOT NULL)
		ORDER BY b.n LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS o LIMIT $3::bigint)) RETURNING d.topic, d.chain, d.n, d.token),
notes AS (DELETE FROM {p:ended} AS e USING gone AS g WHERE e.topic = g.topic AND e.chain = g.chain AND e.n = g.n AND e.token = g.token)
SELECT count(*) FROM gone

-- name: tidy_skips
-- Deletes at most $3 single places of the chains behind their cursors: those before all rows that may still be late, and those whose rows
-- the cursor has as read or that are truncated.
WITH gone AS (DELETE FROM {p:skips} AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL {p:log_cursor_of}(c.topic, c.chain, -1, NULL) AS cur
	CROSS JOIN LATERAL (SELECT s.ctid FROM {p:skips} AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.pos <= cur.pos
		AND (s.pos <= least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
			OR coalesce((SELECT pg_visible_in_snapshot(l.xid, cur.seen) FROM {p:log} AS l WHERE l.topic = s.topic AND l.pos = s.pos), true))
		AND (SELECT 1 FROM {p:left_rows} AS k WHERE k.topic = s.topic AND k.chain = s.chain AND k.from_pos < s.pos AND k.to_pos >= s.pos LIMIT 1) IS NULL
		ORDER BY s.pos LIMIT $3::bigint) AS o WHERE cur.n IS NOT NULL LIMIT $3::bigint)) RETURNING 1)
SELECT count(*) FROM gone

-- name: tidy_ranges
-- The same for ranges.
WITH gone AS (DELETE FROM {p:skip_ranges} AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL {p:log_cursor_of}(c.topic, c.chain, -1, NULL) AS cur
	CROSS JOIN LATERAL (SELECT s.ctid FROM {p:skip_ranges} AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.to_pos <= cur.pos
		AND (s.to_pos <= least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
			OR (SELECT 1 FROM {p:log} AS l WHERE l.topic = s.topic AND l.pos > s.from_pos AND l.pos <= s.to_pos AND l.xid >= pg_snapshot_xmin(cur.seen)
				AND NOT pg_visible_in_snapshot(l.xid, cur.seen) LIMIT 1) IS NULL)
		AND (SELECT 1 FROM {p:left_rows} AS k WHERE k.topic = s.topic AND k.chain = s.chain AND k.from_pos < s.to_pos AND k.to_pos > s.from_pos LIMIT 1) IS NULL
		ORDER BY s.to_pos LIMIT $3::bigint) AS o WHERE cur.n IS NOT NULL LIMIT $3::bigint)) RETURNING 1)
SELECT count(*) FROM gone

-- name: tidy_covered
-- Notes of ranges in which each transaction has ended that they cover all of their rows. Who had a number when a range was made has one
-- before the horizon, which is taken behind that.
UPDATE {p:skip_ranges} AS d SET seen = NULL FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
WHERE d.topic = c.topic AND d.chain = c.chain AND d.seen IS NOT NULL AND d.horizon < pg_snapshot_xmin(pg_current_snapshot())
	AND (SELECT 1 FROM {p:log} AS l WHERE l.topic = d.topic AND l.pos > d.from_pos AND l.pos <= d.to_pos AND l.xid >= pg_snapshot_xmin(d.seen)
		AND NOT pg_visible_in_snapshot(l.xid, d.seen) LIMIT 1) IS NULL

-- name: tidy_joined
-- Joins ranges between which is no row. All rows up to the end of a range that covers all of its own are finished.
WITH pairs AS MATERIALIZED (SELECT r.topic, r.chain, r.from_pos, r.to_pos, r.seen IS NULL AND lag(r.seen) OVER w IS NULL AS covered, lag(r.to_pos) OVER w AS before
	FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain) JOIN {p:skip_ranges} AS r ON r.topic = c.topic AND r.chain = c.chain
	WINDOW w AS (PARTITION BY r.topic, r.chain ORDER BY r.to_pos)),
marked AS MATERIALIZED (SELECT p.*, p.before IS NULL OR NOT p.covered OR (SELECT 1 FROM {p:log} AS l
	WHERE l.topic = p.topic AND l.pos > p.before AND l.pos <= p.from_pos LIMIT 1) IS NOT NULL AS begins FROM pairs AS p),
numbered AS MATERIALIZED (SELECT m.*, count(*) FILTER (WHERE m.begins) OVER (PARTITION BY m.topic, m.chain ORDER BY m.to_pos) AS nth FROM marked AS m),
runs AS MATERIALIZED (SELECT n.topic, n.chain, min(n.from_pos) AS from_pos, max(n.to_pos) AS to_pos FROM numbered AS n
	GROUP BY n.topic, n.chain, n.nth HAVING count(*) > 1),
gone AS (DELETE FROM {p:skip_ranges} AS d USING runs AS r WHERE d.topic = r.topic AND d.chain = r.chain AND d.from_pos >= r.from_pos AND d.to_pos < r.to_pos)
UPDATE {p:skip_ranges} AS d SET from_pos = r.from_pos FROM runs AS r WHERE d.topic = r.topic AND d.chain = r.chain AND d.to_pos = r.to_pos

-- name: tidy_horizon
-- Notes a number behind all that may have rows in the ranges.
UPDATE {p:skip_ranges} AS d SET horizon = pg_current_xact_id() FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
WHERE d.topic = c.topic AND d.chain = c.chain AND d.seen IS NOT NULL AND d.horizon IS NULL

-- name: tidy_idle
-- Whether the line has no row, and the chain nothing in work.
SELECT (SELECT 1 FROM {p:log} AS l WHERE l.topic = $1::text LIMIT 1) IS NULL AND (SELECT 1 FROM {p:log_in_work}($1::text, $2::bigint) LIMIT 1) IS NULL

-- name: tidy_forget
-- Deletes at most $3 rows of each table that the chain $1 and $2 has left.
WITH s AS (DELETE FROM {p:skips} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:skips} WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
r AS (DELETE FROM {p:skip_ranges} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:skip_ranges} WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
k AS (DELETE FROM {p:left_rows} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:left_rows} WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
e AS (DELETE FROM {p:ended} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:ended} WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
b AS (DELETE FROM {p:batches} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:batches} WHERE topic = $1::text AND chain = $2::bigint ORDER BY n LIMIT $3::bigint)) RETURNING 1)
SELECT greatest((SELECT count(*) FROM s), (SELECT count(*) FROM r), (SELECT count(*) FROM k), (SELECT count(*) FROM e), (SELECT count(*) FROM b))

-- name: cluster_now
-- Whether this server has given the numbers of the log.
SELECT s.xmin = s.noted_by::xid AND ('' IN (s.identity, n.identity) OR s.identity = n.identity) FROM {p:server} AS s CROSS JOIN {p:server_now}() AS n (identity)

-- name: cluster_alone
-- Has the tables of the log alone: the parent of the segments is never used without them, and needs a right of its own.
LOCK TABLE {p:log_0}, {p:log_1}, {p:log_2}, {p:batches}, {p:ended}, {p:left_rows}, {p:skips}, {p:skip_ranges} IN ACCESS EXCLUSIVE MODE

-- name: cluster_lines
-- The lines of the log, with the last place of all, and that of the sequence.
SELECT l.topic, max(max(l.pos)) OVER (), (SELECT s.last_value FROM {p:records_seq_seq} AS s) FROM {p:log} AS l GROUP BY l.topic

-- name: cluster_adapt
-- Makes the log one of this server.
SELECT {p:segment_adapt}($1::text[], $2::bigint[], $3::bigint[], $4::text[])

-- name: cluster_set
-- Notes the server.
UPDATE {p:server} SET identity = {p:server_now}(), noted_by = pg_current_xact_id()
