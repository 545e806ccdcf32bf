-- The log. A claim sends lock, log_cap, log_page and log_take, in this order.

-- name: log_append
-- An append of rows that are due at once, in their order.
INSERT INTO {p:log} (line, created_at, id, topic, key, message_id, extra, metadata, payload)
SELECT u.line, u.created_at, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.extra, '')::json, nullif(u.metadata, ''), u.payload
FROM unnest($1::bigint[], $2::bigint[], $3::text[]::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[])
	WITH ORDINALITY AS u (line, created_at, id, topic, key, message_id, extra, metadata, payload, nth) ORDER BY u.nth

-- name: log_cap
-- The cap of a claim, or the place of a mark. $1 is what was read before in a transaction that has a number.
SELECT {p:log_cap}($1::bigint)

-- name: log_page
-- What a claim of a chain may take, and the snapshot that it reads with. $1 to $5 are the cursor, $6 the cap, $7 the limit. It returns nothing if
-- none of the readings $8 lives and takes.
SELECT pg_current_snapshot()::text, r.pos, r.late, r.odd, r.id::text, r.created_at, r.topic, r.key, r.tenant_id, r.size
FROM {p:log_page}($1::bigint, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, nullif($5::text, '')::xid8, $6::bigint, $7::bigint) AS r
WHERE EXISTS (SELECT 1 FROM {p:readings} AS l WHERE l.number = ANY ($8::bigint[]) AND l.ended = 0 AND l.takes <> 0) ORDER BY r.pos

-- name: log_take
-- Leases rows of a page, and moves the cursor.
SELECT {p:log_take}($1::bigint, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, nullif($5::text, '')::xid8, $6::text::pg_snapshot,
	$7::bigint, $8::bigint, $9::bigint[], $10::boolean, $11::bigint[], $12::bigint, $13::bigint, $14::bigint, $15::text, $16::text, $17::text)

-- name: log_settle
-- Settles rows of a batch: an ack, or, with the write of a record, every other change.
SELECT {p:log_settle}($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::integer[])

-- name: log_unread
-- Which of the places $6 the chain has not read.
SELECT {p:log_unread}($1::bigint, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, nullif($5::text, '')::xid8, $6::bigint[])

-- name: log_skip
-- Takes rows out of a chain. The same transaction moves or deletes them.
INSERT INTO {p:skips} (line, chain, pos) SELECT $1::bigint, $2::bigint, u.pos FROM unnest($3::bigint[]) AS u (pos)

-- name: log_rows
-- The rows of a batch.
SELECT r.ordinal, r.pos FROM {p:batches} AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r
WHERE b.line = $1::bigint AND b.chain = $2::bigint AND b.n = $3::bigint ORDER BY r.ordinal

-- name: log_move_unread
-- Writes the rows at the places $2 of the line $1 to the records, due at once, with the ids $3 and the group $4. The same transaction has
-- skipped them, and may change the records.
INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, $4::text, l.topic, coalesce(l.key, ''), coalesce(l.extra ->> 'tenant_id', ''), l.created_at, {p:log_size}(l), 0, 0, l.created_at,
	0, l.created_at, coalesce(l.message_id, l.id::text), l.extra ->> 'correlation_id', l.extra ->> 'causation_id', l.extra ->> 'traceparent',
	l.extra ->> 'tracestate', l.extra ->> 'dedup_key', l.metadata, l.payload
FROM unnest($2::bigint[], $3::text[]::uuid[]) AS u (pos, id) JOIN {p:log} AS l ON l.line = $1::bigint AND l.pos = u.pos

-- name: log_move_leased
-- Writes the rows at the places $5 of the batch $1 to $4 to the records, with their lease. The same transaction has settled them there.
INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, owner, worker, claims,
	message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, b.grp, l.topic, coalesce(l.key, ''), coalesce(l.extra ->> 'tenant_id', ''), l.created_at, {p:log_size}(l), 4, b.lease_until,
	l.created_at, 0, l.created_at, b.owner, b.worker, 1, coalesce(l.message_id, l.id::text), l.extra ->> 'correlation_id', l.extra ->> 'causation_id',
	l.extra ->> 'traceparent', l.extra ->> 'tracestate', l.extra ->> 'dedup_key', l.metadata, l.payload
FROM {p:batches} AS b CROSS JOIN unnest($5::bigint[], $6::text[]::uuid[]) AS u (pos, id) JOIN {p:log} AS l ON l.line = b.line AND l.pos = u.pos
WHERE b.line = $1::bigint AND b.chain = $2::bigint AND b.n = $3::bigint AND b.token = $4::bigint
