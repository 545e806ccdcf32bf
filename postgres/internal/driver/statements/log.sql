-- The log. Whatever is done along a chain sends log_tables and lock first. A claim sends log_page and log_take then, in this order. What looks
-- at the registrations has their stamp as a parameter, and does nothing if they have changed since the process read them.

-- name: log_tables
-- What truncates one of these tables has it alone before, and TRUNCATE heeds no snapshot. Their functions would lock them only after their
-- statement has its snapshot.
LOCK TABLE {p:log}, {p:batches}, {p:ended}, {p:left_rows}, {p:skips}, {p:skip_ranges} IN ACCESS SHARE MODE

-- name: log_append
-- An append of rows that are due at once, in their order, to a segment.
INSERT INTO {p:log_{segment}} (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
SELECT u.created_at, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(u.metadata, ''), u.payload
FROM unnest($1::bigint[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
	$12::text[], $13::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate,
	dedup_key, metadata, payload, nth) ORDER BY u.nth

-- name: log_page
-- What a claim of a chain may take. $1 to $4 are the cursor, $5 the limit, $6 the stamp.
SELECT r.pos, r.flag, r.seen, r.fresh, r.id, r.created_at, r.key, r.tenant_id, r.size, r.event
FROM {p:log_page}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint) AS r
WHERE (SELECT stamp FROM {p:events}) = $6::bigint

-- name: log_take
-- Leases rows of a page, and moves the cursor.
SELECT {p:log_take}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::text::pg_snapshot,
	$6::bigint, $7::bigint, $8::bigint[], $9::boolean, $10::bigint[], $11::bigint, $12::bigint, $13::bigint, $14::text, $15::text)

-- name: log_claim
-- A claim of its own, in place of log_page and log_take: see log_next.
SELECT coalesce(c.number, 0), coalesce(c.given, -1), coalesce(c.until, 0) FROM {p:log_claim}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot,
	$5::integer, $6::bigint, $7::bigint, $8::text, $9::text, $10::text, $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::bigint, $16::boolean,
	$17::boolean, $18::boolean, $19::text[], $20::text[], $21::text[], $22::text[], $23::bigint) AS c

-- name: log_claimed
-- The rows of the newest batch of the chain $1 and $2, if its token is $3. They go to the client as they are read.
SELECT l.pos, l.event, l.created_at, l.id, l.key, l.message_id, l.tenant_id, l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key,
	l.metadata, l.payload
FROM (SELECT b.token, b.from_pos, b.pos, b.seen FROM {p:batches} AS b WHERE b.topic = $1::text AND b.chain = $2::bigint ORDER BY b.n DESC LIMIT 1) AS b
	CROSS JOIN LATERAL (SELECT g.* FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos > b.from_pos AND g.pos <= b.pos
		AND pg_visible_in_snapshot(g.xid, b.seen) ORDER BY g.pos OFFSET 0) AS l
WHERE b.token = $3::bigint

-- name: log_settle
-- Settles rows of a batch: an ack, or, with the write of a record, every other change.
SELECT {p:log_settle}($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying)

-- name: log_extend
-- Extends the lease of a batch, if it is in work.
SELECT {p:log_extend}($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint)

-- name: log_ended
-- The rows in work of the chain $1 and $2 whose leases have ended at the time $3, batch by batch: a claim moves them to the records before
-- it asks for a page.
SELECT w.n, w.token, w.size, w.ordinal, w.pos, l.id, l.event FROM {p:log_leased}($1::text, $2::bigint) AS w
	CROSS JOIN LATERAL (SELECT g.id, g.event FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos = w.pos OFFSET 0) AS l
WHERE w.lease_until <= $3::bigint ORDER BY w.n, w.pos

-- name: log_others
-- Which of the keys $4 other owners than $3 have in work of the chain $1 and $2.
SELECT k.key, min(b.owner) FROM {p:log_in_work}($1::text, $2::bigint) AS b CROSS JOIN LATERAL {p:log_keys_of}(b) AS k (key)
WHERE b.owner <> $3::text AND k.key = ANY ($4::text[]) GROUP BY k.key

-- name: log_unread
-- Which of the places $5 the chain has not read. $6 is the stamp.
SELECT r.pos FROM {p:log_unread}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint[]) AS r (pos)
WHERE (SELECT stamp FROM {p:events}) = $6::bigint

-- name: log_skip
-- Takes rows out of a chain. The same transaction moves or deletes them.
SELECT {p:log_skip}($1::text, $2::bigint, $3::bigint[])

-- name: log_rows
-- The rows of a batch.
SELECT r.ordinal, r.pos FROM {p:batches} AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r
WHERE b.topic = $1::text AND b.chain = $2::bigint AND b.n = $3::bigint ORDER BY r.ordinal

-- name: log_stamp
-- Whether the registrations are still those that the process knows.
SELECT stamp = $1::bigint FROM {p:events}

-- name: log_event
-- Begins $1 events: no other transaction has one until this one ends. It returns the number of the first one.
UPDATE {p:events} SET last = last + $1::bigint, stamp = $2::bigint RETURNING last - $1::bigint + 1

-- name: log_mark
-- The mark of an event, behind its lock. The sequence may show a place that it has not given yet; what comes up to there is not seen.
SELECT s.last_value, pg_current_snapshot()::text FROM {p:records_seq_seq} AS s

-- name: log_move_unread
-- Writes the rows at the places $2 of the line $1 to the records, due at once, with the ids $3 and the group $4. The same transaction has
-- skipped them, and may change the records.
INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, $4::text, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 0, 0, l.created_at,
	0, l.created_at, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key, l.metadata, l.payload
FROM unnest($2::bigint[], $3::text[]::uuid[]) AS u (pos, id)
	CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos = u.pos OFFSET 0) AS l

-- name: log_move_leased
-- Writes the rows at the places $5 of the batch $1 to $4 to the records, with their lease, the ids $6 and the group $7. The same transaction
-- has settled them there.
INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, owner, worker, claims,
	message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, $7::text, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 4, b.lease_until,
	l.created_at, 0, l.created_at, b.owner, b.worker, 1, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, l.metadata, l.payload
FROM {p:batches} AS b CROSS JOIN unnest($5::bigint[], $6::text[]::uuid[]) AS u (pos, id)
	CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = b.topic AND g.pos = u.pos OFFSET 0) AS l
WHERE b.topic = $1::text AND b.chain = $2::bigint AND b.n = $3::bigint AND b.token = $4::bigint
