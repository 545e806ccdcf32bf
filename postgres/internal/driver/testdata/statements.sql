-- ack
WITH /* outmill ack */ gone AS (DELETE FROM "outmill"."records" AS r USING (SELECT * FROM unnest($1::text::uuid[], $2::text::integer[]) LIMIT $4::bigint) AS u (id, claims)
	WHERE r.id = ANY (ARRAY[u.id]) AND r.stage + 0 = 4 AND r.owner = $3::text AND r.claims = u.claims AND r.step IS NULL
	RETURNING r.grp, r.topic, r.key),
f AS MATERIALIZED (SELECT o.grp, o.topic, o.name
	FROM (SELECT DISTINCT grp, topic, 'k' || key AS name FROM gone WHERE key <> '' ORDER BY 1, 2, 3 LIMIT $4::bigint) AS g
	JOIN "outmill"."notes" AS o ON o.grp = ANY (ARRAY[g.grp]) AND o.topic = g.topic AND o.name = g.name
	WHERE o.blocker <> '' OR o.look_at <> 0 OR o.looks <> 0 FOR UPDATE OF o SKIP LOCKED)
UPDATE "outmill"."notes" AS n SET blocker = '', look_at = 0, looks = 0 FROM f
WHERE n.grp = ANY (ARRAY[f.grp]) AND n.topic = f.topic AND n.name = f.name;

-- acked_steps
SELECT /* outmill acked_steps */ u.id FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::integer[]) LIMIT $4::bigint) AS u (id, claims)
	LEFT JOIN "outmill"."records" AS r ON r.id = ANY (ARRAY[u.id])
	AND r.stage + 0 = 4 AND r.owner = $3::text AND r.claims = u.claims
WHERE r.id IS NULL OR r.step IS NOT NULL;

-- add
INSERT /* outmill add */ INTO "outmill"."entries" (kind, key, at, made_at, value) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text)
ON CONFLICT (kind, key) DO NOTHING;

-- adopt
WITH /* outmill adopt */ first AS MATERIALIZED (SELECT id FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = $1::text ORDER BY seq LIMIT $3::bigint),
waiting AS MATERIALIZED (SELECT id FROM first ORDER BY id LIMIT $3::bigint)
UPDATE "outmill"."records" AS r SET grp = $2::text FROM waiting
WHERE r.id = ANY (ARRAY[waiting.id]) AND r.grp || '' = '' AND r.stage + 0 IN (0, 3);

-- after
SELECT /* outmill after */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by, r.stage = 1 AND r.under >= 'k' AND r.under < 'l' AND (SELECT 1 FROM "outmill"."notes" AS n
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> '') IS NOT NULL FROM "outmill"."records" AS r WHERE r.id > $1::text::uuid ORDER BY r.id LIMIT $2::bigint;

-- all of change
WITH written AS (UPDATE /* outmill change */ "outmill"."records" AS r SET stage = u.to_stage, wake_at = u.wake_at, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts,
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
RETURNING r.id) SELECT "outmill"."demand"(count(*), $23::bigint) FROM written;

-- all of delete
WITH written AS (DELETE /* outmill delete */ FROM "outmill"."records" AS r
USING (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard)
WHERE r.id = ANY (ARRAY[u.id]) AND (u.guard = '*' OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard)
RETURNING r.id) SELECT "outmill"."demand"(count(*), $7::bigint) FROM written;

-- all of extend
WITH written AS (UPDATE /* outmill extend */ "outmill"."records" AS r SET wake_at = u.until
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $7::text::bigint[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, until)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id) SELECT "outmill"."demand"(count(*), $8::bigint) FROM written;

-- all of lease
WITH written AS (UPDATE /* outmill lease */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + u.attempts, expiries = r.expiries + u.expiries, under = ''
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $10::text::integer[],
	$11::text::integer[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, attempts, expiries)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id) SELECT "outmill"."demand"(count(*), $12::bigint) FROM written;

-- all of lease_same
WITH written AS (UPDATE /* outmill lease_same */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + $10::integer, expiries = r.expiries + $11::integer, under = ''
WHERE r.id = ANY ($1::text::uuid[]) AND r.stage = $2::smallint AND r.wake_at = $3::bigint AND r.claims = $4::integer AND r.owner = $5::text
	AND coalesce(r.step::text, '') || r.grp = $6::text
RETURNING r.id) SELECT "outmill"."demand"(count(*), $12::bigint) FROM written;

-- any_order
SELECT /* outmill any_order */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint ) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS leased;

-- any_order, with locks
SELECT /* outmill any_order */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS leased;

-- attach
UPDATE /* outmill attach */ "outmill"."records" SET step = $2::text::uuid, joins = coalesce(joins || ',', '') || $3::text WHERE id = ANY ($1::text::uuid[]);

-- borrow
SELECT /* outmill borrow */ pg_catalog.set_config('outmill.' OPERATOR(pg_catalog.||) s.name, pg_catalog.current_setting(s.name), true),
	pg_catalog.set_config(s.name, s.value, true)
FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('enable_seqscan', 'off'), ('enable_indexscan', 'on'), ('enable_nestloop', 'on'),
	('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'),
	('enable_mergejoin', 'off'), ('enable_material', 'off'), ('jit', 'off'), ('bytea_output', 'hex'), ('plan_cache_mode', 'force_generic_plan')) AS s (name, value);

-- bump
UPDATE /* outmill bump */ "outmill"."meta" SET routes = CASE WHEN $1::bigint > 0 THEN greatest(routes + 1, "outmill"."now"()) ELSE routes END,
	pauses = CASE WHEN $2::bigint > 0 THEN greatest(pauses + 1, "outmill"."now"()) ELSE pauses END RETURNING routes, pauses;

-- by_done
SELECT /* outmill by_done */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage - 5 = 0 AND processed_at <= $2::bigint ORDER BY processed_at, seq LIMIT $1::bigint ;

-- by_done, with locks
SELECT /* outmill by_done */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage - 5 = 0 AND processed_at <= $2::bigint ORDER BY processed_at, seq LIMIT $1::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_ended
SELECT /* outmill by_ended */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage - 4 = 0 AND wake_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT $1::bigint ;

-- by_ended, with locks
SELECT /* outmill by_ended */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage - 4 = 0 AND wake_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT $1::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_expiry
SELECT /* outmill by_expiry */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE expires_at <> 0 AND expires_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())) AND stage < 5 AND (stage <> 4 OR wake_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())))
ORDER BY expires_at, seq LIMIT $1::bigint ;

-- by_expiry, with locks
SELECT /* outmill by_expiry */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE expires_at <> 0 AND expires_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())) AND stage < 5 AND (stage <> 4 OR wake_at <= coalesce(nullif($2::bigint, 0), (SELECT "outmill"."now"())))
ORDER BY expires_at, seq LIMIT $1::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_held
SELECT /* outmill by_held */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $3::bigint ;

-- by_held, with locks
SELECT /* outmill by_held */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_key
SELECT /* outmill by_key */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage < 4 AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint ;

-- by_key, with locks
SELECT /* outmill by_key */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage < 4 AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_keyed
SELECT /* outmill by_keyed */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l'
ORDER BY seq LIMIT $3::bigint ;

-- by_keyed, with locks
SELECT /* outmill by_keyed */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l'
ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_later
SELECT /* outmill by_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $5::smallint AND wake_at <> 0 AND wake_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
ORDER BY wake_at, seq LIMIT $3::bigint ;

-- by_later, with locks
SELECT /* outmill by_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $5::smallint AND wake_at <> 0 AND wake_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_line
SELECT /* outmill by_line */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0 ORDER BY seq LIMIT $3::bigint ;

-- by_line, with locks
SELECT /* outmill by_line */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0 ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_open
SELECT /* outmill by_open */ * FROM (SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage = 0 LIMIT $1::bigint) AS ready
	UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE stage = 1 LIMIT $1::bigint) AS held
	UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE wake_at <> 0 LIMIT $1::bigint) AS later) AS all_of_them LIMIT $1::bigint;

-- by_parked
SELECT /* outmill by_parked */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint ;

-- by_parked, with locks
SELECT /* outmill by_parked */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_paused
SELECT /* outmill by_paused */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'l'
ORDER BY seq LIMIT $3::bigint ;

-- by_paused, with locks
SELECT /* outmill by_paused */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'l'
ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_place
SELECT /* outmill by_place */ * FROM (SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint ) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1
	ORDER BY seq LIMIT $3::bigint ) AS held) AS both_of_them ORDER BY seq LIMIT $3::bigint;

-- by_place, with locks
SELECT /* outmill by_place */ * FROM (SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1
	ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS held) AS both_of_them ORDER BY seq LIMIT $3::bigint;

-- by_stage_later
SELECT /* outmill by_stage_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND wake_at <> 0
ORDER BY wake_at, seq LIMIT $3::bigint ;

-- by_stage_later, with locks
SELECT /* outmill by_stage_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND wake_at <> 0
ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_stage_settled
SELECT /* outmill by_stage_settled */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND stage > 4
ORDER BY seq LIMIT $3::bigint ;

-- by_stage_settled, with locks
SELECT /* outmill by_stage_settled */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND stage > 4
ORDER BY seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_step
SELECT /* outmill by_step */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE step = $2::text::uuid ORDER BY seq LIMIT $1::bigint ;

-- by_step, with locks
SELECT /* outmill by_step */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE step = $2::text::uuid ORDER BY seq LIMIT $1::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_unrouted
SELECT /* outmill by_unrouted */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = '' AND stage IN (0, 3) AND topic = $1::text ORDER BY seq LIMIT $2::bigint ;

-- by_unrouted, with locks
SELECT /* outmill by_unrouted */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = '' AND stage IN (0, 3) AND topic = $1::text ORDER BY seq LIMIT $2::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- by_waiter
SELECT /* outmill by_waiter */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE waits_for = $2::text::uuid AND stage IN (2, 3) AND wake_at > coalesce(nullif($3::bigint, 0), (SELECT "outmill"."now"())) ORDER BY seq LIMIT $1::bigint ;

-- by_waiter, with locks
SELECT /* outmill by_waiter */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE waits_for = $2::text::uuid AND stage IN (2, 3) AND wake_at > coalesce(nullif($3::bigint, 0), (SELECT "outmill"."now"())) ORDER BY seq LIMIT $1::bigint FOR NO KEY UPDATE OF r SKIP LOCKED;

-- change
UPDATE /* outmill change */ "outmill"."records" AS r SET stage = u.to_stage, wake_at = u.wake_at, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts,
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
RETURNING r.id;

-- cluster_adapt
SELECT /* outmill cluster_adapt */ "outmill"."segment_adapt"($1::text[], $2::bigint[], $3::bigint[], $4::text[]);

-- cluster_alone
LOCK /* outmill cluster_alone */ TABLE "outmill"."log_0", "outmill"."log_1", "outmill"."log_2", "outmill"."batches", "outmill"."ended", "outmill"."left_rows", "outmill"."skips", "outmill"."skip_ranges" IN ACCESS EXCLUSIVE MODE;

-- cluster_lines
SELECT /* outmill cluster_lines */ l.topic, max(max(l.pos)) OVER (), (SELECT s.last_value FROM "outmill"."records_seq_seq" AS s) FROM "outmill"."log" AS l GROUP BY l.topic;

-- cluster_now
SELECT /* outmill cluster_now */ s.xmin = s.noted_by::xid AND ('' IN (s.identity, n.identity) OR s.identity = n.identity) FROM "outmill"."server" AS s CROSS JOIN "outmill"."server_now"() AS n (identity);

-- cluster_set
UPDATE /* outmill cluster_set */ "outmill"."server" SET identity = "outmill"."server_now"(), noted_by = pg_current_xact_id();

-- coming
SELECT /* outmill coming */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS leased;

-- coming, with locks
SELECT /* outmill coming */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint FOR NO KEY UPDATE OF r SKIP LOCKED) AS leased;

-- content of lease
WITH written AS (UPDATE /* outmill lease */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + u.attempts, expiries = r.expiries + u.expiries, under = ''
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $10::text::integer[],
	$11::text::integer[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, attempts, expiries)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $13::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $13::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $13::integer & 4 <> 0 THEN r.history END),
checked AS MATERIALIZED (SELECT "outmill"."demand"(count(*), $12::bigint) FROM written)
SELECT written.* FROM checked LEFT JOIN written ON true;

-- content of lease_same
WITH written AS (UPDATE /* outmill lease_same */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + $10::integer, expiries = r.expiries + $11::integer, under = ''
WHERE r.id = ANY ($1::text::uuid[]) AND r.stage = $2::smallint AND r.wake_at = $3::bigint AND r.claims = $4::integer AND r.owner = $5::text
	AND coalesce(r.step::text, '') || r.grp = $6::text
RETURNING r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $13::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $13::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $13::integer & 4 <> 0 THEN r.history END),
checked AS MATERIALIZED (SELECT "outmill"."demand"(count(*), $12::bigint) FROM written)
SELECT written.* FROM checked LEFT JOIN written ON true;

-- count of any_order
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill any_order */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint ) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS leased) AS found;

-- count of by_held
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_held */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_key
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($6::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($6::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_key */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage < 4 AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_keyed
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_keyed */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l'
ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_later
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $5::smallint AND wake_at <> 0 AND wake_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
ORDER BY wake_at, seq LIMIT $3::bigint ) AS found;

-- count of by_line
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_line */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0 ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_parked
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($6::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($6::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_parked */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE lane = hashtextextended($5::text, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND seq > $4::bigint
	AND grp = $1::text AND topic = $2::text AND key = $5::text
ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_paused
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_paused */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage - 1 = 0 AND under >= 'l'
ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of by_place
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_place */ * FROM (SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 0
	ORDER BY seq LIMIT $3::bigint ) AS ready
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 1
	ORDER BY seq LIMIT $3::bigint ) AS held) AS both_of_them ORDER BY seq LIMIT $3::bigint) AS found;

-- count of by_stage_later
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_stage_later */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND wake_at <> 0
ORDER BY wake_at, seq LIMIT $3::bigint ) AS found;

-- count of by_stage_settled
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($5::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill by_stage_settled */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = $4::smallint AND stage > 4
ORDER BY seq LIMIT $3::bigint ) AS found;

-- count of coming
SELECT count(*), coalesce(sum((next_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) AND stage <> 4)::integer), 0), coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())))), 0)
FROM (SELECT /* outmill coming */ * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS waiting
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS delayed
UNION ALL SELECT * FROM (SELECT r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by FROM "outmill"."records" AS r WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"()))
	ORDER BY wake_at, seq LIMIT $3::bigint ) AS leased) AS found;

-- count_entries
SELECT /* outmill count_entries */ (SELECT count(*) FROM "outmill"."entries" AS e WHERE e.kind = u.kind) FROM unnest($1::text[]) WITH ORDINALITY AS u (kind, place) ORDER BY u.place;

-- delete
DELETE /* outmill delete */ FROM "outmill"."records" AS r
USING (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard)
WHERE r.id = ANY (ARRAY[u.id]) AND (u.guard = '*' OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard)
RETURNING r.id;

-- delete_entries
DELETE /* outmill delete_entries */ FROM "outmill"."entries" AS e USING (SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[]) LIMIT cardinality($1::text[])) AS u (kind, key, at)
WHERE e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key AND (u.at = 0 OR e.at = u.at);

-- drop_notes
DELETE /* outmill drop_notes */ FROM "outmill"."notes" AS n USING (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text::integer[], $5::text::bigint[])
	LIMIT cardinality($1::text[])) AS u (grp, topic, name, looks, writer)
WHERE n.grp = ANY (ARRAY[u.grp]) AND n.topic = u.topic AND n.name = u.name AND n.looks = u.looks
	AND (u.writer = 0 OR n.xmin::text::bigint = u.writer OR n.xmin = pg_current_xact_id()::xid);

-- due
WITH /* outmill due */ RECURSIVE line AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 0 AND topic > line.topic ORDER BY topic LIMIT 1)
	FROM line WHERE topic IS NOT NULL),
later AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND wake_at <> 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND wake_at <> 0 AND topic > later.topic ORDER BY topic LIMIT 1)
	FROM later WHERE topic IS NOT NULL),
held AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage - 1 = 0 AND under >= 'k' AND under < 'l' AND topic > held.topic ORDER BY topic LIMIT 1)
	FROM held WHERE topic IS NOT NULL),
noted AS (
	(SELECT topic FROM "outmill"."notes" WHERE grp = $1::text AND true ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."notes" WHERE grp = $1::text AND true AND topic > noted.topic ORDER BY topic LIMIT 1)
	FROM noted WHERE topic IS NOT NULL),
t AS MATERIALIZED (SELECT topic FROM line WHERE topic IS NOT NULL UNION SELECT topic FROM later WHERE topic IS NOT NULL
	UNION SELECT topic FROM held WHERE topic IS NOT NULL UNION SELECT topic FROM noted WHERE topic IS NOT NULL),
since AS (SELECT t.topic, least(
		(SELECT greatest(next_at, created_at) FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 0 ORDER BY seq LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT 0 FROM unnest($2::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM "outmill"."notes"
			WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(t.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM t.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1),
		(SELECT look_at FROM "outmill"."notes" WHERE grp = $1::text AND topic = t.topic AND look_at <> 0 AND look_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY look_at LIMIT 1),
		(SELECT greatest(next_at, created_at) FROM "outmill"."records" WHERE $3::boolean AND grp = $1::text AND topic = t.topic
			AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY seq LIMIT 1)) AS first
	FROM t)
SELECT topic, first FROM since WHERE first IS NOT NULL ORDER BY first, topic;

-- due_of
WITH /* outmill due_of */ t AS MATERIALIZED (SELECT topic FROM unnest($5::text[]) AS u (topic)),
since AS (SELECT t.topic, least(
		(SELECT greatest(next_at, created_at) FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 0 ORDER BY seq LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 2 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 3 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT wake_at FROM "outmill"."records" WHERE grp = $1::text AND topic = t.topic AND stage = 4 AND wake_at <> 0 AND wake_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY wake_at LIMIT 1),
		(SELECT 0 FROM unnest($2::text[]) AS f (blocker) CROSS JOIN LATERAL (SELECT 1 FROM "outmill"."notes"
			WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended(t.topic, hashtextextended($1::text, 0))
			AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM t.topic AND blocker = f.blocker LIMIT 1) AS n LIMIT 1),
		(SELECT look_at FROM "outmill"."notes" WHERE grp = $1::text AND topic = t.topic AND look_at <> 0 AND look_at <= coalesce(nullif($4::bigint, 0), (SELECT "outmill"."now"())) ORDER BY look_at LIMIT 1),
		(SELECT greatest(next_at, created_at) FROM "outmill"."records" WHERE $3::boolean AND grp = $1::text AND topic = t.topic
			AND stage - 1 = 0 AND under >= 'k' AND under < 'l' ORDER BY seq LIMIT 1)) AS first
	FROM t)
SELECT topic, first FROM since WHERE first IS NOT NULL ORDER BY first, topic;

-- entries
SELECT /* outmill entries */ e.kind, e.key, e.at, e.made_at, e.value FROM (SELECT * FROM unnest($1::text[], $2::text[]) LIMIT cardinality($1::text[])) AS u (kind, key)
JOIN "outmill"."entries" AS e ON e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key;

-- entries_locked
SELECT /* outmill entries_locked */ e.kind, e.key, e.at, e.made_at, e.value FROM (SELECT * FROM unnest($1::text[], $2::text[]) LIMIT cardinality($1::text[])) AS u (kind, key)
JOIN "outmill"."entries" AS e ON e.kind = ANY (ARRAY[u.kind]) AND e.key = u.key FOR UPDATE OF e;

-- extend
UPDATE /* outmill extend */ "outmill"."records" AS r SET wake_at = u.until
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $7::text::bigint[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, until)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id;

-- find
SELECT /* outmill find */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by, r.stage = 1 AND r.under >= 'k' AND r.under < 'l' AND (SELECT 1 FROM "outmill"."notes" AS n
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> '') IS NOT NULL FROM "outmill"."records" AS r WHERE r.id = ANY ($1::text::uuid[]);

-- find_locked
SELECT /* outmill find_locked */ r.seq, r.id, r.grp, r.topic, r.key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, coalesce(r.step, '00000000-0000-0000-0000-000000000000'::uuid) AS step, coalesce(r.waits_for, '00000000-0000-0000-0000-000000000000'::uuid) AS waits_for, r.parked, r.processed_at, r.processed_by, r.stage = 1 AND r.under >= 'k' AND r.under < 'l' AND (SELECT 1 FROM "outmill"."notes" AS n
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> '') IS NOT NULL FROM "outmill"."records" AS r WHERE r.id = $1::text::uuid FOR NO KEY UPDATE OF r;

-- forget
DELETE /* outmill forget */ FROM "outmill"."notes" WHERE grp = $1::text;

-- giveback
SELECT /* outmill giveback */ pg_catalog.set_config(s.name, pg_catalog.current_setting('outmill.' OPERATOR(pg_catalog.||) s.name), true)
FROM (VALUES ('enable_seqscan'), ('enable_indexscan'), ('enable_nestloop'), ('enable_bitmapscan'), ('enable_hashjoin'), ('enable_mergejoin'), ('enable_material'), ('jit'), ('bytea_output'), ('plan_cache_mode'),
	('search_path')) AS s (name);

-- insert
WITH /* outmill insert */ m AS MATERIALIZED (SELECT CASE WHEN $24::bigint <> 0 THEN "outmill"."now"() - $24::bigint ELSE 0 END AS later FROM "outmill"."meta"
	WHERE $24::bigint = 0 OR routes = $25::bigint AND version >= $26::integer AND compatible <= $26::integer),
inserted AS (INSERT INTO "outmill"."records" (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for,
	message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload)
SELECT u.id, coalesce(u.grp, ''), u.topic, coalesce(u.key, ''), coalesce(u.tenant_id, ''), u.created_at + m.later, u.size, u.stage, CASE WHEN u.wake_at <> 0 THEN u.wake_at + m.later ELSE 0 END,
	u.next_at + m.later, CASE WHEN u.expires_at <> 0 THEN u.expires_at + m.later ELSE 0 END, u.due_at + m.later,
	nullif(u.step, '00000000-0000-0000-0000-000000000000'::uuid), nullif(u.waits_for, '00000000-0000-0000-0000-000000000000'::uuid), u.message_id,
	nullif(u.correlation_id, ''), nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''),
	nullif(u.joins, ''), nullif(substr(u.metadata, 2), ''), CASE WHEN u.metadata LIKE '+%' THEN u.payload END
FROM m CROSS JOIN unnest($1::text::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text::bigint[], $7::text::bigint[], $8::text::smallint[],
	$9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::uuid[], $14::text::uuid[], $15::text[],
	$16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::bytea[])
AS u (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload))
SELECT later FROM m;

-- key_states
WITH /* outmill key_states */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now)
SELECT 4, 0::bigint, s.waiting, '00000000-0000-0000-0000-000000000000'::uuid, k.key, '', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, false, 0, '' FROM unnest($4::text[]) AS k (key) CROSS JOIN LATERAL (SELECT coalesce((SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner < $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1),
	(SELECT owner FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner > $3::text AND grp = $1::text AND topic = $2::text AND key = k.key
		AND (wake_at > (SELECT now FROM at) OR (expires_at = 0 OR expires_at > (SELECT now FROM at))) LIMIT 1), '') AS other,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS waiting,
	coalesce((SELECT seq FROM "outmill"."records" WHERE hashtextextended('k' || k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) =
			hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))) AND 1 - stage = 0
		AND grp = $1::text AND topic = $2::text AND under = 'k' || k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS held,
	coalesce((SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND parked AND grp = $1::text AND topic = $2::text AND key = k.key ORDER BY seq LIMIT 1), 9223372036854775807::bigint) AS parked,
	least(
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 3 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT seq FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 4 = -1 AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at) ORDER BY seq LIMIT 1),
		(SELECT min(seq) FROM "outmill"."records" WHERE lane = hashtextextended(k.key, hashtextextended($2::text, hashtextextended($1::text, 0))) AND stage - 5 = -1 AND owner = $3::text AND grp = $1::text AND topic = $2::text AND key = k.key AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) AND wake_at <= (SELECT now FROM at)),
		9223372036854775807::bigint) AS due) AS s;

-- lease
UPDATE /* outmill lease */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + u.attempts, expiries = r.expiries + u.expiries, under = ''
FROM (SELECT * FROM unnest($1::text::uuid[], $2::text::smallint[], $3::text::bigint[], $4::text::integer[], $5::text[], $6::text[], $10::text::integer[],
	$11::text::integer[])
	LIMIT cardinality($5::text[])) AS u (id, stage, wake, claims, owner, guard, attempts, expiries)
WHERE r.id = ANY (ARRAY[u.id]) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner
	AND coalesce(r.step::text, '') || r.grp = u.guard
RETURNING r.id;

-- lease_same
UPDATE /* outmill lease_same */ "outmill"."records" AS r SET stage = 4, wake_at = $7::bigint, owner = $8::text, worker = $9::text, claims = r.claims + 1,
	attempts = r.attempts + $10::integer, expiries = r.expiries + $11::integer, under = ''
WHERE r.id = ANY ($1::text::uuid[]) AND r.stage = $2::smallint AND r.wake_at = $3::bigint AND r.claims = $4::integer AND r.owner = $5::text
	AND coalesce(r.step::text, '') || r.grp = $6::text
RETURNING r.id;

-- lines_of
WITH /* outmill lines_of */ RECURSIVE line AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 0 AND topic > line.topic ORDER BY topic LIMIT 1)
	FROM line WHERE topic IS NOT NULL),
later AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND wake_at <> 0 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND wake_at <> 0 AND topic > later.topic ORDER BY topic LIMIT 1)
	FROM later WHERE topic IS NOT NULL),
held AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 1 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage = 1 AND topic > held.topic ORDER BY topic LIMIT 1)
	FROM held WHERE topic IS NOT NULL),
settled AS (
	(SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage > 4 ORDER BY topic LIMIT 1)
	UNION ALL SELECT (SELECT topic FROM "outmill"."records" WHERE grp = $1::text AND stage > 4 AND topic > settled.topic ORDER BY topic LIMIT 1)
	FROM settled WHERE topic IS NOT NULL)
SELECT topic FROM line WHERE topic IS NOT NULL UNION SELECT topic FROM later WHERE topic IS NOT NULL
UNION SELECT topic FROM held WHERE topic IS NOT NULL UNION SELECT topic FROM settled WHERE topic IS NOT NULL;

-- load
SELECT /* outmill load */ r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $2::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $2::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $2::integer & 4 <> 0 THEN r.history END FROM "outmill"."records" AS r WHERE r.id = ANY ($1::text::uuid[]);

-- lock
SELECT /* outmill lock */ pg_advisory_xact_lock($1::bigint);

-- lock_all
SELECT /* outmill lock_all */ pg_advisory_xact_lock(u.line) FROM unnest($1::text::bigint[]) AS u (line);

-- lock_rows
SELECT /* outmill lock_rows */ count(*) FROM (SELECT 1 FROM "outmill"."records" AS r WHERE r.id = ANY ($1::text::uuid[]) ORDER BY r.id FOR NO KEY UPDATE OF r) AS locked;

-- log_alone
SELECT /* outmill log_alone */ 1 FROM "outmill"."events" FOR UPDATE;

-- log_append_0
INSERT /* outmill log_append */ INTO "outmill"."log_0" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
SELECT u.created_at, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(u.metadata, ''), u.payload
FROM unnest($1::bigint[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
	$12::text[], $13::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate,
	dedup_key, metadata, payload, nth) ORDER BY u.nth;

-- log_append_1
INSERT /* outmill log_append */ INTO "outmill"."log_1" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
SELECT u.created_at, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(u.metadata, ''), u.payload
FROM unnest($1::bigint[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
	$12::text[], $13::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate,
	dedup_key, metadata, payload, nth) ORDER BY u.nth;

-- log_append_2
INSERT /* outmill log_append */ INTO "outmill"."log_2" (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
SELECT u.created_at, u.id, u.topic, nullif(u.key, ''), nullif(u.message_id, ''), nullif(u.tenant_id, ''), nullif(u.correlation_id, ''),
	nullif(u.causation_id, ''), nullif(u.traceparent, ''), nullif(u.tracestate, ''), nullif(u.dedup_key, ''), nullif(u.metadata, ''), u.payload
FROM unnest($1::bigint[], $2::text[]::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
	$12::text[], $13::bytea[]) WITH ORDINALITY AS u (created_at, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate,
	dedup_key, metadata, payload, nth) ORDER BY u.nth;

-- log_claim
SELECT /* outmill log_claim */ coalesce(c.number, 0), coalesce(c.given, -1), coalesce(c.until, 0) FROM "outmill"."log_claim"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot,
	$5::integer, $6::bigint, $7::bigint, $8::text, $9::text, $10::text, $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::bigint, $16::boolean,
	$17::boolean, $18::boolean, $19::text[], $20::text[], $21::text[], $22::text[], $23::bigint) AS c;

-- log_claimed
SELECT /* outmill log_claimed */ l.pos, l.event, l.created_at, l.id, l.key, l.message_id, l.tenant_id, l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key,
	l.metadata, l.payload
FROM (SELECT b.token, b.from_pos, b.pos, b.seen FROM "outmill"."batches" AS b WHERE b.topic = $1::text AND b.chain = $2::bigint ORDER BY b.n DESC LIMIT 1) AS b
	CROSS JOIN LATERAL (SELECT g.* FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos > b.from_pos AND g.pos <= b.pos
		AND pg_visible_in_snapshot(g.xid, b.seen) ORDER BY g.pos OFFSET 0) AS l
WHERE b.token = $3::bigint;

-- log_ended
SELECT /* outmill log_ended */ w.n, w.token, w.size, w.ordinal, w.pos, l.id, l.event FROM "outmill"."log_leased"($1::text, $2::bigint) AS w
	CROSS JOIN LATERAL (SELECT g.id, g.event FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos = w.pos OFFSET 0) AS l
WHERE w.lease_until <= $3::bigint ORDER BY w.n, w.pos;

-- log_event
UPDATE /* outmill log_event */ "outmill"."events" SET last = last + $1::bigint, stamp = $2::bigint RETURNING last - $1::bigint + 1;

-- log_extend
SELECT /* outmill log_extend */ "outmill"."log_extend"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint);

-- log_hold
SELECT /* outmill log_hold */ "outmill"."now"() FROM "outmill"."events" FOR SHARE;

-- log_mark
SELECT /* outmill log_mark */ s.last_value, pg_current_snapshot()::text FROM "outmill"."records_seq_seq" AS s;

-- log_move_leased
INSERT /* outmill log_move_leased */ INTO "outmill"."records" (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, owner, worker, claims,
	message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, $7::text, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 4, b.lease_until,
	l.created_at, 0, l.created_at, b.owner, b.worker, 1, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id,
	l.traceparent, l.tracestate, l.dedup_key, l.metadata, l.payload
FROM "outmill"."batches" AS b CROSS JOIN unnest($5::bigint[], $6::text[]::uuid[]) AS u (pos, id)
	CROSS JOIN LATERAL (SELECT g.*, "outmill"."log_size"(g) AS size FROM "outmill"."log" AS g WHERE g.topic = b.topic AND g.pos = u.pos OFFSET 0) AS l
WHERE b.topic = $1::text AND b.chain = $2::bigint AND b.n = $3::bigint AND b.token = $4::bigint;

-- log_move_unread
INSERT /* outmill log_move_unread */ INTO "outmill"."records" (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
SELECT l.pos, u.id, $4::text, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 0, 0, l.created_at,
	0, l.created_at, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key, l.metadata, l.payload
FROM unnest($2::bigint[], $3::text[]::uuid[]) AS u (pos, id)
	CROSS JOIN LATERAL (SELECT g.*, "outmill"."log_size"(g) AS size FROM "outmill"."log" AS g WHERE g.topic = $1::text AND g.pos = u.pos OFFSET 0) AS l;

-- log_others
SELECT /* outmill log_others */ k.key, min(b.owner) FROM "outmill"."log_in_work"($1::text, $2::bigint) AS b CROSS JOIN LATERAL "outmill"."log_keys_of"(b) AS k (key)
WHERE b.owner <> $3::text AND k.key = ANY ($4::text[]) GROUP BY k.key;

-- log_page
SELECT /* outmill log_page */ r.pos, r.flag, r.seen, r.fresh, r.id, r.created_at, r.key, r.tenant_id, r.size, r.event
FROM "outmill"."log_page"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint) AS r
WHERE (SELECT stamp FROM "outmill"."events") = $6::bigint;

-- log_rows
SELECT /* outmill log_rows */ r.ordinal, r.pos FROM "outmill"."batches" AS b CROSS JOIN LATERAL "outmill"."log_rows_of"(b) AS r
WHERE b.topic = $1::text AND b.chain = $2::bigint AND b.n = $3::bigint ORDER BY r.ordinal;

-- log_settle
SELECT /* outmill log_settle */ "outmill"."log_settle"($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text::bit varying);

-- log_skip
SELECT /* outmill log_skip */ "outmill"."log_skip"($1::text, $2::bigint, $3::bigint[]);

-- log_stamp
SELECT /* outmill log_stamp */ stamp = $1::bigint FROM "outmill"."events";

-- log_tables
LOCK /* outmill log_tables */ TABLE "outmill"."log", "outmill"."batches", "outmill"."ended", "outmill"."left_rows", "outmill"."skips", "outmill"."skip_ranges" IN ACCESS SHARE MODE;

-- log_take
SELECT /* outmill log_take */ "outmill"."log_take"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::text::pg_snapshot,
	$6::bigint, $7::bigint, $8::bigint[], $9::boolean, $10::bigint[], $11::bigint, $12::bigint, $13::bigint, $14::text, $15::text);

-- log_unread
SELECT /* outmill log_unread */ r.pos FROM "outmill"."log_unread"($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint[]) AS r (pos)
WHERE (SELECT stamp FROM "outmill"."events") = $6::bigint;

-- notify
SELECT /* outmill notify */ pg_catalog.pg_notify($1::text, $2::text) WHERE pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5;

-- old
SELECT /* outmill old */ kind, key, at, made_at, value FROM "outmill"."entries" WHERE kind = $1::text AND at <> 0 AND at <= $2::bigint ORDER BY at, key LIMIT $3::bigint ;

-- old, with locks
SELECT /* outmill old */ kind, key, at, made_at, value FROM "outmill"."entries" WHERE kind = $1::text AND at <> 0 AND at <= $2::bigint ORDER BY at, key LIMIT $3::bigint FOR NO KEY UPDATE SKIP LOCKED;

-- open_notes
WITH /* outmill open_notes */ f AS MATERIALIZED (SELECT o.grp, o.topic, o.name FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
		LIMIT cardinality($1::text[])) AS u (grp, topic, name)
	JOIN "outmill"."notes" AS o ON o.grp = ANY (ARRAY[u.grp]) AND o.topic = u.topic AND o.name = u.name
	WHERE o.blocker <> '' OR o.look_at <> 0 OR o.looks <> 0 FOR UPDATE OF o SKIP LOCKED)
UPDATE "outmill"."notes" AS n SET blocker = '', look_at = 0, looks = 0 FROM f
WHERE n.grp = ANY (ARRAY[f.grp]) AND n.topic = f.topic AND n.name = f.name;

-- page
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
keys AS (SELECT key FROM held UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
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
		9223372036854775807::bigint) AS due) AS s WHERE $6::boolean AND k.key <> '';

-- page, with locks
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
keys AS (SELECT key FROM held UNION SELECT key FROM ready UNION SELECT substr(name, 2) FROM notes WHERE name >= 'k' AND name < 'l')
SELECT 0 AS kind, 0::bigint AS line, (SELECT now FROM at), '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, (SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) AND topic = $2::text LIMIT 1) IS NOT NULL, 0, ''
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
		9223372036854775807::bigint) AS due) AS s WHERE $6::boolean AND k.key <> '';

-- page_with_log
WITH /* outmill page_with_log */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
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
	FROM (SELECT l.key, min(w.owner) AS owner FROM "outmill"."log_in_work"($2::text, $7::bigint) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key) AS o;

-- page_with_log, with locks
WITH /* outmill page_with_log */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now),
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
	FROM (SELECT l.key, min(w.owner) AS owner FROM "outmill"."log_in_work"($2::text, $7::bigint) AS w CROSS JOIN LATERAL "outmill"."log_keys_of"(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key) AS o;

-- pages
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

-- pages, with locks
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

-- patience
SELECT /* outmill patience */ set_config('idle_in_transaction_session_timeout', '10min', true);

-- pausing
WITH /* outmill pausing */ RECURSIVE found AS (
	(SELECT blocker FROM "outmill"."notes" WHERE grp = $1::text AND blocker >= 'p' AND blocker < 'r' ORDER BY blocker LIMIT 1)
	UNION ALL SELECT (SELECT blocker FROM "outmill"."notes" WHERE grp = $1::text AND blocker >= 'p' AND blocker < 'r' AND blocker > found.blocker
		ORDER BY blocker LIMIT 1) FROM found WHERE blocker IS NOT NULL)
SELECT blocker FROM found WHERE blocker IS NOT NULL;

-- put
INSERT /* outmill put */ INTO "outmill"."entries" (kind, key, at, made_at, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[])
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value;

-- put_note
SELECT /* outmill put_note */ "outmill"."put_note"($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::bigint, $5::pg_catalog.text, $6::pg_catalog.text::pg_catalog.uuid,
	$7::pg_catalog.text, $8::integer, $9::pg_catalog.text, $10::bigint, $11::bigint, $12::bigint, $13::integer);

-- put_notes
INSERT /* outmill put_notes */ INTO "outmill"."notes" AS n (grp, topic, name, blocker, head, look_at, looks)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text::bigint[], $6::text::bigint[], $7::text::integer[])
ON CONFLICT (grp, topic, name) DO UPDATE SET blocker = excluded.blocker, look_at = excluded.look_at,
	looks = CASE WHEN n.name = excluded.blocker THEN n.looks + 1 ELSE excluded.looks END,
	head = CASE WHEN n.name = excluded.blocker THEN least(n.head, excluded.head) ELSE excluded.head END;

-- range
SELECT /* outmill range */ kind, key, at, made_at, value FROM "outmill"."entries" WHERE kind = $1::text AND key > $2::text ORDER BY key LIMIT $3::bigint;

-- replace
UPDATE /* outmill replace */ "outmill"."records" SET size = $2::bigint, metadata = nullif($3::text, ''), payload = $4::bytea WHERE id = $1::text::uuid;

-- scan
SELECT /* outmill scan */ kind, key, at, made_at, value FROM "outmill"."entries" WHERE kind = $1::text AND key >= $2::text AND key < $2::text || chr(1114111) ORDER BY key;

-- segment_0_chains
WITH /* outmill segment_chains */ RECURSIVE leap AS (
	SELECT u.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = u.topic ORDER BY b.chain LIMIT 1) AS chain FROM unnest($1::text[]) AS u (topic)
	UNION ALL SELECT leap.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = leap.topic AND b.chain > leap.chain ORDER BY b.chain LIMIT 1)
	FROM leap WHERE leap.chain IS NOT NULL)
SELECT leap.topic, leap.chain FROM leap WHERE leap.chain IS NOT NULL;

-- segment_0_heeded
WITH /* outmill segment_heeded */ s AS MATERIALIZED (SELECT xid, to_timestamp(retired_at / 1000000.0) AS retired_at, heed_until > "outmill"."now"() AS heeds FROM "outmill"."retired" WHERE segment = 0),
old AS MATERIALIZED (SELECT coalesce(a.xact_start, s.retired_at) > clock_timestamp() - $1::bigint * interval '1 microsecond' OR s.heeds AS young,
		(SELECT max(clock_timestamp() - l.waitstart) FROM pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted AND l.locktype = 'relation') AS waits
	FROM s CROSS JOIN pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
		AND age(a.backend_xmin) >= age(s.xid::xid) AND coalesce(a.xact_start <= s.retired_at, true)),
noted AS (UPDATE "outmill"."retired" SET heed_until = "outmill"."now"() + $1::bigint
	WHERE segment = 0 AND EXISTS (SELECT 1 FROM old WHERE waits > interval '1 second'))
SELECT count(*) FROM old WHERE young OR waits IS NOT NULL;

-- segment_0_lines
WITH /* outmill segment_lines */ RECURSIVE leap AS (
	(SELECT s.topic FROM "outmill"."log_0" AS s WHERE s.topic > $1::text ORDER BY s.topic LIMIT 1)
	UNION ALL SELECT (SELECT s.topic FROM "outmill"."log_0" AS s WHERE s.topic > leap.topic ORDER BY s.topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL)
SELECT leap.topic, (SELECT s.pos FROM "outmill"."log_0" AS s WHERE s.topic = leap.topic ORDER BY s.pos DESC LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL
LIMIT $2::bigint;

-- segment_0_needed
SELECT /* outmill segment_needed */ c.nth - 1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) WITH ORDINALITY AS c (topic, chain, begin_pos, begin_seen, ended, nth)
CROSS JOIN LATERAL "outmill"."log_cursor_of"(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot) AS cur
WHERE NOT c.ended AND ((SELECT 1 FROM "outmill"."log_0" AS l WHERE l.topic = c.topic AND l.pos > cur.pos LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_0" AS l WHERE l.topic = c.topic AND l.pos <= cur.pos
		AND l.pos > least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
		AND l.xid >= pg_snapshot_xmin(cur.seen) AND NOT pg_visible_in_snapshot(l.xid, cur.seen)
		AND NOT "outmill"."log_skipped"(c.topic, c.chain, l.pos, l.xid) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."left_rows" AS k JOIN "outmill"."log_0" AS l ON l.topic = k.topic AND l.pos > k.from_pos AND l.pos <= k.to_pos AND l.xid = k.xid
		WHERE k.topic = c.topic AND k.chain = c.chain LIMIT 1) IS NOT NULL)
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b JOIN "outmill"."log_0" AS l ON l.topic = c.topic AND l.pos > b.from_pos AND l.pos <= b.pos
		AND b.positions IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b CROSS JOIN LATERAL unnest(b.positions) AS u (pos)
		JOIN "outmill"."log_0" AS l ON l.topic = c.topic AND l.pos = u.pos LIMIT 1) IS NOT NULL
ORDER BY c.nth LIMIT 1;

-- segment_0_retire
INSERT /* outmill segment_retire */ INTO "outmill"."retired" (segment, pos, xid, retired_at) VALUES (0, $1::bigint, pg_current_xact_id(), "outmill"."now"()) ON CONFLICT DO NOTHING;

-- segment_0_stop
SELECT /* outmill segment_stop */ "outmill"."segment_stop"('"outmill"."log_0"');

-- segment_0_truncate
SELECT /* outmill segment_truncate */ "outmill"."segment_truncate"('"outmill"."log_0"');

-- segment_0_unretire
DELETE /* outmill segment_unretire */ FROM "outmill"."retired" WHERE segment = 0 AND (SELECT 1 FROM "outmill"."log_0" LIMIT 1) IS NULL;

-- segment_0_wanted
SELECT /* outmill segment_wanted */ EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = '"outmill"."log_0"'::regclass
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));

-- segment_0_written
DELETE /* outmill segment_written */ FROM "outmill"."retired" WHERE segment = 0 AND pos < $1::bigint;

-- segment_1_chains
WITH /* outmill segment_chains */ RECURSIVE leap AS (
	SELECT u.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = u.topic ORDER BY b.chain LIMIT 1) AS chain FROM unnest($1::text[]) AS u (topic)
	UNION ALL SELECT leap.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = leap.topic AND b.chain > leap.chain ORDER BY b.chain LIMIT 1)
	FROM leap WHERE leap.chain IS NOT NULL)
SELECT leap.topic, leap.chain FROM leap WHERE leap.chain IS NOT NULL;

-- segment_1_heeded
WITH /* outmill segment_heeded */ s AS MATERIALIZED (SELECT xid, to_timestamp(retired_at / 1000000.0) AS retired_at, heed_until > "outmill"."now"() AS heeds FROM "outmill"."retired" WHERE segment = 1),
old AS MATERIALIZED (SELECT coalesce(a.xact_start, s.retired_at) > clock_timestamp() - $1::bigint * interval '1 microsecond' OR s.heeds AS young,
		(SELECT max(clock_timestamp() - l.waitstart) FROM pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted AND l.locktype = 'relation') AS waits
	FROM s CROSS JOIN pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
		AND age(a.backend_xmin) >= age(s.xid::xid) AND coalesce(a.xact_start <= s.retired_at, true)),
noted AS (UPDATE "outmill"."retired" SET heed_until = "outmill"."now"() + $1::bigint
	WHERE segment = 1 AND EXISTS (SELECT 1 FROM old WHERE waits > interval '1 second'))
SELECT count(*) FROM old WHERE young OR waits IS NOT NULL;

-- segment_1_lines
WITH /* outmill segment_lines */ RECURSIVE leap AS (
	(SELECT s.topic FROM "outmill"."log_1" AS s WHERE s.topic > $1::text ORDER BY s.topic LIMIT 1)
	UNION ALL SELECT (SELECT s.topic FROM "outmill"."log_1" AS s WHERE s.topic > leap.topic ORDER BY s.topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL)
SELECT leap.topic, (SELECT s.pos FROM "outmill"."log_1" AS s WHERE s.topic = leap.topic ORDER BY s.pos DESC LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL
LIMIT $2::bigint;

-- segment_1_needed
SELECT /* outmill segment_needed */ c.nth - 1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) WITH ORDINALITY AS c (topic, chain, begin_pos, begin_seen, ended, nth)
CROSS JOIN LATERAL "outmill"."log_cursor_of"(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot) AS cur
WHERE NOT c.ended AND ((SELECT 1 FROM "outmill"."log_1" AS l WHERE l.topic = c.topic AND l.pos > cur.pos LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_1" AS l WHERE l.topic = c.topic AND l.pos <= cur.pos
		AND l.pos > least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
		AND l.xid >= pg_snapshot_xmin(cur.seen) AND NOT pg_visible_in_snapshot(l.xid, cur.seen)
		AND NOT "outmill"."log_skipped"(c.topic, c.chain, l.pos, l.xid) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."left_rows" AS k JOIN "outmill"."log_1" AS l ON l.topic = k.topic AND l.pos > k.from_pos AND l.pos <= k.to_pos AND l.xid = k.xid
		WHERE k.topic = c.topic AND k.chain = c.chain LIMIT 1) IS NOT NULL)
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b JOIN "outmill"."log_1" AS l ON l.topic = c.topic AND l.pos > b.from_pos AND l.pos <= b.pos
		AND b.positions IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b CROSS JOIN LATERAL unnest(b.positions) AS u (pos)
		JOIN "outmill"."log_1" AS l ON l.topic = c.topic AND l.pos = u.pos LIMIT 1) IS NOT NULL
ORDER BY c.nth LIMIT 1;

-- segment_1_retire
INSERT /* outmill segment_retire */ INTO "outmill"."retired" (segment, pos, xid, retired_at) VALUES (1, $1::bigint, pg_current_xact_id(), "outmill"."now"()) ON CONFLICT DO NOTHING;

-- segment_1_stop
SELECT /* outmill segment_stop */ "outmill"."segment_stop"('"outmill"."log_1"');

-- segment_1_truncate
SELECT /* outmill segment_truncate */ "outmill"."segment_truncate"('"outmill"."log_1"');

-- segment_1_unretire
DELETE /* outmill segment_unretire */ FROM "outmill"."retired" WHERE segment = 1 AND (SELECT 1 FROM "outmill"."log_1" LIMIT 1) IS NULL;

-- segment_1_wanted
SELECT /* outmill segment_wanted */ EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = '"outmill"."log_1"'::regclass
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));

-- segment_1_written
DELETE /* outmill segment_written */ FROM "outmill"."retired" WHERE segment = 1 AND pos < $1::bigint;

-- segment_2_chains
WITH /* outmill segment_chains */ RECURSIVE leap AS (
	SELECT u.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = u.topic ORDER BY b.chain LIMIT 1) AS chain FROM unnest($1::text[]) AS u (topic)
	UNION ALL SELECT leap.topic, (SELECT b.chain FROM "outmill"."batches" AS b WHERE b.topic = leap.topic AND b.chain > leap.chain ORDER BY b.chain LIMIT 1)
	FROM leap WHERE leap.chain IS NOT NULL)
SELECT leap.topic, leap.chain FROM leap WHERE leap.chain IS NOT NULL;

-- segment_2_heeded
WITH /* outmill segment_heeded */ s AS MATERIALIZED (SELECT xid, to_timestamp(retired_at / 1000000.0) AS retired_at, heed_until > "outmill"."now"() AS heeds FROM "outmill"."retired" WHERE segment = 2),
old AS MATERIALIZED (SELECT coalesce(a.xact_start, s.retired_at) > clock_timestamp() - $1::bigint * interval '1 microsecond' OR s.heeds AS young,
		(SELECT max(clock_timestamp() - l.waitstart) FROM pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted AND l.locktype = 'relation') AS waits
	FROM s CROSS JOIN pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
		AND age(a.backend_xmin) >= age(s.xid::xid) AND coalesce(a.xact_start <= s.retired_at, true)),
noted AS (UPDATE "outmill"."retired" SET heed_until = "outmill"."now"() + $1::bigint
	WHERE segment = 2 AND EXISTS (SELECT 1 FROM old WHERE waits > interval '1 second'))
SELECT count(*) FROM old WHERE young OR waits IS NOT NULL;

-- segment_2_lines
WITH /* outmill segment_lines */ RECURSIVE leap AS (
	(SELECT s.topic FROM "outmill"."log_2" AS s WHERE s.topic > $1::text ORDER BY s.topic LIMIT 1)
	UNION ALL SELECT (SELECT s.topic FROM "outmill"."log_2" AS s WHERE s.topic > leap.topic ORDER BY s.topic LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL)
SELECT leap.topic, (SELECT s.pos FROM "outmill"."log_2" AS s WHERE s.topic = leap.topic ORDER BY s.pos DESC LIMIT 1) FROM leap WHERE leap.topic IS NOT NULL
LIMIT $2::bigint;

-- segment_2_needed
SELECT /* outmill segment_needed */ c.nth - 1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::boolean[]) WITH ORDINALITY AS c (topic, chain, begin_pos, begin_seen, ended, nth)
CROSS JOIN LATERAL "outmill"."log_cursor_of"(c.topic, c.chain, c.begin_pos, nullif(c.begin_seen, '')::pg_snapshot) AS cur
WHERE NOT c.ended AND ((SELECT 1 FROM "outmill"."log_2" AS l WHERE l.topic = c.topic AND l.pos > cur.pos LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_2" AS l WHERE l.topic = c.topic AND l.pos <= cur.pos
		AND l.pos > least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
		AND l.xid >= pg_snapshot_xmin(cur.seen) AND NOT pg_visible_in_snapshot(l.xid, cur.seen)
		AND NOT "outmill"."log_skipped"(c.topic, c.chain, l.pos, l.xid) LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."left_rows" AS k JOIN "outmill"."log_2" AS l ON l.topic = k.topic AND l.pos > k.from_pos AND l.pos <= k.to_pos AND l.xid = k.xid
		WHERE k.topic = c.topic AND k.chain = c.chain LIMIT 1) IS NOT NULL)
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b JOIN "outmill"."log_2" AS l ON l.topic = c.topic AND l.pos > b.from_pos AND l.pos <= b.pos
		AND b.positions IS NULL LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."log_in_work"(c.topic, c.chain) AS b CROSS JOIN LATERAL unnest(b.positions) AS u (pos)
		JOIN "outmill"."log_2" AS l ON l.topic = c.topic AND l.pos = u.pos LIMIT 1) IS NOT NULL
ORDER BY c.nth LIMIT 1;

-- segment_2_retire
INSERT /* outmill segment_retire */ INTO "outmill"."retired" (segment, pos, xid, retired_at) VALUES (2, $1::bigint, pg_current_xact_id(), "outmill"."now"()) ON CONFLICT DO NOTHING;

-- segment_2_stop
SELECT /* outmill segment_stop */ "outmill"."segment_stop"('"outmill"."log_2"');

-- segment_2_truncate
SELECT /* outmill segment_truncate */ "outmill"."segment_truncate"('"outmill"."log_2"');

-- segment_2_unretire
DELETE /* outmill segment_unretire */ FROM "outmill"."retired" WHERE segment = 2 AND (SELECT 1 FROM "outmill"."log_2" LIMIT 1) IS NULL;

-- segment_2_wanted
SELECT /* outmill segment_wanted */ EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = '"outmill"."log_2"'::regclass
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));

-- segment_2_written
DELETE /* outmill segment_written */ FROM "outmill"."retired" WHERE segment = 2 AND pos < $1::bigint;

-- segments_rotate
UPDATE /* outmill segments_rotate */ "outmill"."meta" SET segment = $2::integer, rotated_at = "outmill"."now"() WHERE segment = $1::integer;

-- segments_state
SELECT /* outmill segments_state */ m.segment, "outmill"."now"() - m.rotated_at, ARRAY(SELECT (SELECT pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0)
	FROM pg_class AS c WHERE c.oid = s.oid) FROM (VALUES (0, '"outmill"."log_0"'::regclass), (1, '"outmill"."log_1"'::regclass), (2, '"outmill"."log_2"'::regclass)) AS s (nth, oid) ORDER BY s.nth)
FROM "outmill"."meta" AS m;

-- settings
SELECT /* outmill settings */ pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_indexscan', 'on', true), set_config('enable_nestloop', 'on', true),
	set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_material', 'off', true), set_config('jit', 'off', true), set_config('bytea_output', 'hex', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', '10s', true),
	set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('synchronous_commit', CASE WHEN $1::boolean THEN current_setting('synchronous_commit') ELSE 'off' END, true),
	CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', '10s', true) END;

-- share_routes
SELECT /* outmill share_routes */ pg_advisory_xact_lock_shared($1::bigint);

-- state
SELECT /* outmill state */ m.version, m.compatible, m.routes, m.pauses, "outmill"."now"(),
	(SELECT 1 FROM "outmill"."notes" LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM "outmill"."notes" WHERE blocker >= 'p' AND blocker < 'r' LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM "outmill"."records" WHERE grp = '' AND stage IN (0, 3) LIMIT 1) IS NOT NULL,
	(SELECT stamp FROM "outmill"."events"), (SELECT last FROM "outmill"."events"), m.segment
FROM "outmill"."meta" AS m;

-- swap_delete
WITH /* outmill swap_delete */ changed AS (DELETE FROM "outmill"."entries" WHERE kind = $1::text AND key = $2::text AND starts_with(value, $3::text) RETURNING made_at)
SELECT coalesce(max(made_at), 0), "outmill"."now"(), "outmill"."demand"(count(*), 1) FROM changed;

-- swap_insert
WITH /* outmill swap_insert */ changed AS (INSERT INTO "outmill"."entries" (kind, key, at, made_at, value)
	SELECT $1::text, $2::text, $3::bigint, n.now, $4::text || n.now || $5::text FROM (SELECT "outmill"."now"() AS now) AS n
	ON CONFLICT (kind, key) DO NOTHING RETURNING made_at)
SELECT coalesce(max(made_at), 0), coalesce(max(made_at), 0), "outmill"."demand"(count(*), 1) FROM changed;

-- swap_put
INSERT /* outmill swap_put */ INTO "outmill"."entries" (kind, key, at, made_at, value)
SELECT kind, key, CASE at WHEN -1 THEN "outmill"."now"() ELSE at END, made_at, value
FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[]) AS u (kind, key, at, made_at, value)
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value;

-- swap_update
WITH /* outmill swap_update */ changed AS (UPDATE "outmill"."entries" AS e SET at = $3::bigint, value = $4::text || n.now || $5::text FROM (SELECT "outmill"."now"() AS now) AS n
	WHERE e.kind = $1::text AND e.key = $2::text AND starts_with(e.value, $6::text) RETURNING e.made_at, n.now)
SELECT coalesce(max(made_at), 0), coalesce(max(now), 0), "outmill"."demand"(count(*), 1) FROM changed;

-- take
INSERT /* outmill take */ INTO "outmill"."entries" AS e (kind, key, at, made_at, value)
SELECT * FROM unnest($1::text[], $2::text[], $3::text::bigint[], $4::text::bigint[], $5::text[])
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value
WHERE e.at <= $6::bigint RETURNING e.kind, e.key;

-- tidy_any
SELECT /* outmill tidy_any */ (SELECT 1 FROM "outmill"."batches" LIMIT 1) IS NOT NULL OR (SELECT 1 FROM "outmill"."skips" LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM "outmill"."skip_ranges" LIMIT 1) IS NOT NULL;

-- tidy_batches
WITH /* outmill tidy_batches */ gone AS (DELETE FROM "outmill"."batches" AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL (SELECT b.ctid FROM "outmill"."batches" AS b WHERE b.topic = c.topic AND b.chain = c.chain
		AND b.n < (SELECT i.n FROM "outmill"."batches" AS i WHERE i.topic = c.topic AND i.chain = c.chain ORDER BY i.n DESC LIMIT 1)
		AND (b.size = 0 OR (SELECT 1 FROM "outmill"."ended" AS e WHERE e.topic = b.topic AND e.chain = b.chain AND e.n = b.n AND e.token = b.token) IS NOT NULL)
		ORDER BY b.n LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS o LIMIT $3::bigint)) RETURNING d.topic, d.chain, d.n, d.token),
notes AS (DELETE FROM "outmill"."ended" AS e USING gone AS g WHERE e.topic = g.topic AND e.chain = g.chain AND e.n = g.n AND e.token = g.token)
SELECT count(*) FROM gone;

-- tidy_chains
WITH /* outmill tidy_chains */ RECURSIVE leap AS (
	(SELECT k.topic, k.chain FROM ((SELECT b.topic, b.chain FROM "outmill"."batches" AS b WHERE (b.topic, b.chain) > ($1::text, $2::bigint) ORDER BY b.topic, b.chain LIMIT 1)
		UNION ALL (SELECT s.topic, s.chain FROM "outmill"."skips" AS s WHERE (s.topic, s.chain) > ($1::text, $2::bigint) ORDER BY s.topic, s.chain LIMIT 1)
		UNION ALL (SELECT r.topic, r.chain FROM "outmill"."skip_ranges" AS r WHERE (r.topic, r.chain) > ($1::text, $2::bigint) ORDER BY r.topic, r.chain LIMIT 1)) AS k
		ORDER BY k.topic, k.chain LIMIT 1)
	UNION ALL SELECT n.topic, n.chain FROM leap CROSS JOIN LATERAL (SELECT k.topic, k.chain FROM (
		(SELECT b.topic, b.chain FROM "outmill"."batches" AS b WHERE (b.topic, b.chain) > (leap.topic, leap.chain) ORDER BY b.topic, b.chain LIMIT 1)
		UNION ALL (SELECT s.topic, s.chain FROM "outmill"."skips" AS s WHERE (s.topic, s.chain) > (leap.topic, leap.chain) ORDER BY s.topic, s.chain LIMIT 1)
		UNION ALL (SELECT r.topic, r.chain FROM "outmill"."skip_ranges" AS r WHERE (r.topic, r.chain) > (leap.topic, leap.chain) ORDER BY r.topic, r.chain LIMIT 1)) AS k
		ORDER BY k.topic, k.chain LIMIT 1) AS n)
SELECT l.topic, l.chain, (SELECT 1 FROM "outmill"."log" AS r WHERE r.topic = l.topic LIMIT 1) IS NULL FROM (SELECT * FROM leap LIMIT $3::bigint) AS l;

-- tidy_covered
UPDATE /* outmill tidy_covered */ "outmill"."skip_ranges" AS d SET seen = NULL FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
WHERE d.topic = c.topic AND d.chain = c.chain AND d.seen IS NOT NULL AND d.horizon < pg_snapshot_xmin(pg_current_snapshot())
	AND (SELECT 1 FROM "outmill"."log" AS l WHERE l.topic = d.topic AND l.pos > d.from_pos AND l.pos <= d.to_pos AND l.xid >= pg_snapshot_xmin(d.seen)
		AND NOT pg_visible_in_snapshot(l.xid, d.seen) LIMIT 1) IS NULL;

-- tidy_forget
WITH /* outmill tidy_forget */ s AS (DELETE FROM "outmill"."skips" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "outmill"."skips" WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
r AS (DELETE FROM "outmill"."skip_ranges" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "outmill"."skip_ranges" WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
k AS (DELETE FROM "outmill"."left_rows" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "outmill"."left_rows" WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
e AS (DELETE FROM "outmill"."ended" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "outmill"."ended" WHERE topic = $1::text AND chain = $2::bigint LIMIT $3::bigint)) RETURNING 1),
b AS (DELETE FROM "outmill"."batches" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "outmill"."batches" WHERE topic = $1::text AND chain = $2::bigint ORDER BY n LIMIT $3::bigint)) RETURNING 1)
SELECT greatest((SELECT count(*) FROM s), (SELECT count(*) FROM r), (SELECT count(*) FROM k), (SELECT count(*) FROM e), (SELECT count(*) FROM b));

-- tidy_horizon
UPDATE /* outmill tidy_horizon */ "outmill"."skip_ranges" AS d SET horizon = pg_current_xact_id() FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
WHERE d.topic = c.topic AND d.chain = c.chain AND d.seen IS NOT NULL AND d.horizon IS NULL;

-- tidy_idle
SELECT /* outmill tidy_idle */ (SELECT 1 FROM "outmill"."log" AS l WHERE l.topic = $1::text LIMIT 1) IS NULL AND (SELECT 1 FROM "outmill"."log_in_work"($1::text, $2::bigint) LIMIT 1) IS NULL;

-- tidy_joined
WITH /* outmill tidy_joined */ pairs AS MATERIALIZED (SELECT r.topic, r.chain, r.from_pos, r.to_pos, r.seen IS NULL AND lag(r.seen) OVER w IS NULL AS covered, lag(r.to_pos) OVER w AS before
	FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain) JOIN "outmill"."skip_ranges" AS r ON r.topic = c.topic AND r.chain = c.chain
	WINDOW w AS (PARTITION BY r.topic, r.chain ORDER BY r.to_pos)),
marked AS MATERIALIZED (SELECT p.*, p.before IS NULL OR NOT p.covered OR (SELECT 1 FROM "outmill"."log" AS l
	WHERE l.topic = p.topic AND l.pos > p.before AND l.pos <= p.from_pos LIMIT 1) IS NOT NULL AS begins FROM pairs AS p),
numbered AS MATERIALIZED (SELECT m.*, count(*) FILTER (WHERE m.begins) OVER (PARTITION BY m.topic, m.chain ORDER BY m.to_pos) AS nth FROM marked AS m),
runs AS MATERIALIZED (SELECT n.topic, n.chain, min(n.from_pos) AS from_pos, max(n.to_pos) AS to_pos FROM numbered AS n
	GROUP BY n.topic, n.chain, n.nth HAVING count(*) > 1),
gone AS (DELETE FROM "outmill"."skip_ranges" AS d USING runs AS r WHERE d.topic = r.topic AND d.chain = r.chain AND d.from_pos >= r.from_pos AND d.to_pos < r.to_pos)
UPDATE "outmill"."skip_ranges" AS d SET from_pos = r.from_pos FROM runs AS r WHERE d.topic = r.topic AND d.chain = r.chain AND d.to_pos = r.to_pos;

-- tidy_ranges
WITH /* outmill tidy_ranges */ gone AS (DELETE FROM "outmill"."skip_ranges" AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL "outmill"."log_cursor_of"(c.topic, c.chain, -1, NULL) AS cur
	CROSS JOIN LATERAL (SELECT s.ctid FROM "outmill"."skip_ranges" AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.to_pos <= cur.pos
		AND (s.to_pos <= least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
			OR (SELECT 1 FROM "outmill"."log" AS l WHERE l.topic = s.topic AND l.pos > s.from_pos AND l.pos <= s.to_pos AND l.xid >= pg_snapshot_xmin(cur.seen)
				AND NOT pg_visible_in_snapshot(l.xid, cur.seen) LIMIT 1) IS NULL)
		AND (SELECT 1 FROM "outmill"."left_rows" AS k WHERE k.topic = s.topic AND k.chain = s.chain AND k.from_pos < s.to_pos AND k.to_pos > s.from_pos LIMIT 1) IS NULL
		ORDER BY s.to_pos LIMIT $3::bigint) AS o WHERE cur.n IS NOT NULL LIMIT $3::bigint)) RETURNING 1)
SELECT count(*) FROM gone;

-- tidy_skips
WITH /* outmill tidy_skips */ gone AS (DELETE FROM "outmill"."skips" AS d WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($1::text[], $2::bigint[]) AS c (topic, chain)
	CROSS JOIN LATERAL "outmill"."log_cursor_of"(c.topic, c.chain, -1, NULL) AS cur
	CROSS JOIN LATERAL (SELECT s.ctid FROM "outmill"."skips" AS s WHERE s.topic = c.topic AND s.chain = c.chain AND s.pos <= cur.pos
		AND (s.pos <= least(cur.rest, (SELECT min(k.since) FROM unnest(cur.since) AS k (since)))
			OR coalesce((SELECT pg_visible_in_snapshot(l.xid, cur.seen) FROM "outmill"."log" AS l WHERE l.topic = s.topic AND l.pos = s.pos), true))
		AND (SELECT 1 FROM "outmill"."left_rows" AS k WHERE k.topic = s.topic AND k.chain = s.chain AND k.from_pos < s.pos AND k.to_pos >= s.pos LIMIT 1) IS NULL
		ORDER BY s.pos LIMIT $3::bigint) AS o WHERE cur.n IS NOT NULL LIMIT $3::bigint)) RETURNING 1)
SELECT count(*) FROM gone;

-- try_lock
SELECT /* outmill try_lock */ pg_try_advisory_xact_lock(u.line) FROM unnest($1::text::bigint[]) AS u (line);

-- upkeep_end
UPDATE /* outmill upkeep_end */ "outmill"."upkeep" SET until = "outmill"."now"(), ended_at = "outmill"."now"() WHERE turn = $1::bigint;

-- upkeep_turn
UPDATE /* outmill upkeep_turn */ "outmill"."upkeep" AS u SET turn = $1::bigint, until = t.now + $3::bigint FROM (SELECT "outmill"."now"() AS now) AS t
WHERE (u.until <= t.now OR u.until > t.now + 600000000) AND (u.ended_at <= t.now - $2::bigint OR u.ended_at > t.now + 600000000);

-- wait_for
SELECT /* outmill wait_for */ set_config('outmill.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', $1::text, true);

-- waited
SELECT /* outmill waited */ set_config('lock_timeout', current_setting('outmill.lock_timeout'), true);

-- whole
WITH /* outmill whole */ at AS MATERIALIZED (SELECT "outmill"."now"() AS now)
SELECT coalesce((SELECT owner FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND owner <> $3::text
		AND (wake_at > (SELECT now FROM at) OR expires_at = 0 OR expires_at > (SELECT now FROM at)) LIMIT 1), ''),
	coalesce((SELECT seq FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage - 2 = 0
		AND (expires_at = 0 OR expires_at > (SELECT now FROM at)) ORDER BY seq LIMIT 1), 9223372036854775807::bigint),
	least((SELECT min(seq) FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND (expires_at = 0 OR expires_at > (SELECT now FROM at))),
		(SELECT min(seq) FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND (expires_at = 0 OR expires_at > (SELECT now FROM at))),
		(SELECT min(seq) FROM "outmill"."records" WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND wake_at <> 0 AND wake_at <= (SELECT now FROM at)
			AND owner = $3::text AND (expires_at = 0 OR expires_at > (SELECT now FROM at))), 9223372036854775807::bigint);

