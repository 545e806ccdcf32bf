-- log_ack
SELECT /* outmill log_ack */ "outmill"."log_settle"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying),
	"outmill"."log_open_notes"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying, $6::text);

-- log_after
SELECT /* outmill log_after */ l.topic, l.pos, l.id, (($3::text = '' OR l.key = $3::text) AND ($4::text = '' OR l.tenant_id = $4::text)
	AND ($5::text = '' OR coalesce(l.message_id, l.id::text) = $5::text) AND ($6::text = '' OR l.correlation_id = $6::text)) IS TRUE
FROM "outmill"."log" AS l WHERE l.id >= $1::text::uuid ORDER BY l.id LIMIT $2::bigint;

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
SELECT /* outmill log_any */ u.place FROM unnest($1::text[], $2::text::bigint[], $3::text::bigint[], $4::text[], $5::text::bigint[])
	WITH ORDINALITY AS u (topic, chain, pos, seen, unread, place)
WHERE (SELECT 1 FROM "outmill"."log_in_work"(u.topic, u.chain) LIMIT 1) IS NOT NULL
	OR u.unread = 1 AND "outmill"."log_any"(u.topic, u.chain, u.pos, nullif(u.seen, '')::pg_snapshot, true);

-- log_change_leased
SELECT /* outmill log_change_leased */ "outmill"."log_change_leased"($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text::bit varying, $8::bigint, $9::text, $10::text::bigint[], $11::text::bigint[]);

-- log_change_unread
SELECT /* outmill log_change_unread */ r FROM "outmill"."log_change_unread"($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, nullif($6::text, '')::pg_snapshot, $7::text::bigint[],
	$8::text, $9::text::bigint[], $10::text::bigint[], $11::boolean) AS r;

-- log_check
SELECT /* outmill log_check */ CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer);

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
SELECT /* outmill log_due */ d.topic, d.first FROM (
	SELECT c.topic, CASE WHEN o.odd THEN "outmill"."log_due"(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot, coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"()))) ELSE n.created_at END AS first
	FROM unnest($1::text[], $2::text::bigint[], $3::text::bigint[], $4::text[]) AS c (topic, chain, begin_pos, begin_seen)
	LEFT JOIN LATERAL (SELECT b.pos, cardinality(b.since) > 1 OR b.since[cardinality(b.since)] < b.pos
			AND (pg_snapshot_xmax(b.seen) < b.horizon OR b.bound < b.pos) AS late FROM "outmill"."batches" AS b
		WHERE b.topic = c.topic AND b.chain = c.chain ORDER BY b.n DESC LIMIT 1) AS b ON true
	CROSS JOIN LATERAL (SELECT coalesce(b.pos, c.begin_pos) AS pos, coalesce(b.late, true) AS late OFFSET 0) AS k
	LEFT JOIN LATERAL (SELECT l.created_at FROM "outmill"."log" AS l WHERE l.topic = c.topic AND l.pos > k.pos ORDER BY l.pos LIMIT 1) AS n ON true
	CROSS JOIN LATERAL (SELECT (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM "outmill"."left_rows" AS w WHERE w.topic = c.topic AND w.chain = c.chain LIMIT 1) IS NOT NULL
		OR k.late AND (SELECT 1 FROM "outmill"."log" AS l WHERE l.topic = c.topic AND l.pos <= k.pos LIMIT 1) IS NOT NULL
		OR n.created_at IS NOT NULL AND ((SELECT 1 FROM "outmill"."skips" AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.pos > k.pos LIMIT 1) IS NOT NULL
			OR (SELECT 1 FROM "outmill"."skip_ranges" AS r WHERE r.topic = c.topic AND r.chain = c.chain AND r.to_pos > k.pos LIMIT 1) IS NOT NULL) AS odd OFFSET 0) AS o
) AS d WHERE d.first IS NOT NULL;

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
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_0" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
SELECT later FROM m;

-- log_insert_1
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_1" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
SELECT later FROM m;

-- log_insert_2
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_2" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
SELECT later FROM m;

-- log_insert_one_0
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_0" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
FROM m CROSS JOIN (VALUES ($6::pg_catalog.text::bigint, $7::pg_catalog.text::pg_catalog.uuid,
	$8::pg_catalog.text, $9::pg_catalog.text, $10::pg_catalog.text,
	$11::pg_catalog.text, $12::pg_catalog.text, $13::pg_catalog.text,
	$14::pg_catalog.text, $15::pg_catalog.text, $16::pg_catalog.text,
	$17::pg_catalog.text, $18::pg_catalog.bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_one_1
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_1" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
FROM m CROSS JOIN (VALUES ($6::pg_catalog.text::bigint, $7::pg_catalog.text::pg_catalog.uuid,
	$8::pg_catalog.text, $9::pg_catalog.text, $10::pg_catalog.text,
	$11::pg_catalog.text, $12::pg_catalog.text, $13::pg_catalog.text,
	$14::pg_catalog.text, $15::pg_catalog.text, $16::pg_catalog.text,
	$17::pg_catalog.text, $18::pg_catalog.bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
SELECT later FROM m;

-- log_insert_one_2
WITH /* outmill log_insert */ m AS MATERIALIZED (SELECT CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN "outmill"."now"() OPERATOR(pg_catalog.-) $1::bigint ELSE 0::bigint END AS later,
	CASE WHEN $1::bigint OPERATOR(pg_catalog.<>) 0::bigint THEN (SELECT last FROM "outmill"."events" WHERE only_row) ELSE $4::bigint END AS event FROM "outmill"."meta"
	WHERE only_row AND routes OPERATOR(pg_catalog.=) $2::bigint AND ($1::bigint OPERATOR(pg_catalog.=) 0::bigint
		OR version OPERATOR(pg_catalog.>=) $3::integer AND compatible OPERATOR(pg_catalog.<=) $3::integer AND segment OPERATOR(pg_catalog.=) $5::integer)),
inserted AS (INSERT INTO "outmill"."log_2" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key,
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
FROM m CROSS JOIN (VALUES ($6::pg_catalog.text::bigint, $7::pg_catalog.text::pg_catalog.uuid,
	$8::pg_catalog.text, $9::pg_catalog.text, $10::pg_catalog.text,
	$11::pg_catalog.text, $12::pg_catalog.text, $13::pg_catalog.text,
	$14::pg_catalog.text, $15::pg_catalog.text, $16::pg_catalog.text,
	$17::pg_catalog.text, $18::pg_catalog.bytea, 1)) AS u (created_at, id, topic, key, message_id, tenant_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload, nth) ORDER BY u.nth)
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
SELECT /* outmill log_places */ c.nth, r.pos, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event, coalesce(r.n, -1), coalesce(r.token, 0), r.size,
	r.ordinal, r.lease_until, r.owner, r.worker
FROM (SELECT u.*, coalesce(($6::text[])[u.nth], ($6::text[])[1])::bigint[] AS places FROM unnest($2::text::bigint[], $3::text::bigint[], $4::text[],
		$5::text::boolean[]) WITH ORDINALITY AS u (chain, begin_pos, begin_seen, unread, nth)
		WHERE u.unread OR (SELECT 1 FROM "outmill"."log_in_work"($1::text, u.chain) LIMIT 1) IS NOT NULL OFFSET 0) AS c
	CROSS JOIN LATERAL "outmill"."log_places"($1::text, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot, c.places, c.unread) AS r
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

