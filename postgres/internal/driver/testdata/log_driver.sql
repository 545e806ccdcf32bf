-- log acked_steps
SELECT /* outmill acked_steps */ u.id FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::integer[]) LIMIT $4::bigint) AS u (id, claims)
	LEFT JOIN "outmill"."records" AS r ON r.id = ANY (ARRAY[u.id])
	AND r.stage + 0 = 4 AND r.owner = $3::text AND r.claims = u.claims
WHERE r.id IS NULL OR r.step IS NOT NULL;

-- log page
WITH /* outmill page */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
notes AS MATERIALIZED (SELECT * FROM (
	SELECT b.* FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (
		SELECT name, blocker, head, look_at, looks, xmin::text::bigint AS writer FROM "outmill"."notes"
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($2::text, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND blocker = f.blocker ORDER BY head, name LIMIT $4::bigint) AS b
	UNION SELECT * FROM (SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM "outmill"."notes"
		WHERE grp = $1::text AND topic = $2::text AND look_at <> 0 AND look_at <= (SELECT now FROM at) ORDER BY look_at
		LIMIT 10 * $4::bigint + 1000) AS l
	UNION SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM "outmill"."notes"
		WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND name >= 'q' AND name < 'r') AS n
	ORDER BY head, name LIMIT $4::bigint),
shares AS MATERIALIZED (SELECT greatest(1, $4::bigint / greatest(1, count(*))) AS share FROM notes WHERE name >= 'k' AND name < 'l'),
held AS MATERIALIZED (SELECT h.* FROM notes AS n CROSS JOIN LATERAL (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r
	WHERE hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) =
			hashtextextended(n.name, hashtextextended($2::text, hashtextextended($1::text, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = n.name
	ORDER BY seq LIMIT CASE WHEN $6::boolean AND n.name >= 'k' AND n.name < 'l' THEN (SELECT share FROM shares) ELSE $4::bigint END ) AS h),
ready AS MATERIALIZED (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $4::bigint),
flags AS MATERIALIZED (SELECT
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0 LIMIT 1) IS NOT NULL AS waiting,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1)
		IS NOT NULL AS delayed,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 LIMIT 1) IS NOT NULL AS leased,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1) IS NOT NULL AS held,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 6 AND stage > 4 LIMIT 1) IS NOT NULL AS dead),
logs AS MATERIALIZED (SELECT g.* FROM
	"outmill"."log_page"($2::text, $7::bigint, $8::bigint, nullif($9::text, '')::pg_snapshot, $4::bigint, $11::integer <> 0) AS g
	WHERE (SELECT stamp FROM "outmill"."events") = $10::bigint),
brought AS MATERIALIZED (SELECT max(f.pos) AS upto FROM
	(SELECT pos, row_number() OVER given AS nth, sum(least(size, 1 << 30)::integer) OVER given AS bytes
	FROM logs WHERE seen IS NULL AND $11::integer <> 0 WINDOW given AS (ROWS UNBOUNDED PRECEDING)) AS f
	WHERE f.nth <= $13::bigint AND f.bytes <= $12::bigint),
keys AS MATERIALIZED (SELECT key FROM held UNION SELECT key FROM logs WHERE seen IS NULL UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT p.*, '', '', '', '', '', '', '', NULL::bytea FROM (SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
UNION ALL SELECT 1, 0, head, '00000000-0000-0000-0000-000000000000'::uuid, name, '', writer, 0, 0, look_at, 0, 0, looks, 0, 0, blocker, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM notes
UNION ALL SELECT 2, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM held
UNION ALL SELECT 3, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, 0, s.waiting, '00000000-0000-0000-0000-000000000000'::uuid, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END,
	CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END, '') AS other,
	coalesce(CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS waiting,
	coalesce(CASE WHEN (SELECT held FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS held,
	coalesce(CASE WHEN (SELECT dead FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS parked,
	least(
		CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT delayed FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT leased FROM flags) THEN (SELECT min(seq) FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)) END,
		9223372036854775807::bigint) AS due) AS s WHERE $6::boolean AND k.key <> ''
	AND (SELECT waiting OR delayed OR leased OR held OR dead FROM flags)) AS p
UNION ALL SELECT 5, 0, pos, '00000000-0000-0000-0000-000000000000'::uuid, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, flag, 0,
	'', '', '', '', '', '', '', '', NULL::bytea FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, 0, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid,
	flag, 0,
	'', CASE WHEN pos <= (SELECT upto FROM brought) THEN coalesce(message_id, id::text) ELSE '' END,
	coalesce(correlation_id, ''), coalesce(causation_id, ''), coalesce(traceparent, ''), coalesce(tracestate, ''), coalesce(dedup_key, ''),
	CASE WHEN $11::integer & 1 <> 0 AND pos <= (SELECT upto FROM brought) THEN coalesce(metadata, '') ELSE '' END,
	CASE WHEN $11::integer & 2 <> 0 AND pos <= (SELECT upto FROM brought) THEN payload END FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, 0, 0, '00000000-0000-0000-0000-000000000000'::uuid, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '', '', '', '', '', '', '', '', NULL::bytea
	FROM 
	(SELECT l.key, min(w.owner) AS owner FROM "outmill"."log_in_work"($2::text, $7::bigint) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key) AS o;

-- log page, with locks
WITH /* outmill page */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
notes AS MATERIALIZED (SELECT * FROM (
	SELECT b.* FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (
		SELECT name, blocker, head, look_at, looks, xmin::text::bigint AS writer FROM "outmill"."notes"
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($2::text, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND blocker = f.blocker ORDER BY head, name LIMIT $4::bigint) AS b
	UNION SELECT * FROM (SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM "outmill"."notes"
		WHERE grp = $1::text AND topic = $2::text AND look_at <> 0 AND look_at <= (SELECT now FROM at) ORDER BY look_at
		LIMIT 10 * $4::bigint + 1000) AS l
	UNION SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM "outmill"."notes"
		WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND name >= 'q' AND name < 'r') AS n
	ORDER BY head, name LIMIT $4::bigint),
shares AS MATERIALIZED (SELECT greatest(1, $4::bigint / greatest(1, count(*))) AS share FROM notes WHERE name >= 'k' AND name < 'l'),
held AS MATERIALIZED (SELECT h.* FROM notes AS n CROSS JOIN LATERAL (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r
	WHERE hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) =
			hashtextextended(n.name, hashtextextended($2::text, hashtextextended($1::text, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = n.name
	ORDER BY seq LIMIT CASE WHEN $6::boolean AND n.name >= 'k' AND n.name < 'l' THEN (SELECT share FROM shares) ELSE $4::bigint END FOR NO KEY UPDATE OF r SKIP LOCKED) AS h),
ready AS MATERIALIZED (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $4::bigint),
flags AS MATERIALIZED (SELECT
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0 LIMIT 1) IS NOT NULL AS waiting,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1)
		IS NOT NULL AS delayed,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 LIMIT 1) IS NOT NULL AS leased,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1) IS NOT NULL AS held,
	(SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 6 AND stage > 4 LIMIT 1) IS NOT NULL AS dead),
logs AS MATERIALIZED (SELECT g.* FROM
	"outmill"."log_page"($2::text, $7::bigint, $8::bigint, nullif($9::text, '')::pg_snapshot, $4::bigint, $11::integer <> 0) AS g
	WHERE (SELECT stamp FROM "outmill"."events") = $10::bigint),
brought AS MATERIALIZED (SELECT max(f.pos) AS upto FROM
	(SELECT pos, row_number() OVER given AS nth, sum(least(size, 1 << 30)::integer) OVER given AS bytes
	FROM logs WHERE seen IS NULL AND $11::integer <> 0 WINDOW given AS (ROWS UNBOUNDED PRECEDING)) AS f
	WHERE f.nth <= $13::bigint AND f.bytes <= $12::bigint),
keys AS MATERIALIZED (SELECT key FROM held UNION SELECT key FROM logs WHERE seen IS NULL UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT p.*, '', '', '', '', '', '', '', NULL::bytea FROM (SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
UNION ALL SELECT 1, 0, head, '00000000-0000-0000-0000-000000000000'::uuid, name, '', writer, 0, 0, look_at, 0, 0, looks, 0, 0, blocker, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM notes
UNION ALL SELECT 2, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM held
UNION ALL SELECT 3, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, 0, s.waiting, '00000000-0000-0000-0000-000000000000'::uuid, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END,
	CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END, '') AS other,
	coalesce(CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS waiting,
	coalesce(CASE WHEN (SELECT held FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS held,
	coalesce(CASE WHEN (SELECT dead FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1) END, 9223372036854775807::bigint) AS parked,
	least(
		CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT delayed FROM flags) THEN (SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT leased FROM flags) THEN (SELECT min(seq) FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)) END,
		9223372036854775807::bigint) AS due) AS s WHERE $6::boolean AND k.key <> ''
	AND (SELECT waiting OR delayed OR leased OR held OR dead FROM flags)) AS p
UNION ALL SELECT 5, 0, pos, '00000000-0000-0000-0000-000000000000'::uuid, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, flag, 0,
	'', '', '', '', '', '', '', '', NULL::bytea FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, 0, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid,
	flag, 0,
	'', CASE WHEN pos <= (SELECT upto FROM brought) THEN coalesce(message_id, id::text) ELSE '' END,
	coalesce(correlation_id, ''), coalesce(causation_id, ''), coalesce(traceparent, ''), coalesce(tracestate, ''), coalesce(dedup_key, ''),
	CASE WHEN $11::integer & 1 <> 0 AND pos <= (SELECT upto FROM brought) THEN coalesce(metadata, '') ELSE '' END,
	CASE WHEN $11::integer & 2 <> 0 AND pos <= (SELECT upto FROM brought) THEN payload END FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, 0, 0, '00000000-0000-0000-0000-000000000000'::uuid, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '', '', '', '', '', '', '', '', NULL::bytea
	FROM 
	(SELECT l.key, min(w.owner) AS owner FROM "outmill"."log_in_work"($2::text, $7::bigint) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key) AS o;

-- log pages
WITH /* outmill pages */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
lines AS MATERIALIZED (SELECT * FROM
	unnest($2::text[], $7::text::bigint[], $8::text::bigint[], $9::text[]) WITH ORDINALITY AS u (topic, chain, begin_pos, begin_seen, line)),
logs AS MATERIALIZED (SELECT l.line, l.topic, g.* FROM lines AS l CROSS JOIN LATERAL
	"outmill"."log_page"(l.topic, l.chain, l.begin_pos, nullif(l.begin_seen, '')::pg_snapshot, $4::bigint) AS g
	WHERE l.chain >= 0 AND (SELECT stamp FROM "outmill"."events") = $10::bigint),
alone AS MATERIALIZED (SELECT l.line FROM lines AS l WHERE
	(SELECT 1 FROM logs AS g WHERE g.line = l.line AND g.flag LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_in_work"(l.topic, l.chain) AS b WHERE b.lease_until <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM "outmill"."notes"
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(l.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM l.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."notes" WHERE grp = $1::text AND topic = l.topic AND look_at <> 0 AND look_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR $6::boolean AND (SELECT 1 FROM "outmill"."notes" WHERE grp = $1::text AND topic = l.topic AND name >= 'q' AND name < 'r' LIMIT 1) IS NOT NULL
	OR NOT $6::boolean AND (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1)
		IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = l.topic LIMIT 1) IS NOT NULL),
ready AS MATERIALIZED (SELECT l.line, l.topic, r.* FROM lines AS l CROSS JOIN LATERAL (SELECT r.seq, r.id, r.grp, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r
	WHERE grp = $1::text AND topic = l.topic AND stage = 0 ORDER BY seq LIMIT $4::bigint ) AS r
	WHERE l.line NOT IN (SELECT line FROM alone)),
keys AS MATERIALIZED (
	SELECT line, topic, key FROM ready WHERE $6::boolean AND key <> ''
	UNION SELECT line, topic, key FROM logs WHERE $6::boolean AND key <> '')
SELECT 1 AS kind, line, 0::bigint, '00000000-0000-0000-0000-000000000000'::uuid AS id, '', '', 0::bigint, 0, 0, 0::bigint, 0::bigint, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM alone
UNION ALL SELECT 3, line, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, k.line, s.waiting, '00000000-0000-0000-0000-000000000000'::uuid, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce((SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1),
	(SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1), '') AS other,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS waiting,
	coalesce((SELECT seq FROM "outmill"."records" WHERE hashtextextended('k' || k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = k.topic AND under = 'k' || k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS held,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = k.topic AND key = k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS parked,
	least(
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT min(seq) FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)),
		9223372036854775807::bigint) AS due) AS s
UNION ALL SELECT 5, line, pos, '00000000-0000-0000-0000-000000000000'::uuid, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, flag, 0,
	'' FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, line, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid,
	flag, 0,
	'' FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, line, 0, '00000000-0000-0000-0000-000000000000'::uuid, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, ''
	FROM (SELECT n.line, l.key, min(w.owner) AS owner
	FROM lines AS n CROSS JOIN LATERAL "outmill"."log_in_work"(n.topic, n.chain) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND ((n.line, l.key) IN (SELECT line, key FROM keys)) IS TRUE GROUP BY n.line, l.key) AS o;

-- log pages, with locks
WITH /* outmill pages */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
lines AS MATERIALIZED (SELECT * FROM
	unnest($2::text[], $7::text::bigint[], $8::text::bigint[], $9::text[]) WITH ORDINALITY AS u (topic, chain, begin_pos, begin_seen, line)),
logs AS MATERIALIZED (SELECT l.line, l.topic, g.* FROM lines AS l CROSS JOIN LATERAL
	"outmill"."log_page"(l.topic, l.chain, l.begin_pos, nullif(l.begin_seen, '')::pg_snapshot, $4::bigint) AS g
	WHERE l.chain >= 0 AND (SELECT stamp FROM "outmill"."events") = $10::bigint),
alone AS MATERIALIZED (SELECT l.line FROM lines AS l WHERE
	(SELECT 1 FROM logs AS g WHERE g.line = l.line AND g.flag LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_in_work"(l.topic, l.chain) AS b WHERE b.lease_until <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM "outmill"."notes"
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(l.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM l.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."notes" WHERE grp = $1::text AND topic = l.topic AND look_at <> 0 AND look_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR $6::boolean AND (SELECT 1 FROM "outmill"."notes" WHERE grp = $1::text AND topic = l.topic AND name >= 'q' AND name < 'r' LIMIT 1) IS NOT NULL
	OR NOT $6::boolean AND (SELECT 1 FROM "outmill"."records" WHERE grp = $1::text AND topic = l.topic AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1)
		IS NOT NULL
	OR (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = l.topic LIMIT 1) IS NOT NULL),
ready AS MATERIALIZED (SELECT l.line, l.topic, r.* FROM lines AS l CROSS JOIN LATERAL (SELECT r.seq, r.id, r.grp, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r
	WHERE grp = $1::text AND topic = l.topic AND stage = 0 ORDER BY seq LIMIT $4::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS r
	WHERE l.line NOT IN (SELECT line FROM alone)),
keys AS MATERIALIZED (
	SELECT line, topic, key FROM ready WHERE $6::boolean AND key <> ''
	UNION SELECT line, topic, key FROM logs WHERE $6::boolean AND key <> '')
SELECT 1 AS kind, line, 0::bigint, '00000000-0000-0000-0000-000000000000'::uuid AS id, '', '', 0::bigint, 0, 0, 0::bigint, 0::bigint, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM alone
UNION ALL SELECT 3, line, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, k.line, s.waiting, '00000000-0000-0000-0000-000000000000'::uuid, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce((SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1),
	(SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1), '') AS other,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS waiting,
	coalesce((SELECT seq FROM "outmill"."records" WHERE hashtextextended('k' || k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = k.topic AND under = 'k' || k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS held,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = k.topic AND key = k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS parked,
	least(
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT min(seq) FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)),
		9223372036854775807::bigint) AS due) AS s
UNION ALL SELECT 5, line, pos, '00000000-0000-0000-0000-000000000000'::uuid, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, flag, 0,
	'' FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, line, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid,
	flag, 0,
	'' FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, line, 0, '00000000-0000-0000-0000-000000000000'::uuid, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, ''
	FROM (SELECT n.line, l.key, min(w.owner) AS owner
	FROM lines AS n CROSS JOIN LATERAL "outmill"."log_in_work"(n.topic, n.chain) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND ((n.line, l.key) IN (SELECT line, key FROM keys)) IS TRUE GROUP BY n.line, l.key) AS o;

-- log state
SELECT /* outmill state */ m.version, m.compatible, m.routes, m.pauses, "outmill"."now"(),
	(SELECT 1 FROM "outmill"."notes" LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM "outmill"."notes" WHERE blocker >= 'p' AND blocker < 'r' LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) LIMIT 1) IS NOT NULL,
	(SELECT stamp FROM "outmill"."events"), (SELECT last FROM "outmill"."events"), m.segment
FROM "outmill"."meta" AS m;

-- log_ack
SELECT /* outmill log_ack */ "outmill"."log_settle"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying),
	"outmill"."log_open_notes"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying, $6::text);

-- log_after
SELECT /* outmill log_after */ l.topic, l.pos, l.id FROM "outmill"."log" AS l WHERE l.id >= $1::text::uuid ORDER BY l.id LIMIT $2::bigint;

-- log_all_ended
WITH /* outmill log_all_ended */ RECURSIVE c AS (
	(SELECT topic, chain FROM "outmill"."batches" ORDER BY topic, chain LIMIT 1)
	UNION ALL SELECT n.* FROM c CROSS JOIN LATERAL (SELECT b.topic, b.chain FROM "outmill"."batches" AS b WHERE (b.topic, b.chain) > (c.topic, c.chain)
		ORDER BY b.topic, b.chain LIMIT 1) AS n)
SELECT c.topic, c.chain, r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, b.n, b.token, b.size, r.ordinal, b.lease_until,
	b.owner, b.worker
FROM c CROSS JOIN LATERAL "outmill"."log_in_work"(c.topic, c.chain) AS b CROSS JOIN LATERAL "outmill"."log_rows_of"(b) AS r CROSS JOIN LATERAL (SELECT g.*, "outmill"."log_size"(g) AS size FROM "outmill"."log" AS g WHERE g.topic = c.topic AND g.pos = r.pos OFFSET 0) AS l
WHERE b.lease_until <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())) AND (b.done IS NULL OR get_bit(b.done, r.ordinal) = 0) LIMIT $1::bigint;

-- log_any
SELECT /* outmill log_any */ "outmill"."log_any"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::boolean);

-- log_change_leased
SELECT /* outmill log_change_leased */ "outmill"."log_change_leased"($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text::bit varying, $8::bigint, $9::text, $10::text::bigint[], $11::text::bigint[]);

-- log_change_unread
SELECT /* outmill log_change_unread */ r FROM "outmill"."log_change_unread"($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, nullif($6::text, '')::pg_snapshot, $7::text::bigint[],
	$8::text, $9::text::bigint[], $10::text::bigint[], $11::boolean) AS r;

-- log_check
SELECT /* outmill log_check */ CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer);

-- log_content
SELECT /* outmill log_content */ r.pos, r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $3::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $3::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $3::integer & 4 <> 0 THEN r.history END FROM (SELECT l.pos, l.id, l.created_at AS due_at, coalesce(l.message_id, l.id::text) AS message_id, l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, NULL::text AS joins, NULL::text AS last_error, l.metadata, l.payload, NULL::bytea AS history
	FROM unnest($2::text::bigint[]) AS u (pos) CROSS JOIN LATERAL (SELECT g.* FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos = u.pos OFFSET 0) AS l) AS r;

-- log_content_between
SELECT /* outmill log_content_between */ r.pos, r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $3::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $3::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $3::integer & 4 <> 0 THEN r.history END FROM (SELECT l.pos, l.id, l.created_at AS due_at, coalesce(l.message_id, l.id::text) AS message_id, l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, NULL::text AS joins, NULL::text AS last_error, l.metadata, l.payload, NULL::bytea AS history
	FROM "outmill"."log" AS l WHERE l.topic = $1::text AND l.pos >= $2::bigint AND l.pos <= $4::bigint) AS r;

-- log_copying
SELECT /* outmill log_copying */ set_config('statement_timeout', '10min', true) WHERE current_setting('statement_timeout') = '0';

-- log_count
SELECT /* outmill log_count */ count(*) FROM "outmill"."log_page"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint) AS r WHERE r.seen IS NULL;

-- log_dropped
SELECT /* outmill log_dropped */ "outmill"."log_dropped"($1::text, $2::bigint);

-- log_due
SELECT /* outmill log_due */ d.topic, d.first FROM (SELECT u.topic, "outmill"."log_due"(u.topic, u.chain, u.begin_pos, nullif(u.begin_seen, '')::pg_snapshot, coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"()))) AS first
	FROM unnest($1::text[], $2::text::bigint[], $3::text::bigint[], $4::text[]) AS u (topic, chain, begin_pos, begin_seen)) AS d WHERE d.first IS NOT NULL;

-- log_extend_rows
SELECT /* outmill log_extend_rows */ "outmill"."log_extend_rows"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying, $6::bigint, $7::bigint);

-- log_find
SELECT /* outmill log_find */ l.topic, l.pos, l.id, l.event FROM unnest($1::text::uuid[], $2::text::uuid[]) AS u (low, high)
	CROSS JOIN LATERAL (SELECT g.topic, g.pos, g.id, g.event FROM "outmill"."log" AS g WHERE g.id >= u.low AND g.id <= u.high OFFSET 0) AS l;

-- log_history
SELECT /* outmill log_history */ e.stamp, r.number, coalesce(r.grp, ''), coalesce(r.topics::text, ''), coalesce(r.takes, 0), coalesce(r.ended, 0), coalesce(r.swept, 0), coalesce(r.dropping, false),
	coalesce(r.begin_pos, 0), coalesce(r.begin_seen::text, ''), coalesce(r.end_pos, 0), coalesce(r.end_seen::text, '')
FROM "outmill"."events" AS e LEFT JOIN "outmill"."readings" AS r ON true ORDER BY r.number;

-- log_ids
SELECT /* outmill log_ids */ 1 FROM unnest($1::text::uuid[], $2::text::uuid[]) AS u (low, high)
	CROSS JOIN LATERAL (SELECT g.id FROM "outmill"."log" AS g WHERE g.id >= u.low AND g.id <= u.high ORDER BY g.id LIMIT 1) AS l LIMIT 1;

-- log_insert_0
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_0" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN unnest($6::text::bigint[], $7::text::uuid[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
	$16::text[], $17::text[], $18::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_1
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_1" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN unnest($6::text::bigint[], $7::text::uuid[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
	$16::text[], $17::text[], $18::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_2
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_2" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN unnest($6::text::bigint[], $7::text::uuid[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
	$16::text[], $17::text[], $18::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_one_0
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_0" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN (VALUES ($6::text::bigint, $7::text::uuid, $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
	$16::text, $17::text, $18::bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_one_1
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_1" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN (VALUES ($6::text::bigint, $7::text::uuid, $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
	$16::text, $17::text, $18::bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_one_2
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint <> 0 THEN "outmill"."now"() - $1::bigint ELSE 0 END AS later,
	CASE WHEN $1::bigint <> 0 THEN (SELECT last FROM "outmill"."events") ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE routes = $2::bigint AND ($1::bigint = 0 OR version >= $3::integer AND compatible <= $3::integer AND segment = $5::integer)),
inserted AS (INSERT INTO "outmill"."log_2" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
	metadata, payload, event)
SELECT u.created_at + m.later, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(substr(u.metadata, 2), ''),
	CASE WHEN u.metadata LIKE '+%' THEN u.payload END, m.event
FROM m CROSS JOIN (VALUES ($6::text::bigint, $7::text::uuid, $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
	$16::text, $17::text, $18::bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id,
	traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_leased
SELECT /* outmill log_leased */ r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, b.n, b.token, b.size, r.ordinal, b.lease_until, b.owner, b.worker
FROM "outmill"."log_in_work"($1::text, $2::bigint) AS b CROSS JOIN LATERAL "outmill"."log_rows_of"(b) AS r CROSS JOIN LATERAL (SELECT g.*, "outmill"."log_size"(g) AS size FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos = r.pos OFFSET 0) AS l
WHERE (b.done IS NULL OR get_bit(b.done, r.ordinal) = 0) AND ($3::integer = 0 OR ($3::integer = 1) = (b.lease_until <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))))
ORDER BY b.lease_until, r.pos LIMIT $5::bigint;

-- log_move_ended
SELECT /* outmill log_move_ended */ "outmill"."log_move_ended"($1::text, $2::bigint, $3::bigint, $4::text, $5::text::bigint[], $6::text::bigint[], $7::bigint);

-- log_move_read
SELECT /* outmill log_move_read */ "outmill"."log_move_read"($1::text, $2::text::bigint[], $3::text, $4::text::bigint[], $5::text::bigint[]);

-- log_owner
SELECT /* outmill log_owner */ b.owner FROM "outmill"."log_in_work"($1::text, $2::bigint) AS b WHERE b.owner <> $3::text LIMIT 1;

-- log_places
SELECT /* outmill log_places */ r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, coalesce(r.n, -1), coalesce(r.token, 0), r.size, r.ordinal,
	r.lease_until, r.owner, r.worker
FROM "outmill"."log_places"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::text::bigint[]) AS r
	CROSS JOIN LATERAL (SELECT g.*, "outmill"."log_size"(g) AS size FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos = r.pos OFFSET 0) AS l;

-- log_quiet
SELECT /* outmill log_quiet */ coalesce("outmill"."quiet"($1::pg_catalog.text, $2::pg_catalog.int4, $3::pg_catalog.int8, $4::pg_catalog.int8, $5::pg_catalog.text[], $6::pg_catalog.text[],
	$7::pg_catalog.text[], $8::pg_catalog.text::pg_catalog.int8[], $9::pg_catalog.text::pg_catalog.int8[], $10::pg_catalog.text[]), false);

-- log_registered
SELECT /* outmill log_registered */ "outmill"."log_registered"($1::text, $2::text, $3::text, $4::boolean, $5::bigint);

-- log_resting
SELECT /* outmill log_resting */ "outmill"."resting_of"($1::pg_catalog.text[], $2::pg_catalog.text[]);

-- log_swept
SELECT /* outmill log_swept */ "outmill"."log_swept"($1::text, $2::bigint);

-- log_topics
SELECT /* outmill log_topics */ topic FROM "outmill"."log_lines"() AS l (topic);

