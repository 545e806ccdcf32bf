-- Searches of rows. {row} stands for the columns of a row, and {free} for nothing, or for a lock that leaves out what others have
-- locked. Each search reads one index in its order: see the schema for conditions such as stage - 4 = 0.

-- name: by_line
-- Ready rows. $1 and $2 are the line, $3 the limit.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0 ORDER BY seq LIMIT $3::bigint {free}

-- name: by_held
-- Held rows.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $3::bigint {free}

-- name: by_keyed
-- Rows that are held under the notes of keys.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l'
ORDER BY seq LIMIT $3::bigint {free}

-- name: by_paused
-- Rows that are held under the notes of pauses.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'l'
ORDER BY seq LIMIT $3::bigint {free}

-- name: by_place
-- Ready and held rows in the order of their places: what a claim by topic takes.
SELECT * FROM (SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint {free}) AS ready
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1
	ORDER BY seq LIMIT $3::bigint {free}) AS held) AS both_of_them ORDER BY seq LIMIT $3::bigint

-- name: by_later
-- Rows of the stage $5 that end at a time after $4, which is now.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = $5::smallint AND wake_at <> 0 AND wake_at > {now:4}
ORDER BY wake_at, seq LIMIT $3::bigint {free}

-- name: coming
-- Rows whose time has come, in one statement: what a claim in an order makes ready first. $4 is now.
SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS waiting
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS delayed
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS leased

-- name: any_order
-- by_line and coming in one statement: what a claim without an order takes.
SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint {free}) AS ready
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS waiting
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS delayed
UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= {now:4}
	ORDER BY wake_at, seq LIMIT $3::bigint {free}) AS leased

-- name: by_ended
-- $1 is the limit, $2 now.
SELECT {row} FROM {p:records} AS r WHERE stage - 4 = 0 AND wake_at <= {now:2} ORDER BY wake_at LIMIT $1::bigint {free}

-- name: by_expiry
-- $1 is the limit, $2 now.
SELECT {row} FROM {p:records} AS r WHERE expires_at <> 0 AND expires_at <= {now:2} AND stage < 5 AND (stage <> 4 OR wake_at <= {now:2})
ORDER BY expires_at, seq LIMIT $1::bigint {free}

-- name: by_key
-- $4 is a Seq, $5 the key.
SELECT {row} FROM {p:records} AS r WHERE lane = {lane:5} AND stage < 4 AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint {free}

-- name: by_parked
-- $4 is a Seq, $5 the key.
SELECT {row} FROM {p:records} AS r WHERE lane = {lane:5} AND parked AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint {free}

-- name: by_done
-- $1 is the limit, $2 a time.
SELECT {row} FROM {p:records} AS r WHERE stage - 5 = 0 AND processed_at <= $2::bigint ORDER BY processed_at, seq LIMIT $1::bigint {free}

-- name: by_stage_later
-- A whole stage of those that end at a time. $4 is the stage.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND wake_at <> 0
ORDER BY wake_at, seq LIMIT $3::bigint {free}

-- name: by_stage_settled
-- A whole stage of the processed and the dead. $4 is the stage.
SELECT {row} FROM {p:records} AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND stage > 4
ORDER BY seq LIMIT $3::bigint {free}

-- name: by_unrouted
-- $1 is the name of the line, $2 the limit.
SELECT {row} FROM {p:records} AS r WHERE grp = '' AND stage IN (0, 3) AND topic = $1::text ORDER BY seq LIMIT $2::bigint {free}

-- name: by_step
-- $1 is the limit, $2 the step.
SELECT {row} FROM {p:records} AS r WHERE step = $2::text::uuid ORDER BY seq LIMIT $1::bigint {free}

-- name: by_waiter
-- $1 is the limit, $2 the join, $3 now.
SELECT {row} FROM {p:records} AS r WHERE waits_for = $2::text::uuid AND stage IN (2, 3) AND wake_at > {now:3} ORDER BY seq LIMIT $1::bigint {free}

-- name: by_open
-- The first rows of each index that has rows in work. $1 is the limit.
SELECT * FROM (SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE stage = 0 LIMIT $1::bigint) AS ready
	UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE stage = 1 LIMIT $1::bigint) AS held
	UNION ALL SELECT * FROM (SELECT {row} FROM {p:records} AS r WHERE wake_at <> 0 LIMIT $1::bigint) AS later) AS all_of_them LIMIT $1::bigint

-- name: find
-- Rows by their ids, and whether the note of their key holds them.
SELECT {row}, {blocked} FROM {p:records} AS r WHERE r.id = ANY ($1::text::uuid[])

-- name: find_locked
-- One row, which stays as it is until the transaction ends.
SELECT {row}, {blocked} FROM {p:records} AS r WHERE r.id = $1::text::uuid FOR NO KEY UPDATE OF r

-- name: after
-- Rows by id.
SELECT {row}, {blocked} FROM {p:records} AS r WHERE r.id > $1::text::uuid ORDER BY r.id LIMIT $2::bigint

-- name: insert
-- An append: rows as lists, in their order; a list of nothing but empty texts or ids may be empty itself. $24 is the moment that the times
-- of the rows were made for, 0 if it was read from this database. If it was not, the rows are inserted only if the generation of the
-- registrations is still $25, for a program of the version $26, and their times become as much later as the clock of the database is. The
-- result is by how much; no row says that nothing was inserted.
WITH m AS MATERIALIZED (SELECT CASE WHEN $24::bigint <> 0 THEN {p:now}() - $24::bigint ELSE 0 END AS later FROM {p:meta}
	WHERE $24::bigint = 0 OR routes = $25::bigint AND version >= $26::integer AND compatible <= $26::integer),
inserted AS (INSERT INTO {p:records} (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for,
	message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload)
SELECT u.id, coalesce(u.grp, ''), u.topic, coalesce(u.key, ''), coalesce(u.tenant_id, ''), u.created_at + m.later, u.size, u.stage, CASE WHEN u.wake_at <> 0 THEN u.wake_at + m.later ELSE 0 END,
	u.next_at + m.later, CASE WHEN u.expires_at <> 0 THEN u.expires_at + m.later ELSE 0 END, u.due_at + m.later,
	nullif(u.step, {none}), nullif(u.waits_for, {none}), u.message_id,
	nullif(u.correlation_id, ''), nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''),
	nullif(u.joins, ''), nullif(substr(u.metadata, 2), ''), CASE WHEN u.metadata LIKE '+%' THEN u.payload END
FROM m CROSS JOIN unnest($1::text::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text::bigint[], $7::text::bigint[], $8::text::smallint[],
	$9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::uuid[], $14::text::uuid[], $15::text[],
	$16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::bytea[])
AS u (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload))
SELECT later FROM m

-- name: load
-- The content of records. $2 is what is read of it beside the texts: 1 metadata, 2 payload, 4 history.
SELECT {content:2} FROM {p:records} AS r WHERE r.id = ANY ($1::text::uuid[])

-- name: replace
-- The edit of an operator.
UPDATE {p:records} SET size = $2::bigint, metadata = nullif($3::text, ''), payload = $4::bytea WHERE id = $1::text::uuid

-- name: attach
-- Makes records a step of a join.
UPDATE {p:records} SET step = $2::text::uuid, joins = coalesce(joins || ',', '') || $3::text WHERE id = ANY ($1::text::uuid[])

-- name: adopt
-- Gives records to the first group of their topic.
WITH first AS MATERIALIZED (SELECT id FROM {p:records} WHERE grp = '' AND stage IN (0, 3) AND topic = $1::text ORDER BY seq LIMIT $3::bigint),
waiting AS MATERIALIZED (SELECT id FROM first ORDER BY id LIMIT $3::bigint)
UPDATE {p:records} AS r SET grp = $2::text FROM waiting
WHERE r.id = ANY (ARRAY[waiting.id]) AND r.grp || '' = '' AND r.stage + 0 IN (0, 3)
