-- ack
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill ack */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), claims INT);
DECLARE @gone TABLE (grp NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
	[key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (id VARCHAR(32), claims INT);
BEGIN TRANSACTION;
SELECT r.id FROM @u AS u INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2)
WHERE r.stage = 4 AND r.owner = CAST(@owner AS NVARCHAR(40)) AND r.claims = u.claims AND r.step IS NOT NULL;
DELETE r OUTPUT deleted.grp, deleted.topic, deleted.[key] INTO @gone (grp, topic, [key])
FROM @u AS u INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2)
WHERE r.stage = 4 AND r.owner = CAST(@owner AS NVARCHAR(40)) AND r.claims = u.claims AND r.step IS NULL;
UPDATE n SET blocker = N'', look_at = 0, looks = 0, paused = 0
FROM (SELECT DISTINCT TOP (9223372036854775807) g.grp, g.topic, N'k' + g.[key] AS name FROM @gone AS g WHERE g.[key] <> N''
	ORDER BY g.grp, g.topic, name) AS k
INNER LOOP JOIN [dbo].[OutboxNote] AS n WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON n.grp = k.grp AND n.topic = k.topic AND n.name = k.name
WHERE n.blocker <> N'' OR n.look_at <> 0 OR n.looks <> 0;
COMMIT TRANSACTION;

-- add
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill add */ @rc INT = 0, @resource NVARCHAR(255) = @lock;
IF @patience >= 0
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1
	THROW 50901, N'outmill: the lock of a name was not to be had; the transaction may be repeated', 1;
IF @rc >= 0
BEGIN
	INSERT INTO [dbo].[OutboxEntry] (id, kind, [key], at, made_at, value) VALUES (CAST(@id AS BINARY(16)), @kind, @key, @at, @made, @value);
	SET @rc = @@ROWCOUNT;
END
SELECT @rc AS added;

-- adopt
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill adopt */ @adopted TABLE (seq BIGINT NOT NULL PRIMARY KEY);
INSERT @adopted (seq) SELECT TOP (@limit) r.seq FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
	WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage IN (0, 3) AND r.claims >= 0 ORDER BY r.seq;
UPDATE r SET grp = CAST(@group AS NVARCHAR(255)) FROM @adopted AS a INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = a.seq WHERE r.grp = N'';
SELECT @@ROWCOUNT AS adopted;

-- after
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill after */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by, CAST(CASE WHEN r.stage = 1 AND r.hold = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> N'') THEN 1 ELSE 0 END AS BIT) AS blocked FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.id > CAST(@id AS BINARY(16)) ORDER BY r.id;

-- any_order
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill any_order */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- any_order, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill any_order */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- attach
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill attach */ @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
UPDATE r SET step = CAST(@step AS BINARY(16)), joins = CASE WHEN r.joins IS NULL OR r.joins = N'' THEN @join ELSE r.joins + N',' + @join END
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- bump
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
UPDATE /* outmill bump */ [dbo].[OutboxMeta] SET routes = CASE WHEN @routes = 0 THEN routes WHEN routes < [dbo].[Outbox_Now]() THEN [dbo].[Outbox_Now]() ELSE routes + 1 END,
	pauses = CASE WHEN @pauses = 0 THEN pauses WHEN pauses < [dbo].[Outbox_Now]() THEN [dbo].[Outbox_Now]() ELSE pauses + 1 END WHERE only_row = 1;
SELECT m.routes, m.pauses FROM [dbo].[OutboxMeta] AS m WITH (UPDLOCK) WHERE m.only_row = 1;

-- by_done
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_done */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.stage = 5 AND r.processed_at <= @until ORDER BY r.processed_at, r.seq;

-- by_done, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_done */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.stage = 5 AND r.processed_at <= @until ORDER BY r.processed_at, r.seq;

-- by_ended
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_ended */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.stage = 4 AND r.wake_at <= @now ORDER BY r.wake_at;

-- by_ended, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_ended */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.stage = 4 AND r.wake_at <= @now ORDER BY r.wake_at;

-- by_expiry
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_expiry */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.expires_at > 0 AND r.expires_at <= @now AND r.stage < 5
	AND (r.stage <> 4 OR r.wake_at <= @now) ORDER BY r.expires_at, r.seq;

-- by_expiry, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_expiry */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.expires_at > 0 AND r.expires_at <= @now AND r.stage < 5
	AND (r.stage <> 4 OR r.wake_at <= @now) ORDER BY r.expires_at, r.seq;

-- by_held
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_held */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 ORDER BY r.seq;

-- by_held, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_held */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 ORDER BY r.seq;

-- by_hold
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_hold */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.hold = CAST(@hold AS TINYINT)
ORDER BY r.seq;

-- by_hold, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_hold */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.hold = CAST(@hold AS TINYINT)
ORDER BY r.seq;

-- by_key
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_key */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.keyed = 1 AND r.stage IN (0, 1, 2, 3) AND r.seq > @from ORDER BY r.seq;

-- by_key, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_key */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.keyed = 1 AND r.stage IN (0, 1, 2, 3) AND r.seq > @from ORDER BY r.seq;

-- by_later
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT)
	AND r.wake_at > 0 AND r.wake_at > @now ORDER BY r.wake_at, r.seq;

-- by_later, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT)
	AND r.wake_at > 0 AND r.wake_at > @now ORDER BY r.wake_at, r.seq;

-- by_line
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_line */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0 ORDER BY r.seq;

-- by_line, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_line */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0 ORDER BY r.seq;

-- by_open
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_open */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.stage = 0) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.stage = 1) AS held
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp >= N'' AND r.wake_at > 0) AS later) AS r;

-- by_parked
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_parked */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.parked = 1 AND r.seq > @from ORDER BY r.seq;

-- by_parked, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_parked */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.parked = 1 AND r.seq > @from ORDER BY r.seq;

-- by_place
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_place */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1
		ORDER BY r.seq) AS held) AS r ORDER BY r.seq;

-- by_place, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_place */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1
		ORDER BY r.seq) AS held) AS r ORDER BY r.seq;

-- by_stage_later
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_stage_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.wake_at > 0
ORDER BY r.wake_at, r.seq;

-- by_stage_later, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_stage_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.wake_at > 0
ORDER BY r.wake_at, r.seq;

-- by_stage_settled
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_stage_settled */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.stage > 4
ORDER BY r.seq;

-- by_stage_settled, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_stage_settled */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.stage > 4
ORDER BY r.seq;

-- by_step
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_step */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.step IS NOT NULL AND r.step = CAST(@step AS BINARY(16)) ORDER BY r.seq;

-- by_step, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_step */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.step IS NOT NULL AND r.step = CAST(@step AS BINARY(16)) ORDER BY r.seq;

-- by_unrouted
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_unrouted */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage IN (0, 3) ORDER BY r.seq;

-- by_unrouted, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_unrouted */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage IN (0, 3) ORDER BY r.seq;

-- by_waiter
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill by_waiter */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.waits_for IS NOT NULL AND r.waits_for = CAST(@join AS BINARY(16))
	AND r.stage IN (2, 3) AND r.wake_at > @now ORDER BY r.seq;

-- by_waiter, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill by_waiter */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.waits_for IS NOT NULL AND r.waits_for = CAST(@join AS BINARY(16))
	AND r.stage IN (2, 3) AND r.wake_at > @now ORDER BY r.seq;

-- change
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill change */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
UPDATE r SET stage = u.to_stage, wake_at = u.to_wake, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts, claims = u.to_claims,
	expiries = u.expiries, owner = u.to_owner, worker = u.worker, under = u.under, hold = u.hold, parked = u.parked, processed_at = u.processed_at,
	processed_by = u.processed_by, last_error = ISNULL(u.error, r.last_error),
	history = CASE WHEN u.tried = '' THEN r.history ELSE SUBSTRING(CONVERT(VARBINARY(MAX), u.tried, 2) + ISNULL(r.history, 0x), 1, 3072) END 
	OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND (u.broken = 1 OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner COLLATE Latin1_General_100_BIN2
	AND r.grp = u.grp COLLATE Latin1_General_100_BIN2 AND ISNULL(r.step, CAST(0x AS BINARY(16))) = CONVERT(BINARY(16), u.step, 2));
SELECT w.seq FROM @written AS w;

-- coming
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill coming */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- coming, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill coming */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;

-- count of any_order
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill any_order */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r) AS f;

-- count of by_held
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_held */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 ORDER BY r.seq) AS f;

-- count of by_hold
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_hold */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.hold = CAST(@hold AS TINYINT)
ORDER BY r.seq) AS f;

-- count of by_key
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_key */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.keyed = 1 AND r.stage IN (0, 1, 2, 3) AND r.seq > @from ORDER BY r.seq) AS f;

-- count of by_later
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT)
	AND r.wake_at > 0 AND r.wake_at > @now ORDER BY r.wake_at, r.seq) AS f;

-- count of by_line
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_line */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0 ORDER BY r.seq) AS f;

-- count of by_parked
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_parked */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.[key] = CAST(@key AS NVARCHAR(255))
	AND r.parked = 1 AND r.seq > @from ORDER BY r.seq) AS f;

-- count of by_place
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_place */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq) AS ready
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1
		ORDER BY r.seq) AS held) AS r ORDER BY r.seq) AS f;

-- count of by_stage_later
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_stage_later */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.wake_at > 0
ORDER BY r.wake_at, r.seq) AS f;

-- count of by_stage_settled
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill by_stage_settled */ TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = CAST(@stage AS SMALLINT) AND r.stage > 4
ORDER BY r.seq) AS f;

-- count of coming
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (SELECT /* outmill coming */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
	SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
	UNION ALL SELECT * FROM (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
		AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r) AS f;

-- count_entries
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill count_entries */ (SELECT COUNT_BIG(*) FROM [dbo].[OutboxEntry] AS e WITH (FORCESEEK) WHERE e.kind = k.kind COLLATE Latin1_General_100_BIN2) AS n
FROM (SELECT CAST([key] AS INT) AS place, CAST([value] AS NVARCHAR(200)) AS kind FROM OPENJSON(@kinds)) AS k ORDER BY k.place;

-- database
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill database */ d.compatibility_level AS level, d.is_read_committed_snapshot_on AS versioned, CAST(CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN 0 ELSE 1 END AS BIT) AS babelfish
FROM sys.databases AS d WHERE d.name = DB_NAME();

-- delete
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill delete */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT);
DELETE r OUTPUT deleted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND (u.broken = 1 OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner COLLATE Latin1_General_100_BIN2
	AND r.grp = u.grp COLLATE Latin1_General_100_BIN2 AND ISNULL(r.step, CAST(0x AS BINARY(16))) = CONVERT(BINARY(16), u.step, 2));
SELECT w.seq FROM @written AS w;

-- delete_entries
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill delete_entries */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), at BIGINT);
INSERT @u SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), at BIGINT);
DELETE e FROM @u AS u
INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.at = 0 OR e.at = u.at;

-- drop_notes
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill drop_notes */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32), looks INT, version BIGINT);
INSERT @u SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32), looks INT, version BIGINT);
DELETE n FROM @u AS u
INNER LOOP JOIN [dbo].[OutboxNote] AS n WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2)
WHERE n.looks = u.looks AND (u.version = 0 OR CAST(n.version AS BIGINT) = u.version);

-- due
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill due */ @line TABLE (topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON));
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @topic NVARCHAR(260);
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
IF @lines IS NOT NULL
	INSERT @line SELECT * FROM OPENJSON(@lines) WITH (topic NVARCHAR(260) N'$');
ELSE
BEGIN
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 0 ORDER BY r.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.stage = 0 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.wake_at > 0 ORDER BY r.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.wake_at > 0 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 1 ORDER BY r.topic);
	WHILE @held = 1 AND @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.stage = 1 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) n.topic FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) ORDER BY n.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) n.topic FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic > @topic ORDER BY n.topic);
	END
END
SELECT s.topic FROM (SELECT l.topic, (SELECT MIN(v.since) FROM (VALUES
		((SELECT TOP (1) CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END FROM [dbo].[Outbox] AS r WITH (FORCESEEK)
			WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 0 ORDER BY r.seq)),
		((SELECT TOP (1) r.wake_at FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 2
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) r.wake_at FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 3
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) r.wake_at FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 4
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) CAST(0 AS BIGINT) FROM @freed AS f JOIN [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			ON n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.blocker = f.blocker)),
		((SELECT TOP (1) n.look_at FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic
			AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at)),
		((SELECT TOP (1) CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END FROM [dbo].[Outbox] AS r WITH (FORCESEEK)
			WHERE @held = 1 AND r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1 ORDER BY r.seq))) AS v (since)) AS since
	FROM @line AS l) AS s WHERE s.since IS NOT NULL ORDER BY s.since, s.topic;

-- entries
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill entries */ @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT e.kind, e.[key], e.at, e.made_at, e.value FROM @u AS u
INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2);

-- entries_locked
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill entries_locked */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT e.kind, e.[key], e.at, e.made_at, e.value FROM @u AS u
INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2);

-- examined_user
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill examined_user */ SUSER_SNAME() AS name, CAST(ISNULL(HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION'), 0) AS BIT) AS sees_all;

-- extend
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill extend */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), until BIGINT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), until BIGINT);
UPDATE r SET wake_at = u.until OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner COLLATE Latin1_General_100_BIN2
	AND r.grp = u.grp COLLATE Latin1_General_100_BIN2 AND ISNULL(r.step, CAST(0x AS BINARY(16))) = CONVERT(BINARY(16), u.step, 2);
SELECT w.seq FROM @written AS w;

-- find
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill find */ @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by, CAST(CASE WHEN r.stage = 1 AND r.hold = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> N'') THEN 1 ELSE 0 END AS BIT) AS blocked FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- find_locked
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill find_locked */ r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by, CAST(CASE WHEN r.stage = 1 AND r.hold = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> N'') THEN 1 ELSE 0 END AS BIT) AS blocked FROM [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE r.id = CAST(@id AS BINARY(16));

-- forget
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DELETE /* outmill forget */ n FROM [dbo].[OutboxNote] AS n WITH (ROWLOCK, FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255));

-- has_meta
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill has_meta */ CASE WHEN OBJECT_ID(N'[dbo].[OutboxMeta]', N'U') IS NULL THEN 0 WHEN COL_LENGTH(N'[dbo].[OutboxMeta]', N'routes') IS NULL THEN 1 ELSE 2 END AS found;

-- has_schema
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill has_schema */ CASE WHEN SCHEMA_ID(@name) IS NULL THEN 0 ELSE 1 END AS found;

-- insert
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
INSERT /* outmill insert */ INTO [dbo].[Outbox] (id, grp, topic, [key], keyed, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, step, waits_for, message_id,
	correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload,
	processed_at, attempts, claims, expiries, hold, parked, owner, worker, under, processed_by)
SELECT n.id, n.grp, n.topic, n.[key], CASE n.[key] WHEN N'' THEN 0 ELSE 1 END, n.tenant_id, n.created_at, n.size, n.stage, n.wake_at, n.next_at, n.expires_at, n.due_at, n.step, n.waits_for, n.message_id,
	n.correlation_id, n.causation_id, n.traceparent, n.tracestate, n.dedup_key, n.joins, n.metadata, n.payload,
	0, 0, 0, 0, 0, 0, N'', N'', N'', N'' FROM @rows AS n ORDER BY n.place;

-- key_states
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill key_states */ @asked TABLE ([key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @now BIGINT = [dbo].[Outbox_Now]();
INSERT @asked SELECT * FROM OPENJSON(@names) WITH ([key] NVARCHAR(255) N'$');
SELECT 4 AS kind, 0 AS line, s.waiting, CAST(0x AS BINARY(16)) AS id, k.[key], N'' AS tenant_id, s.held, 0 AS size, 0 AS stage, s.parked, s.due, 0 AS expires_at, 0 AS attempts, 0 AS claims,
	0 AS expiries, s.other, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, 0 AS parked_row, 0 AS processed_at, N'' AS processed_by
FROM @asked AS k CROSS APPLY [dbo].[Outbox_KeyState](CAST(@group AS NVARCHAR(255)), CAST(@topic AS NVARCHAR(260)), k.[key], CAST(@owner AS NVARCHAR(40)), @now) AS s;

-- lacking_rights
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill lacking_rights */ r.name, r.class, r.permission, CASE r.class WHEN N'TYPE' THEN TYPE_ID(r.name) ELSE OBJECT_ID(r.name) END AS object
FROM (SELECT JSON_VALUE([value], '$.name') AS name, JSON_VALUE([value], '$.class') AS class,
	JSON_VALUE([value], '$.permission') AS permission FROM OPENJSON(@rights)) AS r
WHERE ISNULL(HAS_PERMS_BY_NAME(r.name, r.class, r.permission), 0) = 0;

-- lease
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill lease */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), more_attempts INT, more_expiries INT);
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), more_attempts INT, more_expiries INT);
UPDATE r SET stage = 4, wake_at = @until, owner = @owner, worker = @worker, claims = r.claims + 1, attempts = r.attempts + u.more_attempts,
	expiries = r.expiries + u.more_expiries, under = N'', hold = 0 OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner COLLATE Latin1_General_100_BIN2
	AND r.grp = u.grp COLLATE Latin1_General_100_BIN2 AND ISNULL(r.step, CAST(0x AS BINARY(16))) = CONVERT(BINARY(16), u.step, 2);
SELECT w.seq FROM @written AS w;

-- lines_of
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill lines_of */ @line TABLE (topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON));
DECLARE @topic NVARCHAR(260) = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 0 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.stage = 0 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.wake_at > 0 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.wake_at > 0 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 1 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.stage = 1 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage > 4 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic > @topic AND r.stage > 4 ORDER BY r.topic);
END
SELECT l.topic FROM @line AS l;

-- load
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill load */ @u TABLE (id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@ids) WITH (id VARCHAR(32) N'$');
SELECT r.id, r.due_at, r.message_id, ISNULL(r.correlation_id, N'') AS correlation_id, ISNULL(r.causation_id, N'') AS causation_id,
	ISNULL(r.traceparent, N'') AS traceparent, ISNULL(r.tracestate, N'') AS tracestate, ISNULL(r.dedup_key, N'') AS dedup_key,
	ISNULL(r.joins, N'') AS joins, ISNULL(r.last_error, N'') AS last_error,
	CASE WHEN @want & 1 <> 0 THEN ISNULL(r.metadata, N'') ELSE N'' END AS metadata, CASE WHEN @want & 2 <> 0 THEN r.payload END AS payload,
	CASE WHEN @want & 4 <> 0 THEN r.history END AS history
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (FORCESEEK) ON r.id = CONVERT(BINARY(16), u.id, 2);

-- lock_schema
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill lock_schema */ @rc INT, @resource NVARCHAR(255) = @name;
EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @rc < 0 THROW 50901, N'outmill: somebody else is at the schema; the call may be repeated', 1;

-- lock_waits
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill lock_waits */ TOP (@most) r.session_id, ISNULL(s.program_name, N'') AS program, r.wait_type, CAST(r.wait_time AS BIGINT) AS waited, r.blocking_session_id,
	ISNULL(b.program_name, N'') AS blocker, ISNULL(b.status, N'') AS status
FROM sys.dm_exec_requests AS r JOIN sys.dm_exec_sessions AS s ON s.session_id = r.session_id
LEFT JOIN sys.dm_exec_sessions AS b ON b.session_id = r.blocking_session_id
WHERE r.database_id = DB_ID() AND r.wait_type LIKE N'LCK%' AND r.wait_time > @limit
ORDER BY r.wait_time DESC;

-- moving change
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill change */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
DECLARE @written TABLE (seq BIGINT NOT NULL);
INSERT @u SELECT * FROM OPENJSON(@rows) WITH (seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32), broken BIT, to_stage SMALLINT, to_wake BIGINT, next_at BIGINT, expires_at BIGINT, attempts INT, to_claims INT, expiries INT, to_owner NVARCHAR(40), worker NVARCHAR(255), under NVARCHAR(260), hold TINYINT, parked BIT, processed_at BIGINT, processed_by NVARCHAR(255), to_grp NVARCHAR(255), error NVARCHAR(MAX), tried VARCHAR(MAX));
UPDATE r SET stage = u.to_stage, wake_at = u.to_wake, next_at = u.next_at, expires_at = u.expires_at, attempts = u.attempts, claims = u.to_claims,
	expiries = u.expiries, owner = u.to_owner, worker = u.worker, under = u.under, hold = u.hold, parked = u.parked, processed_at = u.processed_at,
	processed_by = u.processed_by, last_error = ISNULL(u.error, r.last_error),
	history = CASE WHEN u.tried = '' THEN r.history ELSE SUBSTRING(CONVERT(VARBINARY(MAX), u.tried, 2) + ISNULL(r.history, 0x), 1, 3072) END , grp = u.to_grp
	OUTPUT inserted.seq INTO @written (seq)
FROM @u AS u
INNER LOOP JOIN [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = u.seq
WHERE r.id = CONVERT(BINARY(16), u.id, 2) AND (u.broken = 1 OR r.stage = u.stage AND r.wake_at = u.wake AND r.claims = u.claims AND r.owner = u.owner COLLATE Latin1_General_100_BIN2
	AND r.grp = u.grp COLLATE Latin1_General_100_BIN2 AND ISNULL(r.step, CAST(0x AS BINARY(16))) = CONVERT(BINARY(16), u.step, 2));
SELECT w.seq FROM @written AS w;

-- old
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill old */ TOP (@limit) e.kind, e.[key], e.at, e.made_at, e.value FROM [dbo].[OutboxEntry] AS e WITH (FORCESEEK) WHERE e.kind = CAST(@kind AS NVARCHAR(200)) AND e.at > 0 AND e.at <= @until
ORDER BY e.at;

-- old, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT /* outmill old */ TOP (@limit) e.kind, e.[key], e.at, e.made_at, e.value FROM [dbo].[OutboxEntry] AS e WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE e.kind = CAST(@kind AS NVARCHAR(200)) AND e.at > 0 AND e.at <= @until
ORDER BY e.at;

-- old_transactions
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill old_transactions */ TOP (@most) s.session_id, ISNULL(s.program_name, N'') AS program, s.status,
	DATEDIFF_BIG(MILLISECOND, d.database_transaction_begin_time, GETDATE()) AS age
FROM sys.dm_tran_database_transactions AS d JOIN sys.dm_tran_session_transactions AS t ON t.transaction_id = d.transaction_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = t.session_id
WHERE d.database_id = DB_ID() AND s.session_id <> @@SPID AND d.database_transaction_begin_time < DATEADD(SECOND, -@seconds, GETDATE())
ORDER BY d.database_transaction_begin_time;

-- open_notes
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill open_notes */ @u TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32));
INSERT @u SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32));
UPDATE n SET blocker = N'', look_at = 0, looks = 0, paused = 0
FROM @u AS u
INNER LOOP JOIN [dbo].[OutboxNote] AS n WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2)
WHERE n.blocker <> N'' OR n.look_at <> 0 OR n.looks <> 0;

-- page
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill page */ @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT = 0, @now BIGINT, @found BIGINT = 0, @resource NVARCHAR(255) = @lock;
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
IF @locks = 1
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1 OR @rc = -1 AND @patience > 0
	THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
SET @now = [dbo].[Outbox_Now]();
SELECT @rc AS rc, @now AS now;
IF @rc >= 0
BEGIN
	SELECT r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
		SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
		UNION ALL SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
		UNION ALL SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;
	SET @found = @@ROWCOUNT;
END
IF @rc >= 0 AND @found = 0
BEGIN
	WITH noted AS (SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l
		UNION SELECT n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE @keys = 1 AND n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.name >= N'q' AND n.name < N'r') AS a ORDER BY a.head, a.name),
	shares AS (SELECT CASE WHEN COUNT(*) < 2 THEN @limit WHEN COUNT(*) > @limit THEN 1 ELSE @limit / COUNT(*) END AS share FROM noted AS n
		WHERE n.name >= N'k' AND n.name < N'l'),
	held AS (SELECT h.* FROM noted AS n CROSS APPLY (
		SELECT TOP (CASE WHEN @keys = 1 AND n.name >= N'k' AND n.name < N'l' THEN (SELECT s.share FROM shares AS s) ELSE @limit END) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by
		FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h),
	ready AS (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE @keys = 1 AND r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq),
	wanted AS (SELECT h.[key] FROM held AS h UNION SELECT y.[key] FROM ready AS y
		UNION SELECT SUBSTRING(n.name, 2, 255) FROM noted AS n WHERE n.name >= N'k' AND n.name < N'l')
	SELECT 0 AS kind, 0 AS line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260))
		AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
	UNION ALL SELECT 1, 0, n.head, CAST(0x AS BINARY(16)), n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N'' FROM noted AS n
	UNION ALL SELECT 2, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM held AS h
	UNION ALL SELECT 3, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM ready AS h
	UNION ALL SELECT 4, 0, s.waiting, CAST(0x AS BINARY(16)), k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N''
		FROM wanted AS k CROSS APPLY [dbo].[Outbox_KeyState](CAST(@group AS NVARCHAR(255)), CAST(@topic AS NVARCHAR(260)), k.[key], CAST(@owner AS NVARCHAR(40)), @now) AS s WHERE @keys = 1 AND k.[key] <> N'';
END

-- page, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE /* outmill page */ @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT = 0, @now BIGINT, @found BIGINT = 0, @resource NVARCHAR(255) = @lock;
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
IF @locks = 1
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1 OR @rc = -1 AND @patience > 0
	THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
SET @now = [dbo].[Outbox_Now]();
SELECT @rc AS rc, @now AS now;
IF @rc >= 0
BEGIN
	SELECT r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM (
		SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
		UNION ALL SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 3
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
		UNION ALL SELECT * FROM (SELECT TOP (@due) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;
	SET @found = @@ROWCOUNT;
END
IF @rc >= 0 AND @found = 0
BEGIN
	WITH noted AS (SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l
		UNION SELECT n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE @keys = 1 AND n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.name >= N'q' AND n.name < N'r') AS a ORDER BY a.head, a.name),
	shares AS (SELECT CASE WHEN COUNT(*) < 2 THEN @limit WHEN COUNT(*) > @limit THEN 1 ELSE @limit / COUNT(*) END AS share FROM noted AS n
		WHERE n.name >= N'k' AND n.name < N'l'),
	held AS (SELECT h.* FROM noted AS n CROSS APPLY (
		SELECT TOP (CASE WHEN @keys = 1 AND n.name >= N'k' AND n.name < N'l' THEN (SELECT s.share FROM shares AS s) ELSE @limit END) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by
		FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h),
	ready AS (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE @keys = 1 AND r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 0
		ORDER BY r.seq),
	wanted AS (SELECT h.[key] FROM held AS h UNION SELECT y.[key] FROM ready AS y
		UNION SELECT SUBSTRING(n.name, 2, 255) FROM noted AS n WHERE n.name >= N'k' AND n.name < N'l')
	SELECT 0 AS kind, 0 AS line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260))
		AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
	UNION ALL SELECT 1, 0, n.head, CAST(0x AS BINARY(16)), n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N'' FROM noted AS n
	UNION ALL SELECT 2, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM held AS h
	UNION ALL SELECT 3, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM ready AS h
	UNION ALL SELECT 4, 0, s.waiting, CAST(0x AS BINARY(16)), k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N''
		FROM wanted AS k CROSS APPLY [dbo].[Outbox_KeyState](CAST(@group AS NVARCHAR(255)), CAST(@topic AS NVARCHAR(260)), k.[key], CAST(@owner AS NVARCHAR(40)), @now) AS s WHERE @keys = 1 AND k.[key] <> N'';
END

-- page_held
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill page_held */ @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @noted TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, name NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
	blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL, head BIGINT NOT NULL, look_at BIGINT NOT NULL, looks INT NOT NULL, version BIGINT NOT NULL);
DECLARE @now BIGINT = [dbo].[Outbox_Now]();
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
SELECT 0 AS rc, @now AS now;
INSERT @noted (name, blocker, head, look_at, looks, version)
	SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l) AS a ORDER BY a.head, a.name;
SELECT 0 AS kind, 0 AS line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260))
	AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
UNION ALL SELECT 1, 0, n.head, CAST(0x AS BINARY(16)), n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N'' FROM @noted AS n
UNION ALL SELECT 2, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM (SELECT h.* FROM @noted AS n CROSS APPLY (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK)
	WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h) AS h;

-- page_held, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE /* outmill page_held */ @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @noted TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, name NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
	blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL, head BIGINT NOT NULL, look_at BIGINT NOT NULL, looks INT NOT NULL, version BIGINT NOT NULL);
DECLARE @now BIGINT = [dbo].[Outbox_Now]();
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
SELECT 0 AS rc, @now AS now;
INSERT @noted (name, blocker, head, look_at, looks, version)
	SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK)
			WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = CAST(@topic AS NVARCHAR(260)) AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l) AS a ORDER BY a.head, a.name;
SELECT 0 AS kind, 0 AS line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = CAST(@topic AS NVARCHAR(260))
	AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
UNION ALL SELECT 1, 0, n.head, CAST(0x AS BINARY(16)), n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N'' FROM @noted AS n
UNION ALL SELECT 2, 0, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM (SELECT h.* FROM @noted AS n CROSS APPLY (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
	WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h) AS h;

-- pages
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill pages */ @line TABLE (line INT NOT NULL PRIMARY KEY, topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL, resource NVARCHAR(255) NOT NULL, busy BIT NOT NULL);
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT, @now BIGINT, @n INT = 0, @resource NVARCHAR(255);
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
INSERT @line SELECT * FROM OPENJSON(@lines) WITH (line INT, topic NVARCHAR(260), resource NVARCHAR(255), busy BIT);
WHILE @locks = 1 AND EXISTS (SELECT 1 FROM @line AS l WHERE l.line = @n)
BEGIN
	SET @resource = (SELECT l.resource FROM @line AS l WHERE l.line = @n);
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
	IF @rc < -1
		THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
	IF @rc < 0
		UPDATE l SET busy = 1 FROM @line AS l WHERE l.line = @n;
	SET @n = @n + 1;
END
SET @now = [dbo].[Outbox_Now]();
WITH looked AS (SELECT l.line, l.topic, CASE WHEN l.busy = 1
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 2 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 3 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 4 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM @freed AS f JOIN [dbo].[OutboxNote] AS n WITH (FORCESEEK)
		ON n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.blocker = f.blocker)
	OR EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.look_at > 0 AND n.look_at <= @now)
	OR @keys = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.name >= N'q' AND n.name < N'r')
	OR @keys = 0 AND EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = l.topic AND r.stage IN (0, 3))
	THEN 1 ELSE 0 END AS alone FROM @line AS l),
ready AS (SELECT l.line, h.* FROM looked AS l CROSS APPLY (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (FORCESEEK)
	WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 0 ORDER BY r.seq) AS h WHERE l.alone = 0),
wanted AS (SELECT DISTINCT h.line, h.topic, h.[key] FROM ready AS h WHERE @keys = 1 AND h.[key] <> N'')
SELECT 1 AS kind, l.line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, 0 AS parked, 0 AS processed_at, N'' AS processed_by FROM looked AS l WHERE l.alone = 1
UNION ALL SELECT 3, h.line, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM ready AS h
UNION ALL SELECT 4, k.line, s.waiting, CAST(0x AS BINARY(16)), k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N''
	FROM wanted AS k CROSS APPLY [dbo].[Outbox_KeyState](CAST(@group AS NVARCHAR(255)), k.topic, k.[key], CAST(@owner AS NVARCHAR(40)), @now) AS s;

-- pages, with locks
SET NOCOUNT, XACT_ABORT ON;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE /* outmill pages */ @line TABLE (line INT NOT NULL PRIMARY KEY, topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL, resource NVARCHAR(255) NOT NULL, busy BIT NOT NULL);
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT, @now BIGINT, @n INT = 0, @resource NVARCHAR(255);
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
INSERT @line SELECT * FROM OPENJSON(@lines) WITH (line INT, topic NVARCHAR(260), resource NVARCHAR(255), busy BIT);
WHILE @locks = 1 AND EXISTS (SELECT 1 FROM @line AS l WHERE l.line = @n)
BEGIN
	SET @resource = (SELECT l.resource FROM @line AS l WHERE l.line = @n);
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
	IF @rc < -1
		THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
	IF @rc < 0
		UPDATE l SET busy = 1 FROM @line AS l WHERE l.line = @n;
	SET @n = @n + 1;
END
SET @now = [dbo].[Outbox_Now]();
WITH looked AS (SELECT l.line, l.topic, CASE WHEN l.busy = 1
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 2 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 3 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 4 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM @freed AS f JOIN [dbo].[OutboxNote] AS n WITH (FORCESEEK)
		ON n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.blocker = f.blocker)
	OR EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.look_at > 0 AND n.look_at <= @now)
	OR @keys = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.topic = l.topic AND n.name >= N'q' AND n.name < N'r')
	OR @keys = 0 AND EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = l.topic AND r.stage IN (0, 3))
	THEN 1 ELSE 0 END AS alone FROM @line AS l),
ready AS (SELECT l.line, h.* FROM looked AS l CROSS APPLY (SELECT TOP (@limit) r.seq, r.id, r.grp, r.topic, r.[key], r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at, r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by FROM [dbo].[Outbox] AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
	WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = l.topic AND r.stage = 0 ORDER BY r.seq) AS h WHERE l.alone = 0),
wanted AS (SELECT DISTINCT h.line, h.topic, h.[key] FROM ready AS h WHERE @keys = 1 AND h.[key] <> N'')
SELECT 1 AS kind, l.line, CAST(0 AS BIGINT) AS seq, CAST(0x AS BINARY(16)) AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, 0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, CAST(0x AS BINARY(16)) AS step, CAST(0x AS BINARY(16)) AS waits_for, 0 AS parked, 0 AS processed_at, N'' AS processed_by FROM looked AS l WHERE l.alone = 1
UNION ALL SELECT 3, h.line, h.seq, h.id, h.[key], h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts, h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by FROM ready AS h
UNION ALL SELECT 4, k.line, s.waiting, CAST(0x AS BINARY(16)), k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N''
	FROM wanted AS k CROSS APPLY [dbo].[Outbox_KeyState](CAST(@group AS NVARCHAR(255)), k.topic, k.[key], CAST(@owner AS NVARCHAR(40)), @now) AS s;

-- pausing
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill pausing */ @found TABLE (blocker NVARCHAR(40) NOT NULL);
DECLARE @blocker NVARCHAR(40) = (SELECT TOP (1) n.blocker FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.paused = 1 ORDER BY n.blocker);
WHILE @blocker IS NOT NULL
BEGIN
	INSERT @found (blocker) VALUES (@blocker);
	SET @blocker = (SELECT TOP (1) n.blocker FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)) AND n.blocker > @blocker AND n.paused = 1 ORDER BY n.blocker);
END
SELECT f.blocker FROM @found AS f;

-- prove
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill prove */ 1 AS proven;

-- put
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill put */ @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, kind NVARCHAR(200) NOT NULL, [key] NVARCHAR(600) NOT NULL, at BIGINT NOT NULL,
	made_at BIGINT NOT NULL, value NVARCHAR(MAX) NOT NULL, done BIT NOT NULL);
DECLARE @done TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), kind NVARCHAR(200), [key] NVARCHAR(600), at BIGINT, made_at BIGINT, value NVARCHAR(MAX), done BIT);
WHILE 1 = 1
BEGIN
	UPDATE e SET at = u.at, made_at = u.made_at, value = u.value OUTPUT inserted.id INTO @done (id)
	FROM @new AS u INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0;
	UPDATE u SET done = 1 FROM @new AS u JOIN @done AS d ON d.id = CONVERT(BINARY(16), u.id, 2);
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO [dbo].[OutboxEntry] (id, kind, [key], at, made_at, value)
		SELECT CONVERT(BINARY(16), u.id, 2), u.kind, u.[key], u.at, u.made_at, u.value FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END

-- put_note
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill put_note */ @rc INT, @resource NVARCHAR(255) = @lock, @made BIGINT;
EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1
	THROW 50901, N'outmill: the lock of a name was not to be had; the transaction may be repeated', 1;
IF @rc >= 0 AND @leased = 1 AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, FORCESEEK)
	WHERE r.id = CAST(@id AS BINARY(16)) AND r.stage = 4 AND r.owner = CAST(@owner AS NVARCHAR(40)) AND r.claims = @claim)
	SET @rc = -2;
IF @rc >= 0
BEGIN
	SET @made = [dbo].[Outbox_Now]();
	INSERT INTO [dbo].[OutboxEntry] (id, kind, [key], at, made_at, value) VALUES (CAST(@entry AS BINARY(16)), @kind, @key, @made + @keep, @made, @value);
	SET @rc = @@ROWCOUNT;
END
SELECT @rc AS added;

-- put_notes
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill put_notes */ @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, grp NVARCHAR(255) NOT NULL, topic NVARCHAR(260) NOT NULL, name NVARCHAR(260) NOT NULL,
	blocker NVARCHAR(40) NOT NULL, head BIGINT NOT NULL, look_at BIGINT NOT NULL, looks INT NOT NULL, paused BIT NOT NULL, same BIT NOT NULL, done BIT NOT NULL);
DECLARE @done TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@notes) WITH (id VARCHAR(32), grp NVARCHAR(255), topic NVARCHAR(260), name NVARCHAR(260), blocker NVARCHAR(40), head BIGINT,
	look_at BIGINT, looks INT, paused BIT, same BIT, done BIT);
WHILE 1 = 1
BEGIN
	UPDATE n SET blocker = u.blocker, look_at = u.look_at, paused = u.paused, looks = CASE u.same WHEN 1 THEN n.looks + 1 ELSE u.looks END,
		head = CASE WHEN u.same = 1 AND n.head < u.head THEN n.head ELSE u.head END OUTPUT inserted.id INTO @done (id)
	FROM @new AS u INNER LOOP JOIN [dbo].[OutboxNote] AS n WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON n.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0;
	UPDATE u SET done = 1 FROM @new AS u JOIN @done AS d ON d.id = CONVERT(BINARY(16), u.id, 2);
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO [dbo].[OutboxNote] (id, grp, topic, name, blocker, head, look_at, looks, paused)
		SELECT CONVERT(BINARY(16), u.id, 2), u.grp, u.topic, u.name, u.blocker, u.head, u.look_at, CASE u.same WHEN 1 THEN u.looks - 1 ELSE u.looks END, u.paused
		FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END

-- quiet
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill quiet */ m.version, m.compatible, m.pauses, CAST(CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 0)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.stage = 1)
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.wake_at > 0)
	OR EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp = CAST(@group AS NVARCHAR(255)))
	OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic > N'' AND r.stage IN (0, 3))
	THEN 0 ELSE 1 END AS BIT) AS quiet FROM [dbo].[OutboxMeta] AS m WHERE m.only_row = 1;

-- range
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill range */ TOP (@limit) e.kind, e.[key], e.at, e.made_at, e.value FROM [dbo].[OutboxEntry] AS e WITH (FORCESEEK) WHERE e.kind = CAST(@kind AS NVARCHAR(200)) AND e.[key] > CAST(@prefix AS NVARCHAR(600))
ORDER BY e.[key];

-- replace
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
UPDATE /* outmill replace */ r SET size = @size, metadata = @metadata, payload = @payload FROM [dbo].[Outbox] AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK)
WHERE r.id = CAST(@id AS BINARY(16));

-- save
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SAVE /* outmill save */ TRANSACTION outmill;

-- scan
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill scan */ e.kind, e.[key], e.at, e.made_at, e.value FROM [dbo].[OutboxEntry] AS e WITH (FORCESEEK)
WHERE e.kind = CAST(@kind AS NVARCHAR(200)) AND e.[key] >= CAST(@prefix AS NVARCHAR(600)) AND e.[key] <= CAST(@prefix AS NVARCHAR(600)) + NCHAR(65535)
	AND CAST(SUBSTRING(e.[key], 1, @length / 2) AS VARBINARY(1200)) = CAST(CAST(@prefix AS NVARCHAR(600)) AS VARBINARY(1200)) ORDER BY e.[key];

-- state
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill state */ m.version, m.compatible, m.routes, m.pauses, [dbo].[Outbox_Now]() AS now,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n) THEN 1 ELSE 0 END AS BIT) AS notes,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxNote] AS n WITH (FORCESEEK) WHERE n.grp >= N'' AND n.paused = 1) THEN 1 ELSE 0 END AS BIT) AS paused,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic > N'' AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS BIT) AS unrouted
FROM [dbo].[OutboxMeta] AS m WHERE m.only_row = 1;

-- take
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill take */ @new TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, id VARCHAR(32) NOT NULL, kind NVARCHAR(200) NOT NULL, [key] NVARCHAR(600) NOT NULL, at BIGINT NOT NULL,
	made_at BIGINT NOT NULL, value NVARCHAR(MAX) NOT NULL, done BIT NOT NULL);
DECLARE @taken TABLE (id BINARY(16) NOT NULL);
INSERT @new SELECT * FROM OPENJSON(@entries) WITH (id VARCHAR(32), kind NVARCHAR(200), [key] NVARCHAR(600), at BIGINT, made_at BIGINT, value NVARCHAR(MAX), done BIT);
WHILE 1 = 1
BEGIN
	UPDATE e SET at = u.at, made_at = u.made_at, value = u.value OUTPUT inserted.id INTO @taken (id)
	FROM @new AS u INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0 AND e.at <= @now;
	UPDATE u SET done = 1 FROM @new AS u JOIN @taken AS t ON t.id = CONVERT(BINARY(16), u.id, 2);
	UPDATE u SET done = 1 FROM @new AS u INNER LOOP JOIN [dbo].[OutboxEntry] AS e WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON e.id = CONVERT(BINARY(16), u.id, 2) WHERE u.done = 0 AND e.at > @now;
	IF NOT EXISTS (SELECT 1 FROM @new AS u WHERE u.done = 0)
		BREAK;
	INSERT INTO [dbo].[OutboxEntry] (id, kind, [key], at, made_at, value)
		SELECT CONVERT(BINARY(16), u.id, 2), u.kind, u.[key], 0, u.made_at, u.value FROM @new AS u WHERE u.done = 0 ORDER BY u.place;
END
SELECT t.id FROM @taken AS t;

-- taken
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill taken */ o.name FROM (SELECT [value] AS name FROM OPENJSON(@tables)) AS i JOIN sys.objects AS o ON o.name = i.name COLLATE DATABASE_DEFAULT
WHERE o.schema_id = SCHEMA_ID(@name) ORDER BY o.name;

-- undo
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
IF /* outmill undo */ @@TRANCOUNT > 0 AND XACT_STATE() = 1
	ROLLBACK TRANSACTION outmill;

-- usable_indexes
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill usable_indexes */ i.name FROM sys.indexes AS i JOIN sys.objects AS o ON o.object_id = i.object_id
WHERE o.schema_id = SCHEMA_ID(@name) AND i.name IS NOT NULL AND i.is_disabled = 0;

-- version
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
SELECT /* outmill version */ m.version, m.compatible FROM [dbo].[OutboxMeta] AS m WHERE m.only_row = 1;

-- whole
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;
DECLARE /* outmill whole */ @now BIGINT = [dbo].[Outbox_Now]();
SELECT ISNULL((SELECT TOP (1) r.owner FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 4 AND r.wake_at > 0
		AND r.owner <> CAST(@owner AS NVARCHAR(40)) AND (r.wake_at > @now OR r.expires_at = 0 OR r.expires_at > @now)), N'') AS other,
	ISNULL((SELECT MIN(r.seq) FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage = 2 AND r.wake_at > 0
		AND (r.expires_at = 0 OR r.expires_at > @now)), 9223372036854775807) AS waiting,
	ISNULL((SELECT MIN(r.seq) FROM [dbo].[Outbox] AS r WITH (FORCESEEK) WHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = CAST(@topic AS NVARCHAR(260)) AND r.stage IN (2, 3, 4) AND r.wake_at > 0
		AND r.wake_at <= @now AND (r.stage <> 4 OR r.owner = CAST(@owner AS NVARCHAR(40))) AND (r.expires_at = 0 OR r.expires_at > @now)), 9223372036854775807) AS due;

