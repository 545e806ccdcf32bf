-- name: settings
-- The settings of the driver's own transactions. search_path keeps functions and operators of other users out. The planner uses
-- the indexes, whatever statistics it has or lacks, and joins lists row by row, in their order, which is the order of the locks. A
-- plan is made once. The timeouts end the transaction of a process that was stopped in the middle of it.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_indexscan', 'on', true), set_config('enable_nestloop', 'on', true),
	set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_material', 'off', true), set_config('jit', 'off', true), set_config('bytea_output', 'hex', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', '10s', true),
	set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('synchronous_commit', CASE WHEN $1::boolean THEN current_setting('synchronous_commit') ELSE 'off' END, true),
	CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', '10s', true) END

-- name: patience
-- The server counts a transaction as idle until it has received all of a large argument.
SELECT set_config('idle_in_transaction_session_timeout', '10min', true)

-- name: state
-- What every transaction begins with.
SELECT m.version, m.compatible, m.routes, m.pauses, {p:now}(),
	(SELECT 1 FROM {p:notes} LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM {p:notes} WHERE blocker >= 'p' AND blocker < 'r' LIMIT 1) IS NOT NULL,
	(SELECT 1 FROM {p:records} WHERE grp = '' AND stage IN (0, 3) LIMIT 1) IS NOT NULL,
	(SELECT stamp FROM {p:events}), (SELECT last FROM {p:events}), m.segment
FROM {p:meta} AS m

-- name: borrow
-- The settings for the statements of a call in a caller's transaction, which keeps its own until giveback. A rollback to the
-- savepoint of the call brings the caller's back, too.
SELECT pg_catalog.set_config('outmill.' OPERATOR(pg_catalog.||) s.name, pg_catalog.current_setting(s.name), true),
	pg_catalog.set_config(s.name, s.value, true)
FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('enable_seqscan', 'off'), ('enable_indexscan', 'on'), ('enable_nestloop', 'on'),
	('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'),
	('enable_mergejoin', 'off'), ('enable_material', 'off'), ('jit', 'off'), ('bytea_output', 'hex'), ('plan_cache_mode', 'force_generic_plan')) AS s (name, value)

-- name: giveback
-- The caller's settings again.
SELECT pg_catalog.set_config(s.name, pg_catalog.current_setting('outmill.' OPERATOR(pg_catalog.||) s.name), true)
FROM (VALUES ('enable_seqscan'), ('enable_indexscan'), ('enable_nestloop'), ('enable_bitmapscan'), ('enable_hashjoin'), ('enable_mergejoin'), ('enable_material'), ('jit'), ('bytea_output'), ('plan_cache_mode'),
	('search_path')) AS s (name)

-- name: wait_for
-- How long the next statements wait for a lock.
SELECT set_config('outmill.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', $1::text, true)

-- name: waited
-- The limit of before again.
SELECT set_config('lock_timeout', current_setting('outmill.lock_timeout'), true)

-- name: lock
-- One claim at a time decides about the order of a line, and one transaction at a time changes registrations or pauses.
SELECT pg_advisory_xact_lock($1::bigint)

-- name: share_routes
-- A transaction that has met changes of the registrations three times has the next ones wait for it.
SELECT pg_advisory_xact_lock_shared($1::bigint)

-- name: lock_all
-- The same for several, in the order of the list.
SELECT pg_advisory_xact_lock(u.line) FROM unnest($1::text::bigint[]) AS u (line)

-- name: try_lock
-- The same for those of several lines that are free.
SELECT pg_try_advisory_xact_lock(u.line) FROM unnest($1::text::bigint[]) AS u (line)

-- name: bump
-- Changes the generations, and locks them until the transaction ends. They come from the clock, so that a primary which lacks the last commits
-- of the one before gives no generation that a process knows from that one.
UPDATE {p:meta} SET routes = CASE WHEN $1::bigint > 0 THEN greatest(routes + 1, {p:now}()) ELSE routes END,
	pauses = CASE WHEN $2::bigint > 0 THEN greatest(pauses + 1, {p:now}()) ELSE pauses END RETURNING routes, pauses

-- name: notify
-- Wakes the readers of other processes after the commit. While the queue of notifications is half full, because a listening session
-- stays in a transaction, it does not: with a full queue the commit would fail.
SELECT pg_catalog.pg_notify($1::text, $2::text) WHERE pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5
