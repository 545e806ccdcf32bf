-- What Apply writes. u has, for each row, its id and what must not have changed since it was read. Each returns the rows that it
-- has written. The LIMIT of a list is its length. It makes the planner, which does not know the length, expect one row: it then looks
-- each row up by its id, and never goes through the table to compare each of its rows with the list. A list is compared by
-- = ANY (ARRAY[x]) and not by = x, which a merge join could use: a planner that has seen the table empty would then read the whole index for
-- each row of the list, because that looks as cheap as one row, and the plan would stay while the table grows. stage + 0 keeps the planner from
-- the indexes of some stages for the same reason.

-- name: lock_rows
-- The rows of an Apply that takes several statements. All statements lock rows in the order of their ids.
SELECT count(*) FROM (SELECT 1 FROM {p:records} AS r WHERE r.id = ANY ($1::text::uuid[]) ORDER BY r.id FOR NO KEY UPDATE OF r) AS locked

-- name: lease_same
-- A claim of rows of which the same was read: $2 to $6. The rest is as in lease. The index is read in the order of the ids, whatever that of
-- the list is.
UPDATE {p:records} AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + $10::integer, expiries = r.expiries + $11::integer, under = ''
WHERE r.id = ANY ($1::text::uuid[]) AND r.stage = $2::smallint AND r.wake_at = $3::bigint AND r.claims = $4::integer AND r.owner = $5::text
	AND coalesce(r.step::text, '') || r.grp = $6::text
RETURNING r.id

-- name: lease
-- A claim: $1 to $6 are what was read of the rows, $7 the end of the lease, $8 the owner, $9 the worker, $10 and $11 what is added to
-- the attempts and expiries.
UPDATE {p:records} AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + u.attempts, expiries = r.expiries + u.expiries, under = ''
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $10::text::integer[],
	$11::text::integer[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, attempts, expiries)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id

-- name: extend
-- The extension of leases. $7 are their ends.
UPDATE {p:records} AS r SET wake_at = u.until
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $7::text::bigint[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, until)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id

-- name: change
-- Every other change: what a claim admits or holds, what ends a lease, what an operator does. A guard of '*' is a row that cannot
-- be decoded: its state is overwritten. An error or history begins with '+', or is empty if it stays.
UPDATE {p:records} AS r SET stage = u.to_stage, wake_at = u.wake_at, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts,
	claims = u.to_claims, expiries = u.expiries, owner = u.to_owner, worker = u.worker, under = u.under, parked = u.parked,
	processed_at = u.processed_at, processed_by = u.processed_by, grp = u.grp,
	last_error = CASE WHEN u.error LIKE '+%' THEN substr(u.error, 2) ELSE r.last_error END,
	history = CASE WHEN u.tried = '' THEN r.history ELSE substr(convert_to(u.tried, 'UTF8') || coalesce(r.history, ''), 1, 3072) END
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $7::text::smallint[],
	$8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::integer[], $12::text::integer[], $13::text::integer[], $14::text[],
	$15::text[], $16::text[], $17::text::boolean[], $18::text::bigint[], $19::text[], $20::text[], $21::text[], $22::text[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, to_stage, wake_at, next_at, expires_at, attempts, to_claims, expiries, to_owner, worker, under,
	parked, processed_at, processed_by, grp, error, tried)
WHERE r.id = ANY (ARRAY[u.id]) AND (u.guard = '*' OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard)
RETURNING r.id

-- name: delete
-- An ack where processed records do not stay, and a deletion by an operator or the janitor.
DELETE FROM {p:records} AS r
USING (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard)
WHERE r.id = ANY (ARRAY[u.id]) AND (u.guard = '*' OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard)
RETURNING r.id

-- name: open_notes
-- The next claim looks at these notes: something about their keys has changed. One that a claim writes at this moment is left out,
-- because that claim has set when the next one looks at it.
WITH f AS MATERIALIZED (SELECT o.grp, o.topic, o.name FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
		LIMIT cardinality($1::text[])) AS u (grp, topic, name)
	JOIN {p:notes} AS o ON o.grp = ANY (ARRAY[u.grp]) AND o.topic = u.topic AND o.name = u.name
	WHERE o.blocker <> '' OR o.look_at <> 0 OR o.looks <> 0 FOR UPDATE OF o SKIP LOCKED)
UPDATE {p:notes} AS n SET blocker = '', look_at = 0, looks = 0 FROM f
WHERE n.grp = ANY (ARRAY[f.grp]) AND n.topic = f.topic AND n.name = f.name

-- name: drop_notes
-- Deletes notes that hold nothing. One that somebody has written since it was read stays: $5 is the transaction that had written
-- it then, 0 if it was not read. A settlement may have opened it, so its looks alone do not show that.
DELETE FROM {p:notes} AS n USING (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text::integer[], $5::text::bigint[])
	LIMIT cardinality($1::text[])) AS u (grp, topic, name, looks, writer)
WHERE n.grp = ANY (ARRAY[u.grp]) AND n.topic = u.topic AND n.name = u.name AND n.looks = u.looks
	AND (u.writer = 0 OR n.xmin::text::bigint = u.writer OR n.xmin = pg_current_xact_id()::xid)

-- name: put_notes
-- What a claim leaves of notes. Those of pauses are written without a look at them.
INSERT INTO {p:notes} AS n (grp, topic, name, blocker, head, look_at, looks)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text::bigint[], $6::text::bigint[], $7::text::integer[])
ON CONFLICT (grp, topic, name) DO UPDATE SET blocker = excluded.blocker, look_at = excluded.look_at,
	looks = CASE WHEN n.name = excluded.blocker THEN n.looks + 1 ELSE excluded.looks END,
	head = CASE WHEN n.name = excluded.blocker THEN least(n.head, excluded.head) ELSE excluded.head END

-- name: forget
-- The notes of a group that is dropped.
DELETE FROM {p:notes} WHERE grp = $1::text

-- name: acked_steps
-- The leases of an ack whose records are steps of joins: the engine counts them. $1 and $2 are the ids and claims, $3 is the owner of all
-- of them, and $4 how many they are. The step is compared as a text, so that PostgreSQL does not read the whole index of steps.
SELECT u.id FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::integer[]) LIMIT $4::bigint) AS u (id, claims)
	LEFT JOIN {p:records} AS r ON r.id = ANY (ARRAY[u.id])
	AND r.stage + 0 = 4 AND r.owner = $3::text AND r.claims = u.claims
WHERE r.id IS NULL OR r.step IS NOT NULL

-- name: ack
-- An ack in one statement, where processed records do not stay: deletes by leases, and opens the notes of the keys.
WITH gone AS (DELETE FROM {p:records} AS r USING (SELECT * FROM unnest($1::text::uuid[], $2::text::integer[]) LIMIT $4::bigint) AS u (id, claims)
	WHERE r.id = ANY (ARRAY[u.id]) AND r.stage + 0 = 4 AND r.owner = $3::text AND r.claims = u.claims AND r.step IS NULL
	RETURNING r.grp, r.topic, r.key),
f AS MATERIALIZED (SELECT o.grp, o.topic, o.name
	FROM (SELECT DISTINCT grp, topic, 'k' || key AS name FROM gone WHERE key <> '' ORDER BY 1, 2, 3 LIMIT $4::bigint) AS g
	JOIN {p:notes} AS o ON o.grp = ANY (ARRAY[g.grp]) AND o.topic = g.topic AND o.name = g.name
	WHERE o.blocker <> '' OR o.look_at <> 0 OR o.looks <> 0 FOR UPDATE OF o SKIP LOCKED)
UPDATE {p:notes} AS n SET blocker = '', look_at = 0, looks = 0 FROM f
WHERE n.grp = ANY (ARRAY[f.grp]) AND n.topic = f.topic AND n.name = f.name
