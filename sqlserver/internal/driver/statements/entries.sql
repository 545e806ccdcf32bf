-- The items of @entries have the id, kind, key, times and value of entries. The order of a list is that of the locks: it gets a place.

-- name: put
-- Writes entries: registrations, workers, pauses, joins and their steps, sagas, the audit. What another transaction inserts in between is
-- updated by the next round.
DECLARE @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, kind NVARCHAR(200) NOT NULL, [key] NVARCHAR(600) NOT NULL, at BIGINT NOT NULL,
	made_at BIGINT NOT NULL, value NVARCHAR(MAX) NOT NULL, done BIT NOT NULL);
DECLARE @done TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), kind NVARCHAR(200), [key] NVARCHAR(600), at BIGINT, made_at BIGINT, value NVARCHAR(MAX), done BIT);
WHILE 1 = 1
BEGIN
	UPDATE e SET at = u.at, made_at = u.made_at, value = u.value OUTPUT inserted.id INTO @done (id)
	FROM @new AS u INNER LOOP JOIN {p:entries} AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0;
	UPDATE u SET done = 1 FROM @new AS u JOIN @done AS d ON d.id = CONVERT(BINARY(16), u.id, 2);
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO {p:entries} (id, kind, [key], at, made_at, value)
		SELECT CONVERT(BINARY(16), u.id, 2), u.kind, u.[key], u.at, u.made_at, u.value FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END

-- name: take
-- Takes dedup keys and the like, unless they are taken and their time has not come. It returns those that it took. What does not exist is
-- inserted as an entry whose time has come, so that the next round takes it, unless another transaction was faster.
DECLARE @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, kind NVARCHAR(200) NOT NULL, [key] NVARCHAR(600) NOT NULL, at BIGINT NOT NULL,
	made_at BIGINT NOT NULL, value NVARCHAR(MAX) NOT NULL, done BIT NOT NULL);
DECLARE @taken TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), kind NVARCHAR(200), [key] NVARCHAR(600), at BIGINT, made_at BIGINT, value NVARCHAR(MAX), done BIT);
WHILE 1 = 1
BEGIN
	UPDATE e SET at = u.at, made_at = u.made_at, value = u.value OUTPUT inserted.id INTO @taken (id)
	FROM @new AS u INNER LOOP JOIN {p:entries} AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0 AND e.at <= @now;
	UPDATE u SET done = 1 FROM @new AS u JOIN @taken AS t ON t.id = CONVERT(BINARY(16), u.id, 2);
	UPDATE u SET done = 1 FROM @new AS u INNER LOOP JOIN {p:entries} AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0 AND e.at > @now;
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO {p:entries} (id, kind, [key], at, made_at, value)
		SELECT CONVERT(BINARY(16), u.id, 2), u.kind, u.[key], 0, u.made_at, u.value FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END
SELECT t.id FROM @taken AS t;

-- name: add
-- Writes an entry that does not exist. It waits for another transaction that has written it: not longer than @patience milliseconds for one that
-- came by this statement, if @patience is not -1. The result is 1 if the entry is new, 0 if it exists, and -1 if the wait was too long.
DECLARE @rc INT = 0, @resource NVARCHAR(255) = @lock;
IF @patience >= 0
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1
	THROW 50901, N'outmill: the lock of a name was not to be had; the transaction may be repeated', 1;
IF @rc >= 0
BEGIN
	INSERT INTO {p:entries} (id, kind, [key], at, made_at, value) VALUES (CAST(@id AS BINARY(16)), @kind, @key, @at, @made, @value);
	SET @rc = @@ROWCOUNT;
END
SELECT @rc AS added;

-- name: put_note
-- Notes a handled message in a caller's transaction: add, with a read of the lease behind the wait. The read waits for a short
-- transaction that is changing the record, and keeps no lock of it. The result is -2 if the lease is lost.
DECLARE @rc INT, @resource NVARCHAR(255) = @lock, @made BIGINT;
EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1
	THROW 50901, N'outmill: the lock of a name was not to be had; the transaction may be repeated', 1;
IF @rc >= 0 AND @leased = 1 AND NOT EXISTS (SELECT 1 FROM {p:records} AS r WITH (READCOMMITTEDLOCK, FORCESEEK)
	WHERE r.id = CAST(@id AS BINARY(16)) AND r.stage = 4 AND r.owner = CAST(@owner AS NVARCHAR(40)) AND r.claims = @claim)
	SET @rc = -2;
IF @rc >= 0
BEGIN
	SET @made = {p:now}();
	INSERT INTO {p:entries} (id, kind, [key], at, made_at, value) VALUES (CAST(@entry AS BINARY(16)), @kind, @key, @made + @keep, @made, @value);
	SET @rc = @@ROWCOUNT;
END
SELECT @rc AS added;

-- name: entries
-- Entries by their keys.
DECLARE @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT e.kind, e.[key], e.at, e.made_at, e.value FROM @u AS u
INNER LOOP JOIN {p:entries} AS e WITH (FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2);

-- name: entries_locked
-- The same, locked in the order of the list. It waits for transactions that have changed one.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT e.kind, e.[key], e.at, e.made_at, e.value FROM @u AS u
INNER LOOP JOIN {p:entries} AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2);

-- name: count_entries
-- How many there are of each kind, in the order of the list.
SELECT (SELECT COUNT_BIG(*) FROM {p:entries} AS e WITH (FORCESEEK) WHERE e.kind = k.kind {bin}) AS n
FROM (SELECT CAST([key] AS INT) AS place, CAST([value] AS NVARCHAR(200)) AS kind FROM OPENJSON(@kinds)) AS k ORDER BY k.place;

-- name: scan
-- Entries by a prefix of their keys, of which @length is the number of bytes. The last character of all ends each prefix.
SELECT e.kind, e.[key], e.at, e.made_at, e.value FROM {p:entries} AS e WITH (FORCESEEK)
WHERE e.kind = {kind} AND e.[key] >= {prefix} AND e.[key] <= {prefix} + NCHAR(65535)
	AND CAST(SUBSTRING(e.[key], 1, @length / 2) AS VARBINARY(1200)) = CAST({prefix} AS VARBINARY(1200)) ORDER BY e.[key];

-- name: range
-- The first entries behind a key.
SELECT TOP (@limit) e.kind, e.[key], e.at, e.made_at, e.value FROM {p:entries} AS e WITH (FORCESEEK) WHERE e.kind = {kind} AND e.[key] > {prefix}
ORDER BY e.[key];

-- name: old
-- Entries whose time has come, without those that other transactions have locked.
SELECT TOP (@limit) e.kind, e.[key], e.at, e.made_at, e.value FROM {p:entries} AS e {free} WHERE e.kind = {kind} AND e.at > 0 AND e.at <= @until
ORDER BY e.at;

-- name: delete_entries
-- Deletes entries. One whose time is another than that of the list stays, unless that is 0.
DECLARE @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), at BIGINT);
INSERT @u SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), at BIGINT);
DELETE e FROM @u AS u
INNER LOOP JOIN {p:entries} AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.at = 0 OR e.at = u.at;
