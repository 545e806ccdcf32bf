SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Procedures that take part in a caller's transaction. The caller may keep it open for long, so no
-- claim, reaper or other caller waits for its locks.

-- Ack within: as Outbox_Ack, but with effect only when the caller's transaction commits. Returns how
-- many of the leases were valid. If not all were, the procedure has written nothing, and the caller
-- must roll the transaction back.
--
-- The records stay locked until the transaction ends, so that claims and reapers skip them. An
-- ordered claim needs to know more: it must neither wait for the key nor hand out the later records
-- of the key. It reads in OutboxAcked which keys are being acked, including rows that are not
-- committed yet (Outbox_LineRead). No ack begins while such a claim runs, because each ack shares the
-- line for as long as this procedure runs. Outbox_CountAcked updates lanes and joins later: a lock on
-- a lane here would stop claims, and a lock on a join would stop other acks.
--
-- The procedure locks the records before the lines, unlike all others, because another session may be
-- extending a lease: this procedure waits for that, and must not make claims wait at the same time.
CREATE PROCEDURE [dbo].[Outbox_AckWithin]
    @Leases [dbo].[OutboxLease] READONLY, @Keep BIT, @By NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF @@TRANCOUNT = 0
        THROW 50902, N'outmill: no transaction is open', 1;
    DECLARE @id [dbo].[OutboxId];
    DECLARE @lease TABLE (IdBytes BINARY(16) NOT NULL, OwnerToken UNIQUEIDENTIFIER NOT NULL, Claims INT NOT NULL, PRIMARY KEY (IdBytes, OwnerToken, Claims));
    INSERT @lease (IdBytes, OwnerToken, Claims) SELECT l.IdBytes, CONVERT(UNIQUEIDENTIFIER, l.OwnerToken), l.Claims
        FROM @Leases AS l GROUP BY l.IdBytes, l.OwnerToken, l.Claims;
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16));
    DECLARE @line TABLE (Place INT IDENTITY(1, 1) PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2);
    DECLARE @place INT = 1, @lines INT, @group NVARCHAR(255), @topic NVARCHAR(255);
    IF SERVERPROPERTY('Babelfish') = 1
    BEGIN
        INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Leases;
        EXEC [dbo].[Outbox_Hold] @Ids = @id;
    END
    INSERT @gone (Seq, GroupName, Topic, [Key], Step) SELECT o.Seq, o.GroupName, o.Topic, o.[Key], o.Step
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) JOIN @lease AS l ON l.IdBytes = o.IdBytes WHERE o.Stage = 4 AND o.OwnerToken = l.OwnerToken AND o.Claims = l.Claims;
    IF (SELECT COUNT(*) FROM @gone) = (SELECT COUNT(*) FROM @lease)
    BEGIN
        -- Babelfish releases no lock before the transaction ends. There, claims see the lease
        -- unchanged.
        IF SERVERPROPERTY('Babelfish') IS NULL
            INSERT @line (GroupName, Topic) SELECT DISTINCT GroupName, Topic FROM @gone ORDER BY GroupName, Topic;
        SET @lines = (SELECT COUNT(*) FROM @line);
        WHILE @place <= @lines
        BEGIN
            SELECT @group = GroupName, @topic = Topic FROM @line WHERE Place = @place;
            EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Shared';
            SET @place = @place + 1;
        END
        INSERT [dbo].[OutboxAcked] (GroupName, Topic, [Key], Step) SELECT GroupName, Topic, [Key], Step FROM @gone;
        IF @Keep = 1
            UPDATE o SET Stage = 6, AvailableAt = NULL, ProcessedAt = SYSUTCDATETIME(), ProcessedBy = @By, OwnerToken = NULL
                FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
        ELSE
            DELETE o FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
        SET @place = 1;
        WHILE @place <= @lines
        BEGIN
            SELECT @group = GroupName, @topic = Topic FROM @line WHERE Place = @place;
            EXEC [dbo].[Outbox_UnlockLine] @Group = @group, @Topic = @topic;
            SET @place = @place + 1;
        END
    END
    SELECT COUNT(*) AS Acked FROM @gone;
END
GO

-- Takes up to @Limit acks that callers' transactions have committed, opens the lanes of their keys,
-- and counts their steps. It skips rows that other transactions have locked. With a @Step it takes
-- all acks of that step and no others, and waits for locked rows. Returns how many acks there were,
-- and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_CountAcked]
    @Limit INT, @Step BINARY(16) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @taken TABLE (Place BIGINT NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16));
    -- This reads the row itself, and not only an index: see Outbox_Claim.
    IF @Step IS NULL
        INSERT @taken (Place) SELECT TOP (@Limit) Place FROM [dbo].[OutboxAcked] WITH (UPDLOCK, READPAST, ROWLOCK, INDEX([PK_OutboxAcked])) ORDER BY Place;
    ELSE
        INSERT @taken (Place) SELECT TOP (@Limit) Place FROM [dbo].[OutboxAcked] WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE Step IS NOT NULL AND Step = @Step ORDER BY Place;
    DELETE a OUTPUT deleted.GroupName, deleted.Topic, deleted.[Key], deleted.Step INTO @gone (GroupName, Topic, [Key], Step)
        FROM [dbo].[OutboxAcked] AS a WITH (FORCESEEK) JOIN @taken AS t ON t.Place = a.Place;
    SELECT COUNT(*) AS Done FROM @gone;
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

-- Notes that the consumer handles the message of that key, for @Retention microseconds, in the
-- caller's transaction (@Within) or in one of its own. Returns 1; or 0 if it was noted before; or -1
-- if another transaction that has noted it was still open after @Wait milliseconds. It reads before
-- it writes, because a duplicate key would end the transaction.
CREATE PROCEDURE [dbo].[Outbox_PutNote]
    @Within BIT, @Consumer NVARCHAR(255), @Key NVARCHAR(255), @Retention BIGINT, @Wait INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END, @rc INT, @put INT = 0;
    IF @Within = 1 AND @own = 1
        THROW 50902, N'outmill: no transaction is open', 1;
    IF @own = 1
        BEGIN TRANSACTION;
    EXEC @rc = [dbo].[Outbox_LockName] @Kind = N'note', @Of = @Consumer, @Name = @Key, @Wait = @Wait;
    IF @rc < 0
        SET @put = -1;
    ELSE IF NOT EXISTS (SELECT 1 FROM [dbo].[OutboxInbox] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE Consumer = @Consumer AND [Key] = @Key)
    BEGIN
        DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
        INSERT [dbo].[OutboxInbox] (Consumer, [Key], DeleteAt) VALUES (@Consumer, @Key,
            DATEADD(MICROSECOND, CAST(@Retention % 1000000 AS INT), DATEADD(SECOND, CAST(@Retention / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Retention / CAST(86400000000 AS BIGINT) AS INT), @now))));
        SET @put = 1;
    END
    IF @own = 1
        COMMIT;
    SELECT @put AS Put;
END
GO
