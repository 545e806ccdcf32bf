-- name: put
-- Writes entries: registrations, workers, pauses, joins and their steps, sagas, the audit.
INSERT INTO {p:entries} (kind, key, at, made_at, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[])
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value

-- name: take
-- Takes dedup keys and the like, unless they are taken and their time, compared with $6, has not come.
INSERT INTO {p:entries} AS e (kind, key, at, made_at, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[])
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value
WHERE e.at <= $6::bigint RETURNING e.kind, e.key

-- name: add
-- Writes an entry that does not exist: the note of a handled message.
INSERT INTO {p:entries} (kind, key, at, made_at, value) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text)
ON CONFLICT (kind, key) DO NOTHING

-- name: entries
-- Entries by their keys.
SELECT e.kind, e.key, e.at, e.made_at, e.value FROM (SELECT * FROM unnest($1::text[], $2::text[]) LIMIT cardinality($1::text[])) AS u (kind, key)
JOIN {p:entries} AS e ON e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key

-- name: entries_locked
-- The same, locked in the order of the list.
SELECT e.kind, e.key, e.at, e.made_at, e.value FROM (SELECT * FROM unnest($1::text[], $2::text[]) LIMIT cardinality($1::text[])) AS u (kind, key)
JOIN {p:entries} AS e ON e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key FOR UPDATE OF e

-- name: count_entries
-- How many there are of each kind, in the order of the list.
SELECT (SELECT count(*) FROM {p:entries} AS e WHERE e.kind = u.kind) FROM unnest($1::text[]) WITH ORDINALITY AS u (kind, place) ORDER BY u.place

-- name: scan
-- Entries by a prefix of their keys. The last character of Unicode ends each prefix.
SELECT kind, key, at, made_at, value FROM {p:entries} WHERE kind = $1::text AND key >= $2::text AND key < $2::text || chr(1114111) ORDER BY key

-- name: range
-- The first entries behind a key.
SELECT kind, key, at, made_at, value FROM {p:entries} WHERE kind = $1::text AND key > $2::text ORDER BY key LIMIT $3::bigint

-- name: old
-- Entries whose time has come.
SELECT kind, key, at, made_at, value FROM {p:entries} WHERE kind = $1::text AND at <> 0 AND at <= $2::bigint ORDER BY at, key LIMIT $3::bigint {lock}

-- name: delete_entries
-- Deletes entries. One whose time is another than that of the list stays, unless that is 0.
DELETE FROM {p:entries} AS e USING (SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[]) LIMIT cardinality($1::text[])) AS u (kind, key, at)
WHERE e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key AND (u.at = 0 OR e.at = u.at)

-- name: put_note
-- Notes a handled message in a caller's transaction. See the schema.
SELECT {p:put_note}($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::bigint, $5::pg_catalog.text, $6::pg_catalog.text::pg_catalog.uuid,
	$7::pg_catalog.text, $8::integer, $9::pg_catalog.text, $10::bigint, $11::bigint, $12::bigint, $13::integer)

-- name: swap_insert
-- Adds an entry in the last round trip of a transaction, or fails. Its time is written between the two parts of its value.
WITH changed AS (INSERT INTO {p:entries} (kind, key, at, made_at, value)
	SELECT $1::text, $2::text, $3::bigint, n.now, $4::text || n.now || $5::text FROM (SELECT {p:now}() AS now) AS n
	ON CONFLICT (kind, key) DO NOTHING RETURNING made_at)
SELECT coalesce(max(made_at), 0), coalesce(max(made_at), 0), {p:demand}(count(*), 1) FROM changed

-- name: swap_update
-- The same for the change of an entry, which still begins as it was read.
WITH changed AS (UPDATE {p:entries} AS e SET at = $3::bigint, value = $4::text || n.now || $5::text FROM (SELECT {p:now}() AS now) AS n
	WHERE e.kind = $1::text AND e.key = $2::text AND starts_with(e.value, $6::text) RETURNING e.made_at, n.now)
SELECT coalesce(max(made_at), 0), coalesce(max(now), 0), {p:demand}(count(*), 1) FROM changed

-- name: swap_delete
-- The same for its deletion.
WITH changed AS (DELETE FROM {p:entries} WHERE kind = $1::text AND key = $2::text AND starts_with(value, $3::text) RETURNING made_at)
SELECT coalesce(max(made_at), 0), {p:now}(), {p:demand}(count(*), 1) FROM changed

-- name: swap_put
-- Writes the entries that follow. A time of -1 is now.
INSERT INTO {p:entries} (kind, key, at, made_at, value)
SELECT kind, key, CASE at WHEN -1 THEN {p:now}() ELSE at END, made_at, value
FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[]) AS u (kind, key, at, made_at, value)
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value
