-- What Apply writes. Each item of @rows has the place and id of a row, and what must not have changed since it was read; the rows are locked
-- in the order of the list, which gets a place. broken is a row that cannot be decoded: its state is overwritten. Each statement returns the places
-- that it has written. The list of them goes into a table variable first, because a table with triggers of others takes no OUTPUT alone.

-- name: lease
-- A claim: @until is the end of the lease, @owner the owner, @worker its name; more_attempts and more_expiries are added.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, {was}, more_attempts INT, more_expiries INT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH ({was}, more_attempts INT, more_expiries INT);
UPDATE r SET stage = 4, wake_at = @until, owner = @owner, worker = @worker, claims = r.claims + 1, attempts = r.attempts + u.more_attempts,
	expiries = r.expiries + u.more_expiries, under = N'', hold = 0 OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner {bin}
	AND r.grp = u.grp {bin} AND ISNULL(r.step, {none}) = CONVERT(BINARY(16), u.step, 2);
SELECT w.seq FROM @written AS w;

-- name: extend
-- The extension of leases. until are their ends.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, {was}, until BIGINT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH ({was}, until BIGINT);
UPDATE r SET wake_at = u.until OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner {bin}
	AND r.grp = u.grp {bin} AND ISNULL(r.step, {none}) = CONVERT(BINARY(16), u.step, 2);
SELECT w.seq FROM @written AS w;

-- name: change
-- Every other change: what a claim admits or holds, what ends a lease, what an operator does. {moves} is nothing, or the new group: it is
-- in almost every index, so it is set only where it changes. An error that is NULL leaves the stored one; tried is put in front of the history,
-- as UTF-8 in hexadecimal digits.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, {was}, broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH ({was}, broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
UPDATE r SET stage = u.to_stage, wake_at = u.to_wake, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts, claims = u.to_claims,
	expiries = u.expiries, owner = u.to_owner, worker = u.worker, under = u.under, hold = u.hold, parked = u.parked, processed_at = u.processed_at,
	processed_by = u.processed_by, last_error = ISNULL(u.error, r.last_error),
	history = CASE WHEN u.tried = '' THEN r.history ELSE SUBSTRING(CONVERT(VARBINARY(MAX), u.tried, 2) + ISNULL(r.history, 0x), 1, 3072) END {moves}
	OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND (u.broken = 1 OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner {bin}
	AND r.grp = u.grp {bin} AND ISNULL(r.step, {none}) = CONVERT(BINARY(16), u.step, 2));
SELECT w.seq FROM @written AS w;

-- name: delete
-- An ack where processed records do not stay, and a deletion by an operator or the janitor.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, {was}, broken BIT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH ({was}, broken BIT);
DELETE r OUTPUT deleted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND (u.broken = 1 OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner {bin}
	AND r.grp = u.grp {bin} AND ISNULL(r.step, {none}) = CONVERT(BINARY(16), u.step, 2));
SELECT w.seq FROM @written AS w;

-- name: open_notes
-- The next claim looks at these notes: something about their keys has changed. One that a claim writes at this moment is left out,
-- because that claim has set when the next one looks at it.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32));
UPDATE n SET blocker = N'', look_at = 0, looks = 0, paused = 0
FROM @u AS u
INNER LOOP JOIN {p:notes} AS n WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2)
WHERE n.blocker <> N'' OR n.look_at <> 0 OR n.looks <> 0;

-- name: drop_notes
-- Deletes notes that hold nothing. One that somebody has written since it was read stays: version is that of then, 0 if it was not read, or
-- if this transaction has written the note. A settlement may have opened the note, so its looks alone do not show that.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), looks INT, version BIGINT);
INSERT @u SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32), looks INT, version BIGINT);
DELETE n FROM @u AS u
INNER LOOP JOIN {p:notes} AS n WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2)
WHERE n.looks = u.looks AND (u.version = 0 OR CAST(n.version AS BIGINT) = u.version);

-- name: put_notes
-- What a claim leaves of notes. Those of pauses (same) are written without a look at them: their looks go up, and their heads go down. What
-- does not exist is inserted in such a state that the next round makes it right: so it does not matter if another transaction was faster.
DECLARE @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, grp NVARCHAR(255) NOT NULL, topic NVARCHAR(260) NOT NULL, name NVARCHAR(260) NOT NULL,
	blocker NVARCHAR(40) NOT NULL, head BIGINT NOT NULL, look_at BIGINT NOT NULL, looks INT NOT NULL, paused BIT NOT NULL, same BIT NOT NULL, done BIT NOT NULL);
DECLARE @done TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32), grp NVARCHAR(255), topic NVARCHAR(260), name NVARCHAR(260), blocker NVARCHAR(40), head BIGINT,
	look_at BIGINT, looks INT, paused BIT, same BIT, done BIT);
WHILE 1 = 1
BEGIN
	UPDATE n SET blocker = u.blocker, look_at = u.look_at, paused = u.paused, looks = CASE u.same WHEN 1 THEN n.looks + 1 ELSE u.looks END,
		head = CASE WHEN u.same = 1 AND n.head < u.head THEN n.head ELSE u.head END OUTPUT inserted.id INTO @done (id)
	FROM @new AS u INNER LOOP JOIN {p:notes} AS n WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0;
	UPDATE u SET done = 1 FROM @new AS u JOIN @done AS d ON d.id = CONVERT(BINARY(16), u.id, 2);
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO {p:notes} (id, grp, topic, name, blocker, head, look_at, looks, paused)
		SELECT CONVERT(BINARY(16), u.id, 2), u.grp, u.topic, u.name, u.blocker, u.head, u.look_at, CASE u.same WHEN 1 THEN u.looks - 1 ELSE u.looks END, u.paused
		FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END

-- name: forget
-- The notes of a group that is dropped.
DELETE n FROM {p:notes} AS n WITH (ROWLOCK, FORCESEEK) WHERE n.grp = {group};

-- name: ack
-- An ack in one round trip, where processed records do not stay: a transaction that deletes by leases, and opens the notes of the keys. Each item of
-- @rows has the id and the claim number of a lease, all of @owner. The result has the ids of those that are steps of joins: the engine counts them. They are
-- locked, so that none becomes a step between the two statements.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), claims INT);
DECLARE @gone TABLE (grp NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
	[key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (id VARCHAR(32), claims INT);
BEGIN TRANSACTION;
SELECT r.id FROM @u AS u INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2)
WHERE r.stage = 4 AND r.owner = {owner} AND r.claims = u.claims AND r.step IS NOT NULL;
DELETE r OUTPUT deleted.grp, deleted.topic, deleted.[key] INTO @gone (grp, topic, [key])
FROM @u AS u INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2)
WHERE r.stage = 4 AND r.owner = {owner} AND r.claims = u.claims AND r.step IS NULL;
{open_gone}
COMMIT TRANSACTION;
