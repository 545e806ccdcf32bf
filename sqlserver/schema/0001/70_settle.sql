SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- These procedures skip leases that are not valid. They also skip a lane that another transaction has
-- locked: that transaction opens it, or a claim checks the lane soon. All but Outbox_Extend return
-- the joins that were counted, or for which records wait.

-- Ack: deletes the records, or keeps them as processed by the worker of that name.
CREATE PROCEDURE [dbo].[Outbox_Ack]
    @Leases [dbo].[OutboxLease] READONLY, @Keep BIT, @By NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16));
    IF @Keep = 1
    BEGIN
        IF SERVERPROPERTY('Babelfish') = 1
        BEGIN
            INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
            EXEC [dbo].[Outbox_Hold] @Ids = @id;
        END
        INSERT @gone (Seq, GroupName, Topic, [Key], Step) SELECT o.Seq, o.GroupName, o.Topic, o.[Key], o.Step
            FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
        UPDATE o SET Stage = 6, AvailableAt = NULL, ProcessedAt = SYSUTCDATETIME(), ProcessedBy = @By, OwnerToken = NULL
            FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    END
    ELSE
        DELETE o OUTPUT deleted.Seq, deleted.GroupName, deleted.Topic, deleted.[Key], deleted.Step INTO @gone (Seq, GroupName, Topic, [Key], Step)
            FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    IF EXISTS (SELECT 1 FROM @gone WHERE [Key] <> N'')
        UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
            FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
            ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
            WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'a' FROM @gone WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    IF @own = 1
        COMMIT;
END
GO

-- Abandon: due again after that number of microseconds, the attempt counts, the text is the error.
CREATE PROCEDURE [dbo].[Outbox_Abandon]
    @Leases [dbo].[OutboxLease] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
    EXEC [dbo].[Outbox_ShareLines] @Ids = @id;
    IF SERVERPROPERTY('Babelfish') = 1
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, Due DATETIME2(6) NOT NULL, Error NVARCHAR(MAX) NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims, Due, Error) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims, DATEADD(MICROSECOND, CAST(MIN(l.Number) % 1000000 AS INT), DATEADD(SECOND, CAST(MIN(l.Number) / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(MIN(l.Number) / CAST(86400000000 AS BIGINT) AS INT), @now))), MIN(l.Error)
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Due DATETIME2(6), Error NVARCHAR(MAX));
    INSERT @gone (Seq, GroupName, Topic, [Key], Due, Error) SELECT o.Seq, o.GroupName, o.Topic, o.[Key], l.Due, l.Error
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    UPDATE o SET Stage = 2, AvailableAt = g.Due, NextAttemptAt = g.Due, OwnerToken = NULL, Expiries = 0, RetryCount = o.RetryCount + 1, LastError = CASE WHEN DATALENGTH(g.Error) > 0 THEN g.Error END
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF @own = 1
        COMMIT;
END
GO

-- Snooze: due again after that number of microseconds, the attempt does not count.
CREATE PROCEDURE [dbo].[Outbox_Snooze]
    @Leases [dbo].[OutboxLease] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
    EXEC [dbo].[Outbox_ShareLines] @Ids = @id;
    IF SERVERPROPERTY('Babelfish') = 1
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, Due DATETIME2(6) NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims, Due) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims, DATEADD(MICROSECOND, CAST(MIN(l.Number) % 1000000 AS INT), DATEADD(SECOND, CAST(MIN(l.Number) / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(MIN(l.Number) / CAST(86400000000 AS BIGINT) AS INT), @now)))
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Due DATETIME2(6), WaitsFor BINARY(16));
    INSERT @gone (Seq, GroupName, Topic, [Key], Due, WaitsFor) SELECT o.Seq, o.GroupName, o.Topic, o.[Key], l.Due, o.WaitsFor
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    UPDATE o SET Stage = 2, AvailableAt = g.Due, NextAttemptAt = g.Due, OwnerToken = NULL, Expiries = 0
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF @own = 1
        COMMIT;
    SELECT DISTINCT WaitsFor FROM @gone WHERE WaitsFor IS NOT NULL;
END
GO

-- Release: as if the records had not been claimed, except that the claim stays counted. A record that
-- became due after its append goes where claims take the earliest due first, because ready records
-- are in the order of the appends.
CREATE PROCEDURE [dbo].[Outbox_Release]
    @Leases [dbo].[OutboxLease] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
    EXEC [dbo].[Outbox_ShareLines] @Ids = @id;
    IF SERVERPROPERTY('Babelfish') = 1
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2);
    INSERT @gone (Seq, GroupName, Topic, [Key]) SELECT o.Seq, o.GroupName, o.Topic, o.[Key]
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    UPDATE o SET Stage = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN 2 ELSE 0 END,
            AvailableAt = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN o.NextAttemptAt END, OwnerToken = NULL
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF @own = 1
        COMMIT;
END
GO

-- Fail: dead, the text is the error. If the number is 1, pending records of the same key behind the
-- record are parked with it, with @Parked as their error, up to 900 records in a call. The others
-- stay pending: records beyond 900, leased records, and records that another transaction has locked
-- (a user's open transaction, for example). A claim parks them when it meets them, because the key
-- has a parked record.
CREATE PROCEDURE [dbo].[Outbox_Fail]
    @Leases [dbo].[OutboxLease] READONLY, @Parked NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
    EXEC [dbo].[Outbox_ShareLines] @Ids = @id;
    IF SERVERPROPERTY('Babelfish') = 1
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, Park BIT NOT NULL, Error NVARCHAR(MAX) NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims, Park, Error) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims, MAX(l.Number), MIN(l.Error)
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16), Park BIT, Error NVARCHAR(MAX));
    DECLARE @behind TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Step BINARY(16));
    INSERT @gone (Seq, GroupName, Topic, [Key], Step, Park, Error) SELECT o.Seq, o.GroupName, o.Topic, o.[Key], o.Step, CASE o.[Key] WHEN N'' THEN 0 ELSE l.Park END, l.Error
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    UPDATE o SET Stage = 7, AvailableAt = NULL, OwnerToken = NULL, LastError = CASE WHEN DATALENGTH(g.Error) > 0 THEN g.Error END, Parked = g.Park
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    IF EXISTS (SELECT 1 FROM @gone WHERE Park = 1)
    BEGIN
        INSERT @behind (Seq, Step) SELECT TOP (900) o.Seq, o.Step FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            JOIN (SELECT GroupName, Topic, [Key], MIN(Seq) AS Seq FROM @gone WHERE Park = 1 GROUP BY GroupName, Topic, [Key]) AS g
            ON o.GroupName = g.GroupName AND o.Topic = g.Topic AND o.[Key] = g.[Key]
            WHERE o.Keyed = 1 AND o.Stage < 6 AND o.Stage <> 4 AND o.Seq > g.Seq;
        UPDATE o SET Stage = 7, AvailableAt = NULL, PausedBy = NULL, Parked = 1, LastError = @Parked FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @behind AS b ON b.Seq = o.Seq
            WHERE o.Stage < 6 AND o.Stage <> 4;
    END
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL) OR EXISTS (SELECT 1 FROM @behind WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'd' FROM @gone WHERE Step IS NOT NULL UNION ALL SELECT Step, 'd' FROM @behind WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    IF @own = 1
        COMMIT;
END
GO

-- Extend: the leases end in @Micros microseconds. Returns the counter of the pauses, and then the
-- leases that are still valid.
CREATE PROCEDURE [dbo].[Outbox_Extend]
    @Leases [dbo].[OutboxLease] READONLY, @Micros BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END, @pauses BIGINT = (SELECT Pauses FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1);
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id [dbo].[OutboxId];
    IF SERVERPROPERTY('Babelfish') = 1
    BEGIN
        INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    END
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @until DATETIME2(6) = DATEADD(MICROSECOND, CAST(@Micros % 1000000 AS INT), DATEADD(SECOND, CAST(@Micros / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Micros / CAST(86400000000 AS BIGINT) AS INT), @now)));
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @held TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    INSERT @held (Seq) SELECT o.Seq FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    UPDATE o SET AvailableAt = @until FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @held AS h ON h.Seq = o.Seq;
    SELECT @pauses AS Pauses;
    SELECT o.IdBytes, CONVERT(NVARCHAR(36), o.OwnerToken) AS OwnerToken, o.Claims FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @held AS h ON h.Seq = o.Seq;
    IF @own = 1
        COMMIT;
END
GO
