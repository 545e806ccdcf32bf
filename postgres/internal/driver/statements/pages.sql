-- Pages of lines. All results have the columns of a row; what a row of another kind has in them is said at its SELECT.

-- name: page
-- A page of a line, of one moment. Its rows are of five kinds: 0 is now as seq, and whether rows of the topic wait for a first group as
-- parked; 1 a note that does not block the claim; 2 a row that it holds; 3 a ready row; 4 the state of a key. $1 and $2 are
-- the line, $3 the owner, $4 the limit, $5 the blockers that do not block; $6 says whether ready rows and keys are wanted.
-- flags are what the line has at all, so that the states of its keys need no searches that find nothing.
WITH at AS MATERIALIZED (SELECT {p:now}() AS now),
notes AS MATERIALIZED (SELECT * FROM (
	SELECT b.* FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (
		SELECT name, blocker, head, look_at, looks, xmin::text::bigint AS writer FROM {p:notes}
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($2::text, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND blocker = f.blocker ORDER BY head, name LIMIT $4::bigint) AS b
	UNION SELECT * FROM (SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM {p:notes}
		WHERE grp = $1::text AND topic = $2::text AND look_at <> 0 AND look_at <= (SELECT now FROM at) ORDER BY look_at
		LIMIT 10 * $4::bigint + 1000) AS l
	UNION SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM {p:notes}
		WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND name >= 'q' AND name < 'r') AS n
	ORDER BY head, name LIMIT $4::bigint),
shares AS MATERIALIZED (SELECT greatest(1, $4::bigint / greatest(1, count(*))) AS share FROM notes WHERE name >= 'k' AND name < 'l'),
held AS MATERIALIZED (SELECT h.* FROM notes AS n CROSS JOIN LATERAL (SELECT {row} FROM {p:records} AS r
	WHERE hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) =
			hashtextextended(n.name, hashtextextended($2::text, hashtextextended($1::text, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = n.name
	ORDER BY seq LIMIT CASE WHEN $6::boolean AND n.name >= 'k' AND n.name < 'l' THEN (SELECT share FROM shares) ELSE $4::bigint END {free}) AS h),
ready AS MATERIALIZED (SELECT {row} FROM {p:records} AS r WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $4::bigint),
flags AS MATERIALIZED (SELECT
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0 LIMIT 1) IS NOT NULL AS waiting,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1)
		IS NOT NULL AS delayed,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 LIMIT 1) IS NOT NULL AS leased,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1) IS NOT NULL AS held,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 6 AND stage > 4 LIMIT 1) IS NOT NULL AS dead),
keys AS (SELECT key FROM held UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), {none}, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', {none}, {none}, (SELECT 1 FROM {p:records} WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
UNION ALL SELECT 1, 0, head, {none}, name, '', writer, 0, 0, look_at, 0, 0, looks, 0, 0, blocker, '', '', {none}, {none}, false, 0, '' FROM notes
UNION ALL SELECT 2, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM held
UNION ALL SELECT 3, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, 0, s.waiting, {none}, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', {none}, {none}, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END,
	CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END, '') AS other,
	coalesce(CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1) END, {last}) AS waiting,
	coalesce(CASE WHEN (SELECT held FROM flags) THEN (SELECT seq FROM {p:records} WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1) END, {last}) AS held,
	coalesce(CASE WHEN (SELECT dead FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1) END, {last}) AS parked,
	least(
		CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT delayed FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT leased FROM flags) THEN (SELECT min(seq) FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)) END,
		{last}) AS due) AS s WHERE $6::boolean AND k.key <> ''

-- name: page_with_log
-- A page of a line of which a chain of the log is read, too, by key: as page, and kinds 5 to 7 are of the log, see kindLogHead. $7 to $9 are
-- the chain and its begin, and $10 is the stamp of the history: with another one nothing of the log is shown. $11 says which content the page
-- brings of rows of the log, $12 of how many bytes at most, and $13 of how many rows.
WITH at AS MATERIALIZED (SELECT {p:now}() AS now),
notes AS MATERIALIZED (SELECT * FROM (
	SELECT b.* FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (
		SELECT name, blocker, head, look_at, looks, xmin::text::bigint AS writer FROM {p:notes}
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($2::text, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND blocker = f.blocker ORDER BY head, name LIMIT $4::bigint) AS b
	UNION SELECT * FROM (SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM {p:notes}
		WHERE grp = $1::text AND topic = $2::text AND look_at <> 0 AND look_at <= (SELECT now FROM at) ORDER BY look_at
		LIMIT 10 * $4::bigint + 1000) AS l
	UNION SELECT name, blocker, head, look_at, looks, xmin::text::bigint FROM {p:notes}
		WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND name >= 'q' AND name < 'r') AS n
	ORDER BY head, name LIMIT $4::bigint),
shares AS MATERIALIZED (SELECT greatest(1, $4::bigint / greatest(1, count(*))) AS share FROM notes WHERE name >= 'k' AND name < 'l'),
held AS MATERIALIZED (SELECT h.* FROM notes AS n CROSS JOIN LATERAL (SELECT {row} FROM {p:records} AS r
	WHERE hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) =
			hashtextextended(n.name, hashtextextended($2::text, hashtextextended($1::text, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = n.name
	ORDER BY seq LIMIT CASE WHEN $6::boolean AND n.name >= 'k' AND n.name < 'l' THEN (SELECT share FROM shares) ELSE $4::bigint END {free}) AS h),
ready AS MATERIALIZED (SELECT {row} FROM {p:records} AS r WHERE $6::boolean AND grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $4::bigint),
flags AS MATERIALIZED (SELECT
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0 LIMIT 1) IS NOT NULL AS waiting,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1)
		IS NOT NULL AS delayed,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 LIMIT 1) IS NOT NULL AS leased,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1) IS NOT NULL AS held,
	(SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 6 AND stage > 4 LIMIT 1) IS NOT NULL AS dead),
logs AS MATERIALIZED (SELECT g.* FROM
	{p:log_page}($2::text, $7::bigint, $8::bigint, nullif($9::text, '')::pg_snapshot, $4::bigint, $11::integer <> 0) AS g
	WHERE (SELECT stamp FROM {p:events}) = $10::bigint),
brought AS MATERIALIZED (SELECT max(f.pos) AS upto FROM
	(SELECT pos, row_number() OVER given AS nth, sum(least(size, 1 << 30)::integer) OVER given AS bytes
	FROM logs WHERE seen IS NULL AND $11::integer <> 0 WINDOW given AS (ROWS UNBOUNDED PRECEDING)) AS f
	WHERE f.nth <= $13::bigint AND f.bytes <= $12::bigint),
keys AS MATERIALIZED (SELECT key FROM held UNION SELECT key FROM logs WHERE seen IS NULL UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT p.*, '', '', '', '', '', '', '', NULL::bytea FROM (SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), {none}, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', {none}, {none}, (SELECT 1 FROM {p:records} WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
UNION ALL SELECT 1, 0, head, {none}, name, '', writer, 0, 0, look_at, 0, 0, looks, 0, 0, blocker, '', '', {none}, {none}, false, 0, '' FROM notes
UNION ALL SELECT 2, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM held
UNION ALL SELECT 3, 0, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, 0, s.waiting, {none}, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', {none}, {none}, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END,
	CASE WHEN (SELECT leased FROM flags) THEN (SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1) END, '') AS other,
	coalesce(CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1) END, {last}) AS waiting,
	coalesce(CASE WHEN (SELECT held FROM flags) THEN (SELECT seq FROM {p:records} WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1) END, {last}) AS held,
	coalesce(CASE WHEN (SELECT dead FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1) END, {last}) AS parked,
	least(
		CASE WHEN (SELECT waiting FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT delayed FROM flags) THEN (SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1) END,
		CASE WHEN (SELECT leased FROM flags) THEN (SELECT min(seq) FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)) END,
		{last}) AS due) AS s WHERE $6::boolean AND k.key <> ''
	AND (SELECT waiting OR delayed OR leased OR held OR dead FROM flags)) AS p
UNION ALL SELECT 5, 0, pos, {none}, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', {none}, {none}, flag, 0,
	'', '', '', '', '', '', '', '', NULL::bytea FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, 0, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', {none}, {none},
	flag, 0,
	'', CASE WHEN pos <= (SELECT upto FROM brought) THEN coalesce(message_id, id::text) ELSE '' END,
	coalesce(correlation_id, ''), coalesce(causation_id, ''), coalesce(traceparent, ''), coalesce(tracestate, ''), coalesce(dedup_key, ''),
	CASE WHEN $11::integer & 1 <> 0 AND pos <= (SELECT upto FROM brought) THEN coalesce(metadata, '') ELSE '' END,
	CASE WHEN $11::integer & 2 <> 0 AND pos <= (SELECT upto FROM brought) THEN payload END FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, 0, 0, {none}, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', {none}, {none}, false, 0, '', '', '', '', '', '', '', '', NULL::bytea
	FROM (SELECT l.key, min(w.owner) AS owner FROM {p:log_in_work}($2::text, $7::bigint) AS w CROSS JOIN LATERAL {p:log_keys_of}(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key) AS o

-- name: pages
-- Pages of several lines, of one moment: line is which of $2, from 1. Kind 1 is a line of which a claim must look at more than the
-- ready rows; 3 and 4 are as in page, and 5 to 7 as in page_with_log. $1 is the group, $3 the owner, $4 the limit, $5 the blockers that do not
-- block; $6 says whether keys are wanted. $7 to $9 are the chains of the lines and their begins, and $10 is the stamp.
WITH at AS MATERIALIZED (SELECT {p:now}() AS now),
lines AS MATERIALIZED (SELECT * FROM
	unnest($2::text[], $7::text::bigint[], $8::text::bigint[], $9::text[]) WITH ORDINALITY AS u (topic, chain, begin_pos, begin_seen, line)),
logs AS MATERIALIZED (SELECT l.line, l.topic, g.* FROM lines AS l CROSS JOIN LATERAL
	{p:log_page}(l.topic, l.chain, l.begin_pos, nullif(l.begin_seen, '')::pg_snapshot, $4::bigint) AS g
	WHERE l.chain >= 0 AND (SELECT stamp FROM {p:events}) = $10::bigint),
alone AS MATERIALIZED (SELECT l.line FROM lines AS l WHERE
	(SELECT 1 FROM logs AS g WHERE g.line = l.line AND g.flag LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:log_in_work}(l.topic, l.chain) AS b WHERE b.lease_until <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = l.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = l.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = l.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM unnest($5::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM {p:notes}
		WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(l.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM l.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:notes} WHERE grp = $1::text AND topic = l.topic AND look_at <> 0 AND look_at <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR $6::boolean AND (SELECT 1 FROM {p:notes} WHERE grp = $1::text AND topic = l.topic AND name >= 'q' AND name < 'r' LIMIT 1) IS NOT NULL
	OR NOT $6::boolean AND (SELECT 1 FROM {p:records} WHERE grp = $1::text AND topic = l.topic AND stage - 1 = 0 AND under >= 'k' AND under < 'l' LIMIT 1)
		IS NOT NULL
	OR (SELECT 1 FROM {p:records} WHERE grp = '' AND stage IN (0, 3) AND topic = l.topic LIMIT 1) IS NOT NULL),
ready AS MATERIALIZED (SELECT l.line, l.topic, r.* FROM lines AS l CROSS JOIN LATERAL (SELECT {row:line} FROM {p:records} AS r
	WHERE grp = $1::text AND topic = l.topic AND stage = 0 ORDER BY seq LIMIT $4::bigint {free}) AS r
	WHERE l.line NOT IN (SELECT line FROM alone)),
keys AS MATERIALIZED (
	SELECT line, topic, key FROM ready WHERE $6::boolean AND key <> ''
	UNION SELECT line, topic, key FROM logs WHERE $6::boolean AND key <> '')
SELECT 1 AS kind, line, 0::bigint, {none} AS id, '', '', 0::bigint, 0, 0, 0::bigint, 0::bigint, 0, 0, 0, 0, '', '', '', {none}, {none}, false, 0, '' FROM alone
UNION ALL SELECT 3, line, seq, id, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, attempts, claims, expiries, owner, worker, under, step, waits_for, parked, processed_at, processed_by FROM ready
UNION ALL SELECT 4, k.line, s.waiting, {none}, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', {none}, {none}, false, 0, '' FROM keys AS k CROSS JOIN LATERAL (SELECT coalesce((SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1),
	(SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = k.topic AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1), '') AS other,
	coalesce((SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), {last}) AS waiting,
	coalesce((SELECT seq FROM {p:records} WHERE hashtextextended('k' || k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = k.topic AND under = 'k' || k.key ORDER BY seq LIMIT 1), {last}) AS held,
	coalesce((SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = k.topic AND key = k.key ORDER BY seq LIMIT 1), {last}) AS parked,
	least(
		(SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT min(seq) FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended(k.topic, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = k.topic AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)),
		{last}) AS due) AS s
UNION ALL SELECT 5, line, pos, {none}, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', {none}, {none}, flag, 0,
	'' FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, line, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', {none}, {none},
	flag, 0,
	'' FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, line, 0, {none}, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', {none}, {none}, false, 0, ''
	FROM (SELECT n.line, l.key, min(w.owner) AS owner
	FROM lines AS n CROSS JOIN LATERAL {p:log_in_work}(n.topic, n.chain) AS w CROSS JOIN LATERAL {p:log_keys_of}(w) AS l (key)
	WHERE w.owner <> $3::text AND ((n.line, l.key) IN (SELECT line, key FROM keys)) IS TRUE GROUP BY n.line, l.key) AS o

-- name: key_states
-- The states of the keys $4 of the line $1 and $2 for the owner $3, as kind 4 of page.
WITH at AS MATERIALIZED (SELECT {p:now}() AS now)
SELECT 4, 0::bigint, s.waiting, {none}, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', {none}, {none}, false, 0, '' FROM unnest($4::text[]) AS k (key) CROSS JOIN LATERAL (SELECT coalesce((SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1),
	(SELECT owner FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1), '') AS other,
	coalesce((SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), {last}) AS waiting,
	coalesce((SELECT seq FROM {p:records} WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1), {last}) AS held,
	coalesce((SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1), {last}) AS parked,
	least(
		(SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT seq FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT min(seq) FROM {p:records} WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)),
		{last}) AS due) AS s

-- name: whole
-- The state of all rows of a line: another owner with a lease, the first row that waits, and the first that is due and not
-- admitted. $1 and $2 are the line, $3 the owner.
WITH at AS MATERIALIZED (SELECT {p:now}() AS now)
SELECT coalesce((SELECT owner FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND owner <> $3::text
		AND (wake_at > (SELECT now FROM at) OR expires_at = 0 OR expires_at > (SELECT now FROM at)) LIMIT 1), ''),
	coalesce((SELECT seq FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0
		AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), {last}),
	least((SELECT min(seq) FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND (expires_at = 0 OR expires_at > (SELECT now FROM at))),
		(SELECT min(seq) FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND (expires_at = 0 OR expires_at > (SELECT now FROM at))),
		(SELECT min(seq) FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND owner = $3::text AND (expires_at = 0 OR expires_at > (SELECT now FROM at))), {last})

-- name: due
-- The lines of a group that may have something to claim, those first whose rows have been due longest. $1 is the group, $2 are the
-- blockers of notes that do not block, $3 says whether rows that are held under keys count, $4 is now. One search of an
-- index finds each line, so the cost grows with the lines and not with their rows.
WITH RECURSIVE line AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 0 AND topic > line.topic ORDER BY topic LIMIT 1)
	FROM line WHERE topic IS NOT NULL),
later AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND wake_at <> 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND wake_at <> 0 AND topic > later.topic ORDER BY topic LIMIT 1)
	FROM later WHERE topic IS NOT NULL),
held AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' AND topic > held.topic ORDER BY topic LIMIT 1)
	FROM held WHERE topic IS NOT NULL),
noted AS (
	(SELECT topic FROM {p:notes} WHERE grp = $1::text AND true ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:notes} WHERE grp = $1::text AND true AND topic > noted.topic ORDER BY topic LIMIT 1)
	FROM noted WHERE topic IS NOT NULL),
t AS MATERIALIZED (SELECT topic FROM line WHERE topic IS NOT NULL UNION SELECT topic FROM later WHERE topic IS NOT NULL
	UNION SELECT topic FROM held WHERE topic IS NOT NULL UNION SELECT topic FROM noted WHERE topic IS NOT NULL),
since AS (SELECT t.topic, least(
		(SELECT greatest(next_at, created_at) FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 0 ORDER BY seq LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT 0 FROM unnest($2::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM {p:notes}
			WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(t.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM t.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1),
		(SELECT look_at FROM {p:notes} WHERE grp = $1::text AND topic = t.topic AND look_at <> 0 AND look_at <= {now:4} ORDER BY look_at LIMIT 1),
		(SELECT greatest(next_at, created_at) FROM {p:records} WHERE $3::boolean AND grp = $1::text AND topic = t.topic
			AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY seq LIMIT 1)) AS first
	FROM t)
SELECT topic, first FROM since WHERE first IS NOT NULL ORDER BY first, topic

-- name: due_of
-- The same of the lines $5.
WITH t AS MATERIALIZED (SELECT topic FROM unnest($5::text[]) AS u (topic)),
since AS (SELECT t.topic, least(
		(SELECT greatest(next_at, created_at) FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 0 ORDER BY seq LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= {now:4} ORDER BY wake_at LIMIT 1),
		(SELECT 0 FROM unnest($2::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM {p:notes}
			WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(t.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM t.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1),
		(SELECT look_at FROM {p:notes} WHERE grp = $1::text AND topic = t.topic AND look_at <> 0 AND look_at <= {now:4} ORDER BY look_at LIMIT 1),
		(SELECT greatest(next_at, created_at) FROM {p:records} WHERE $3::boolean AND grp = $1::text AND topic = t.topic
			AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY seq LIMIT 1)) AS first
	FROM t)
SELECT topic, first FROM since WHERE first IS NOT NULL ORDER BY first, topic

-- name: lines_of
-- The lines of all rows of the group $1.
WITH RECURSIVE line AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 0 AND topic > line.topic ORDER BY topic LIMIT 1)
	FROM line WHERE topic IS NOT NULL),
later AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND wake_at <> 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND wake_at <> 0 AND topic > later.topic ORDER BY topic LIMIT 1)
	FROM later WHERE topic IS NOT NULL),
held AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 1 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND stage = 1 AND topic > held.topic ORDER BY topic LIMIT 1)
	FROM held WHERE topic IS NOT NULL),
settled AS (
	(SELECT topic FROM {p:records} WHERE grp = $1::text AND stage > 4 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM {p:records} WHERE grp = $1::text AND stage > 4 AND topic > settled.topic ORDER BY topic LIMIT 1)
	FROM settled WHERE topic IS NOT NULL)
SELECT topic FROM line WHERE topic IS NOT NULL UNION SELECT topic FROM later WHERE topic IS NOT NULL
UNION SELECT topic FROM held WHERE topic IS NOT NULL UNION SELECT topic FROM settled WHERE topic IS NOT NULL

-- name: pausing
-- The blockers of the notes of the group $1 that are pauses.
WITH RECURSIVE found AS (
	(SELECT blocker FROM {p:notes} WHERE grp = $1::text AND blocker >= 'p' AND blocker < 'r' ORDER BY blocker LIMIT 1)
	UNION ALL SELECT (SELECT blocker FROM {p:notes} WHERE grp = $1::text AND blocker >= 'p' AND blocker < 'r' AND blocker > found.blocker
		ORDER BY blocker LIMIT 1) FROM found WHERE blocker IS NOT NULL)
SELECT blocker FROM found WHERE blocker IS NOT NULL
