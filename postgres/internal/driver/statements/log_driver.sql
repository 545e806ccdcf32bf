-- What the driver does with the log beyond log.sql.

-- name: log_history
-- The registrations with their history, and its stamp.
SELECT e.stamp, r.number, coalesce(r.grp, ''), coalesce(r.topics::text, ''), coalesce(r.takes, 0), coalesce(r.ended, 0), coalesce(r.swept, 0), coalesce(r.dropping, false),
	coalesce(r.begin_pos, 0), coalesce(r.begin_seen::text, ''), coalesce(r.end_pos, 0), coalesce(r.end_seen::text, '')
FROM {p:events} AS e LEFT JOIN {p:readings} AS r ON true ORDER BY r.number

-- name: log_registered
-- An event of a registration.
SELECT {p:log_registered}($1::text, $2::text, $3::text, $4::boolean, $5::bigint)

-- name: log_swept
-- What a group has left is gone.
SELECT {p:log_swept}($1::text, $2::bigint)

-- name: log_dropped
-- The drop of a group has ended.
SELECT {p:log_dropped}($1::text, $2::bigint)

-- name: log_topics
-- The topics of the lines of the log.
SELECT topic FROM {p:log_lines}() AS l (topic)

-- name: log_any
-- Which chains have something, by their places in the lists: the topics $1, the chains $2, their begins $3 and $4, and with $5, 1, those of
-- which also rows count that are not read. Most chains have ended, and only what is in work counts.
SELECT u.place FROM unnest($1::text[], $2::text::bigint[], $3::text::bigint[], $4::text[], $5::text::bigint[])
	WITH ORDINALITY AS u (topic, chain, pos, seen, unread, place)
WHERE (SELECT 1 FROM {p:log_in_work}(u.topic, u.chain) LIMIT 1) IS NOT NULL
	OR u.unread = 1 AND {p:log_any}(u.topic, u.chain, u.pos, nullif(u.seen, '')::pg_snapshot, true)

-- name: log_due
-- Since when something of each chain is due: the lines $1, the chains $2, their begins $3 and $4, and now. Most chains have passed all rows, or
-- go on with the next one. A chain that has more to look at is asked by itself: odd says so.
SELECT d.topic, d.first FROM (
	SELECT c.topic, CASE WHEN o.odd THEN {p:log_due}(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot, {now:5}) ELSE n.created_at END AS first
	FROM unnest($1::text[], $2::text::bigint[], $3::text::bigint[], $4::text[]) AS c (topic, chain, begin_pos, begin_seen)
	LEFT JOIN LATERAL (SELECT b.pos, cardinality(b.since) > 1 OR b.since[cardinality(b.since)] < b.pos
			AND (pg_snapshot_xmax(b.seen) < b.horizon OR b.bound < b.pos) AS late FROM {p:batches} AS b
		WHERE b.topic = c.topic AND b.chain = c.chain ORDER BY b.n DESC LIMIT 1) AS b ON true
	CROSS JOIN LATERAL (SELECT coalesce(b.pos, c.begin_pos) AS pos, coalesce(b.late, true) AS late OFFSET 0) AS k
	LEFT JOIN LATERAL (SELECT l.created_at FROM {p:log} AS l WHERE l.topic = c.topic AND l.pos > k.pos ORDER BY l.pos LIMIT 1) AS n ON true
	CROSS JOIN LATERAL (SELECT (SELECT 1 FROM {p:log_in_work}(c.topic, c.chain) LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM {p:left_rows} AS w WHERE w.topic = c.topic AND w.chain = c.chain LIMIT 1) IS NOT NULL
		OR k.late AND (SELECT 1 FROM {p:log} AS l WHERE l.topic = c.topic AND l.pos <= k.pos LIMIT 1) IS NOT NULL
		OR n.created_at IS NOT NULL AND ((SELECT 1 FROM {p:skips} AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.pos > k.pos LIMIT 1) IS NOT NULL
			OR (SELECT 1 FROM {p:skip_ranges} AS r WHERE r.topic = c.topic AND r.chain = c.chain AND r.to_pos > k.pos LIMIT 1) IS NOT NULL) AS odd OFFSET 0) AS o
) AS d WHERE d.first IS NOT NULL

-- name: log_check
-- What an append needs of the registrations of $2, at the time $1 of the process if that is not 0; see insert. $4 is the last event that they
-- know; where they are guessed it is read beside them. The append may have read later registrations than those: then there is no row. Nor is there
-- one if appends of today go to another segment than the guessed one, $5, which could not be truncated while a process goes on to append there.
-- It runs in callers' transactions with their settings, so it says where its operators are: see append_within.go.
SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN {p:now}() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM {p:events} WHERE only_row) ELSE $4::bigint END AS event FROM {p:meta}
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)

-- name: log_copying
-- The server would wait for the rows of a COPY without a limit.
SELECT set_config('statement_timeout', '10min', true) WHERE current_setting('statement_timeout') = '0'

-- name: log_insert
-- An append of rows that are due at once, behind log_check, and with the same care.
WITH m AS MATERIALIZED ({checked}),
inserted AS (INSERT INTO {p:log_{segment}} (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at OPERATOR(pg_catalog.+) m.later, u.id, u.topic,
	CASE WHEN u.key OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.key END,
	CASE WHEN u.message_id OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.message_id END,
	CASE WHEN u.tenant_id OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.tenant_id END,
	CASE WHEN u.correlation_id OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.correlation_id END,
	CASE WHEN u.causation_id OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.causation_id END,
	CASE WHEN u.traceparent OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.traceparent END,
	CASE WHEN u.tracestate OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.tracestate END,
	CASE WHEN u.dedup_key OPERATOR(pg_catalog.<>) ''::pg_catalog.text THEN u.dedup_key END,
	CASE WHEN pg_catalog.length(u.metadata) OPERATOR(pg_catalog.>) 1 THEN pg_catalog.substr(u.metadata, 2) END,
	CASE WHEN pg_catalog.substr(u.metadata, 1, 1) OPERATOR(pg_catalog.=) '+'::pg_catalog.text THEN u.payload END, m.event
FROM m CROSS JOIN ROWS FROM (pg_catalog.unnest($6::pg_catalog.text::bigint[]), pg_catalog.unnest($7::pg_catalog.text::pg_catalog.uuid[]),
	pg_catalog.unnest($8::pg_catalog.text[]), pg_catalog.unnest($9::pg_catalog.text[]), pg_catalog.unnest($10::pg_catalog.text[]),
	pg_catalog.unnest($11::pg_catalog.text[]), pg_catalog.unnest($12::pg_catalog.text[]), pg_catalog.unnest($13::pg_catalog.text[]),
	pg_catalog.unnest($14::pg_catalog.text[]), pg_catalog.unnest($15::pg_catalog.text[]), pg_catalog.unnest($16::pg_catalog.text[]),
	pg_catalog.unnest($17::pg_catalog.text[]), pg_catalog.unnest($18::pg_catalog.bytea[])) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m

-- name: log_move_ended
-- Moves what has a lease that has ended, before a page.
SELECT {p:log_move_ended}($1::text, $2::bigint, $3::bigint, $4::text, $5::text::bigint[], $6::text::bigint[], $7::bigint)

-- name: log_move_read
-- Writes rows of a page to the records: the cursor passes them.
SELECT {p:log_move_read}($1::text, $2::text::bigint[], $3::text, $4::text::bigint[], $5::text::bigint[])

-- name: log_change_unread
-- Takes rows that no page has shown out of a chain: $3 to $6 are their chain, $8 to $10 say which records they become, if $11.
SELECT r FROM {p:log_change_unread}($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, nullif($6::text, '')::pg_snapshot, $7::text::bigint[],
	$8::text, $9::text::bigint[], $10::text::bigint[], $11::boolean) AS r

-- name: log_change_leased
-- Moves rows of a batch.
SELECT {p:log_change_leased}($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text::bit varying, $8::bigint, $9::text, $10::text::bigint[], $11::text::bigint[])

-- name: log_extend_rows
-- Extends the lease of a batch, if all that is open of it is named.
SELECT {p:log_extend_rows}($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying, $6::bigint, $7::bigint)

-- name: log_find
-- The rows whose ids begin as those of $1 to $2.
SELECT l.topic, l.pos, l.id, l.event FROM unnest($1::text::uuid[], $2::text::uuid[]) AS u (low, high)
	CROSS JOIN LATERAL (SELECT g.topic, g.pos, g.id, g.event FROM {p:log} AS g WHERE g.id >= u.low AND g.id <= u.high OFFSET 0) AS l

-- name: log_after
-- Rows from an id on, and whether they have these texts; '' is any.
SELECT l.topic, l.pos, l.id, (($3::text = '' OR l.key = $3::text) AND ($4::text = '' OR l.tenant_id = $4::text)
	AND ($5::text = '' OR coalesce(l.message_id, l.id::text) = $5::text) AND ($6::text = '' OR l.correlation_id = $6::text)) IS TRUE
FROM {p:log} AS l WHERE l.id >= $1::text::uuid ORDER BY l.id LIMIT $2::bigint

-- name: log_places
-- Which of their places chains of the line $1 have in a batch or, if $5 is true of them, have not read: a chain that has ended has nothing to
-- read. $2 to $4 are the chains and their begins, and $6 has the places of each, or one list for all.
SELECT c.nth, r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, coalesce(r.n, -1), coalesce(r.token, 0), r.size,
	r.ordinal, r.lease_until, r.owner, r.worker
FROM (SELECT u.*, coalesce(($6::text[])[u.nth], ($6::text[])[1])::bigint[] AS places FROM unnest($2::text::bigint[], $3::text::bigint[], $4::text[],
		$5::text::boolean[]) WITH ORDINALITY AS u (chain, begin_pos, begin_seen, unread, nth)
		WHERE u.unread OR (SELECT 1 FROM {p:log_in_work}($1::text, u.chain) LIMIT 1) IS NOT NULL OFFSET 0) AS c
	CROSS JOIN LATERAL {p:log_places}($1::text, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot, c.places, c.unread) AS r
	CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos = r.pos OFFSET 0) AS l

-- name: log_leased
-- The rows in work of a chain. $3 is 0 for all, 1 for those whose leases have ended, and 2 for the others; $4 is now, $5 the limit.
SELECT r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, b.n, b.token, b.size, r.ordinal, b.lease_until, b.owner, b.worker
FROM {p:log_in_work}($1::text, $2::bigint) AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos = r.pos OFFSET 0) AS l
WHERE (b.done IS NULL OR get_bit(b.done, r.ordinal) = 0) AND ($3::integer = 0 OR ($3::integer = 1) = (b.lease_until <= {now:4}))
ORDER BY b.lease_until, r.pos LIMIT $5::bigint

-- name: log_content
-- The content of rows of a line: see load.
SELECT r.pos, {content:3} FROM (SELECT l.pos, l.id, l.created_at AS due_at, coalesce(l.message_id, l.id::text) AS message_id, l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, NULL::text AS joins, NULL::text AS last_error, l.metadata, l.payload, NULL::bytea AS history
	FROM unnest($2::text::bigint[]) AS u (pos) CROSS JOIN LATERAL (SELECT g.* FROM {p:log} AS g WHERE g.topic = $1::text AND g.pos = u.pos OFFSET 0) AS l) AS r

-- name: log_owner
-- Another owner than $3 that has something of the chain in work.
SELECT b.owner FROM {p:log_in_work}($1::text, $2::bigint) AS b WHERE b.owner <> $3::text LIMIT 1

-- name: log_ids
-- Whether the log has a row whose id begins as one of the ids.
SELECT 1 FROM unnest($1::text::uuid[], $2::text::uuid[]) AS u (low, high)
	CROSS JOIN LATERAL (SELECT g.id FROM {p:log} AS g WHERE g.id >= u.low AND g.id <= u.high ORDER BY g.id LIMIT 1) AS l LIMIT 1

-- name: log_ack
-- Settles rows of a batch, and opens the notes of their keys behind that.
SELECT {p:log_settle}($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying),
	{p:log_open_notes}($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying, $6::text)

-- name: log_all_ended
-- The rows in work of all chains whose leases have ended at the time $2: see log_leased.
WITH RECURSIVE c AS (
	(SELECT topic, chain FROM {p:batches} ORDER BY topic, chain LIMIT 1)
	UNION ALL SELECT n.* FROM c CROSS JOIN LATERAL (SELECT b.topic, b.chain FROM {p:batches} AS b WHERE (b.topic, b.chain) > (c.topic, c.chain)
		ORDER BY b.topic, b.chain LIMIT 1) AS n)
SELECT c.topic, c.chain, r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, b.n, b.token, b.size, r.ordinal, b.lease_until,
	b.owner, b.worker
FROM c CROSS JOIN LATERAL {p:log_in_work}(c.topic, c.chain) AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = c.topic AND g.pos = r.pos OFFSET 0) AS l
WHERE b.lease_until <= {now:2} AND (b.done IS NULL OR get_bit(b.done, r.ordinal) = 0) LIMIT $1::bigint

-- name: log_count
-- How many rows of a chain are not read, up to a limit.
SELECT count(*) FROM {p:log_page}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint) AS r WHERE r.seen IS NULL

-- name: log_content_between
-- The content of rows of a line from $2 to $4, where most of them are wanted.
SELECT r.pos, {content:3} FROM (SELECT l.pos, l.id, l.created_at AS due_at, coalesce(l.message_id, l.id::text) AS message_id, l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, NULL::text AS joins, NULL::text AS last_error, l.metadata, l.payload, NULL::bytea AS history
	FROM {p:log} AS l WHERE l.topic = $1::text AND l.pos >= $2::bigint AND l.pos <= $4::bigint) AS r

-- name: log_resting
-- Whether the stores of several schemas rest: see the function.
SELECT {p:resting_of}($1::pg_catalog.text[], $2::pg_catalog.text[])

-- name: log_quiet
-- Whether a look would find nothing: see the function.
SELECT coalesce({p:quiet}($1::pg_catalog.text, $2::pg_catalog.int4, $3::pg_catalog.int8, $4::pg_catalog.int8, $5::pg_catalog.text[], $6::pg_catalog.text[],
	$7::pg_catalog.text[], $8::pg_catalog.text::pg_catalog.int8[], $9::pg_catalog.text::pg_catalog.int8[], $10::pg_catalog.text[]), false)
