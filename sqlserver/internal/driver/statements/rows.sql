-- Searches of rows. {row} stands for the columns of a row, and {free} for the hints of a search: either FORCESEEK alone, or also those that
-- lock what it finds and leave out what others have locked. A search reads committed versions otherwise, and waits for nobody.
-- Each reads one index in its order, and repeats the filter of that index. {group} and {topic} are the line, @limit is the limit, @now the time.

-- name: by_line
-- Ready rows.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 0 ORDER BY r.seq;

-- name: by_held
-- Held rows.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 1 ORDER BY r.seq;

-- name: by_hold
-- Rows that are held under the notes of keys (@hold 1) or of pauses (2).
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 1 AND r.hold = CAST(@hold AS TINYINT)
ORDER BY r.seq;

-- name: by_place
-- Ready and held rows in the order of their places: what a claim by topic takes.
SELECT TOP (@limit) {row} FROM (
	SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 1
		ORDER BY r.seq) AS held) AS r ORDER BY r.seq;

-- name: by_later
-- Rows of the stage @stage that end at a time after now.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = CAST(@stage AS SMALLINT)
	AND r.wake_at > 0 AND r.wake_at > @now ORDER BY r.wake_at, r.seq;

-- name: coming
-- Rows whose time has come, in one statement: what a claim in an order makes ready first. The program sorts them.
SELECT {row} FROM (
	SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- name: any_order
-- by_line and coming in one statement: what a claim without an order takes. The program sorts them.
SELECT {row} FROM (
	SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- name: by_ended
-- Leases of all lines that have ended.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.stage = 4 AND r.wake_at <= @now ORDER BY r.wake_at;

-- name: by_expiry
-- Rows of all lines that have expired.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.expires_at > 0 AND r.expires_at <= @now AND r.stage < 5
	AND (r.stage <> 4 OR r.wake_at <= @now) ORDER BY r.expires_at, r.seq;

-- name: by_key
-- Rows of a key behind a place.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.[key] = {key}
	AND r.keyed = 1 AND r.stage IN (0, 1, 2, 3) AND r.seq > @from ORDER BY r.seq;

-- name: by_parked
-- Parked rows of a key behind a place.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.[key] = {key}
	AND r.parked = 1 AND r.seq > @from ORDER BY r.seq;

-- name: by_done
-- Processed rows of all lines, by their time.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.stage = 5 AND r.processed_at <= @until ORDER BY r.processed_at, r.seq;

-- name: by_stage_later
-- A whole stage of those that end at a time.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = CAST(@stage AS SMALLINT) AND r.wake_at > 0
ORDER BY r.wake_at, r.seq;

-- name: by_stage_settled
-- A whole stage of the processed and the dead.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = CAST(@stage AS SMALLINT) AND r.stage > 4
ORDER BY r.seq;

-- name: by_unrouted
-- Rows that wait for a first group.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.grp = N'' AND r.topic = {topic} AND r.stage IN (0, 3) ORDER BY r.seq;

-- name: by_step
-- The rows of a step.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.step IS NOT NULL AND r.step = CAST(@step AS BINARY(16)) ORDER BY r.seq;

-- name: by_waiter
-- The rows that wait for a join.
SELECT TOP (@limit) {row} FROM {p:records} AS r {free} WHERE r.waits_for IS NOT NULL AND r.waits_for = CAST(@join AS BINARY(16))
	AND r.stage IN (2, 3) AND r.wake_at > @now ORDER BY r.seq;

-- name: by_open
-- The first rows of each index that has rows in work. Every group is at least '': without a seek the server may read the whole table.
SELECT TOP (@limit) {row} FROM (
	SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.stage = 0) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.stage = 1) AS held
	UNION ALL SELECT * FROM (SELECT TOP (@limit) {row} FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.wake_at > 0) AS later) AS r;

-- name: find
-- Rows by their ids, and whether the note of their key holds them.
DECLARE @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT {row}, {blocked} AS blocked FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- name: find_locked
-- One row, which stays as it is until the transaction ends.
SELECT {row}, {blocked} AS blocked FROM {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE r.id = CAST(@id AS BINARY(16));

-- name: after
-- Rows by id.
SELECT TOP (@limit) {row}, {blocked} AS blocked FROM {p:records} AS r WITH (FORCESEEK) WHERE r.id > CAST(@id AS BINARY(16)) ORDER BY r.id;

-- name: insert
-- An append. The order of the list is that of the places.
INSERT INTO {p:records} (id, grp, topic, [key], keyed, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload,
	processed_at, attempts, claims, expiries, hold, parked, owner, worker, under, processed_by)
SELECT n.id, n.grp, n.topic, n.[key], CASE n.[key] WHEN N'' THEN 0 ELSE 1 END, n.tenant_id, n.created_at, n.size, n.stage, n.wake_at, n.next_at, n.expires_at, n.due_at, n.step, n.waits_for, n.message_id,
	n.correlation_id, n.causation_id, n.traceparent, n.tracestate, n.dedup_key, n.joins, n.metadata, n.payload,
	0, 0, 0, 0, 0, 0, N'', N'', N'', N'' FROM @rows AS n ORDER BY n.place;

-- name: load
-- The content of records. @want is what is read of it beside the texts: 1 metadata, 2 payload, 4 history.
DECLARE @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT r.id, r.due_at, r.message_id, ISNULL(r.correlation_id, N'') AS correlation_id, ISNULL(r.causation_id, N'') AS causation_id,
	ISNULL(r.traceparent, N'') AS traceparent, ISNULL(r.tracestate, N'') AS tracestate, ISNULL(r.dedup_key, N'') AS dedup_key,
	ISNULL(r.joins, N'') AS joins, ISNULL(r.last_error, N'') AS last_error,
	CASE WHEN @want & 1 <> 0 THEN ISNULL(r.metadata, N'') ELSE N'' END AS metadata, CASE WHEN @want & 2 <> 0 THEN r.payload END AS payload,
	CASE WHEN @want & 4 <> 0 THEN r.history END AS history
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- name: replace
-- The edit of an operator.
UPDATE r SET size = @size, metadata = @metadata, payload = @payload FROM {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK)
WHERE r.id = CAST(@id AS BINARY(16));

-- name: attach
-- Makes records a step of a join.
DECLARE @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
UPDATE r SET step = CAST(@step AS BINARY(16)), joins = CASE WHEN r.joins IS NULL OR r.joins = N'' THEN @join ELSE r.joins + N',' + @join END
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- name: adopt
-- Gives records to the first group of their topic. It leaves out those that others have locked: a transaction that has appended one may
-- stay open for long.
DECLARE @adopted TABLE (seq BIGINT NOT NULL PRIMARY KEY);
INSERT @adopted (seq) SELECT TOP (@limit) r.seq FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
	WHERE r.grp = N'' AND r.topic = {topic} AND r.stage IN (0, 3) AND r.claims >= 0 ORDER BY r.seq;
UPDATE r SET grp = {group} FROM @adopted AS a INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = a.seq WHERE r.grp = N'';
SELECT @@ROWCOUNT AS adopted;
