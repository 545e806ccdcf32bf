SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Reap: makes up to @Limit records pending again whose lease has ended, and counts the expiry. Each
-- line has its own transaction. Returns how many there were.
CREATE PROCEDURE [dbo].[Outbox_Reap]
    @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @done INT = 0, @left INT, @group NVARCHAR(255) = (SELECT MIN(GroupName) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE Stage = 4), @topic NVARCHAR(255);
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2);
    WHILE @group IS NOT NULL AND @done < @Limit
    BEGIN
        SET @topic = (SELECT MIN(Topic) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @group AND Stage = 4);
        WHILE @topic IS NOT NULL AND @done < @Limit
        BEGIN
            IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @group AND Topic = @topic AND Stage = 4 AND AvailableAt <= @now)
            BEGIN
                SET @left = @Limit - @done;
                DELETE FROM @gone;
                BEGIN TRANSACTION;
                EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Shared';
                INSERT @gone (Seq, [Key]) SELECT TOP (@left) Seq, [Key] FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
                    WHERE GroupName = @group AND Topic = @topic AND Stage = 4 AND AvailableAt <= @now;
                UPDATE o SET Stage = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN 2 ELSE 0 END,
                        AvailableAt = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN o.NextAttemptAt END, OwnerToken = NULL,
                        RetryCount = o.RetryCount + CASE WHEN o.Expiries >= 2 THEN 1 ELSE 0 END, Expiries = o.Expiries + 1
                    FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq WHERE o.Stage = 4 AND o.AvailableAt <= @now;
                SET @done = @done + @@ROWCOUNT;
                UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
                    FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT [Key] FROM @gone WHERE [Key] <> N'') AS g ON g.[Key] = l.[Key]
                    WHERE l.GroupName = @group AND l.Topic = @topic AND (l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0);
                COMMIT;
            END
            SET @topic = (SELECT MIN(Topic) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @group AND Stage = 4 AND Topic > @topic);
        END
        SET @group = (SELECT MIN(GroupName) FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE Stage = 4 AND GroupName > @group);
    END
    SELECT @done AS Done;
END
GO

-- Expire: makes up to @Limit records dead whose expiry has passed and that have no lease. Returns how
-- many there were, and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_Expire]
    @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @gone TABLE (Seq BIGINT NOT NULL PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16));
    BEGIN TRANSACTION;
    INSERT @gone (Seq, GroupName, Topic, [Key], Step) SELECT TOP (@Limit) Seq, GroupName, Topic, [Key], Step FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE ExpiresAt IS NOT NULL AND ExpiresAt <= @now AND Stage < 6 AND (Stage <> 4 OR AvailableAt <= @now);
    IF SERVERPROPERTY('Babelfish') = 1
    BEGIN
        UPDATE o SET Size = o.Size FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
        DELETE g FROM @gone AS g WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WHERE o.Seq = g.Seq AND o.ExpiresAt <= @now AND o.Stage < 6 AND (o.Stage <> 4 OR o.AvailableAt <= @now));
    END
    UPDATE o SET Stage = 7, AvailableAt = NULL, OwnerToken = NULL, PausedBy = NULL, LastError = N'expired' FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @gone AS g ON g.Seq = o.Seq;
    SELECT COUNT(*) AS Done FROM @gone;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'd' FROM @gone WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    COMMIT;
END
GO

-- Delete: deletes the records that have the status; N'' is any. Returns how many there were, and then
-- the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_Delete]
    @Ids [dbo].[OutboxId] READONLY, @Status NVARCHAR(9)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id TABLE (IdBytes BINARY(16) NOT NULL PRIMARY KEY);
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Ids;
    -- If this transaction rolls back, the records are there again. So a claim in order waits for its
    -- end.
    EXEC [dbo].[Outbox_ShareLines] @Ids = @Ids;
    DECLARE @gone TABLE (GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Stage SMALLINT, Step BINARY(16));
    DELETE o OUTPUT deleted.GroupName, deleted.Topic, deleted.[Key], deleted.Stage, deleted.Step INTO @gone (GroupName, Topic, [Key], Stage, Step)
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @id AS i ON i.IdBytes = o.IdBytes
        WHERE @Status = N'' OR @Status = CASE o.Stage WHEN 4 THEN N'leased' WHEN 6 THEN N'processed' WHEN 7 THEN N'dead' ELSE N'pending' END;
    SELECT COUNT(*) AS Done FROM @gone;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT GroupName, Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g
        ON g.GroupName = l.GroupName AND g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL AND Stage < 6)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'd' FROM @gone WHERE Step IS NOT NULL AND Stage < 6;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    IF @own = 1
        COMMIT;
END
GO

-- Requeue: makes dead records pending and due at once, by time (stage 3), so that claims without an
-- order take records that have been due for longer first. Records that were parked with their keys
-- are requeued too. The procedure waits for a claim that runs on their line, because that claim would
-- park the records again. Returns how many there were, and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_Requeue]
    @Ids [dbo].[OutboxId] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @id TABLE (IdBytes BINARY(16) NOT NULL PRIMARY KEY);
    INSERT @id (IdBytes) SELECT DISTINCT IdBytes FROM @Ids;
    DECLARE @line TABLE (Place INT IDENTITY(1, 1) PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2);
    INSERT @line (GroupName, Topic) SELECT DISTINCT o.GroupName, o.Topic FROM @id AS i JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.IdBytes = i.IdBytes
        WHERE o.Parked = 1 AND o.GroupName IS NOT NULL ORDER BY o.GroupName, o.Topic;
    DECLARE @place INT = 1, @group NVARCHAR(255), @topic NVARCHAR(255);
    WHILE EXISTS (SELECT 1 FROM @line WHERE Place = @place)
    BEGIN
        SELECT @group = GroupName, @topic = Topic FROM @line WHERE Place = @place;
        EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Exclusive';
        SET @place = @place + 1;
    END
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    IF SERVERPROPERTY('Babelfish') = 1
        EXEC [dbo].[Outbox_Hold] @Ids = @Ids;
    DECLARE @back TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Step BINARY(16));
    INSERT @back (Seq, Step) SELECT o.Seq, o.Step FROM @id AS i JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON o.IdBytes = i.IdBytes WHERE o.Stage = 7
        UNION SELECT b.Seq, b.Step FROM (SELECT DISTINCT o.GroupName, o.Topic, o.[Key] FROM @id AS i JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.IdBytes = i.IdBytes WHERE o.Stage = 7 AND o.Parked = 1) AS p
            JOIN [dbo].[Outbox] AS b WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON b.GroupName = p.GroupName AND b.Topic = p.Topic AND b.[Key] = p.[Key] WHERE b.Parked = 1 AND b.Stage = 7;
    UPDATE o SET Stage = CASE WHEN o.GroupName IS NULL THEN 3 ELSE 2 END, AvailableAt = @now, NextAttemptAt = @now, RetryCount = 0, Expiries = 0, ExpiresAt = NULL, Parked = 0
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @back AS b ON b.Seq = o.Seq WHERE o.Stage = 7;
    SELECT COUNT(*) AS Done FROM @back;
    IF EXISTS (SELECT 1 FROM @back WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'r' FROM @back WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    IF @own = 1
        COMMIT;
END
GO

-- Gives up to @Limit records of the topic that wait for a group to the group, if the group still has
-- the registration. Returns how many.
CREATE PROCEDURE [dbo].[Outbox_Adopt]
    @Group NVARCHAR(255), @Selection CHAR(64), @Topic NVARCHAR(255), @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @done INT = 0;
    BEGIN TRANSACTION;
    EXEC [dbo].[Outbox_LockLine] @Group = @Group, @Topic = @Topic, @Mode = N'Shared';
    -- A transaction that removes the registration waits here, and then finds the group's new records.
    UPDATE [dbo].[OutboxGroup] SET SeenAt = SeenAt WHERE GroupName = @Group AND Selection = @Selection AND Holding = 0;
    IF @@ROWCOUNT > 0
    BEGIN
        UPDATE TOP (@Limit) o SET GroupName = @Group FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE o.GroupName IS NULL AND o.Topic = @Topic AND o.Stage = 0 AND o.RetryCount >= 0;
        SET @done = @@ROWCOUNT;
        IF @done = 0
        BEGIN
            UPDATE TOP (@Limit) o SET GroupName = @Group FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE o.GroupName IS NULL AND o.Topic = @Topic AND o.Stage IN (2, 3) AND o.RetryCount >= 0;
            SET @done = @@ROWCOUNT;
        END
        IF @done = 0
        BEGIN
            UPDATE TOP (@Limit) o SET GroupName = @Group FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE o.GroupName IS NULL AND o.Topic = @Topic AND o.Stage = 5 AND o.RetryCount >= 0;
            SET @done = @@ROWCOUNT;
        END
        IF @done = 0
        BEGIN
            UPDATE TOP (@Limit) o SET GroupName = @Group FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE o.GroupName IS NULL AND o.Topic = @Topic AND o.Stage >= 6 AND o.RetryCount >= 0;
            SET @done = @@ROWCOUNT;
        END
    END
    COMMIT;
    SELECT @done AS Done;
END
GO

-- Drops up to @Limit records of a group that were appended by @Before: those of the topic that are
-- neither processed nor dead, or, if @Topic is empty, the processed and dead ones. If @Back is 1 it makes
-- them as if they were appended without a group; otherwise it deletes them. Returns how many it found and
-- changed, and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_DropRecords]
    @Group NVARCHAR(255), @Topic NVARCHAR(255), @Back BIT, @Before DATETIME2(6), @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @seq TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (Stage SMALLINT, Step BINARY(16));
    DECLARE @done INT = 0;
    BEGIN TRANSACTION;
    IF @Topic = N''
        INSERT @seq (Seq) SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WHERE GroupName = @Group AND Stage >= 6 AND CreatedAt <= @Before;
    ELSE
        INSERT @seq (Seq) SELECT TOP (@Limit) Seq FROM (
        SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 0 AND CreatedAt <= @Before) AS a
        UNION ALL SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 1 AND CreatedAt <= @Before) AS b
        UNION ALL SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @Topic AND Stage IN (2, 3) AND CreatedAt <= @Before) AS c
        UNION ALL SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WHERE GroupName = @Group AND Topic = @Topic AND Stage = 4 AND CreatedAt <= @Before) AS d
        UNION ALL SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WHERE GroupName = @Group AND Topic = @Topic AND Stage = 5 AND CreatedAt <= @Before) AS e
        UNION ALL SELECT * FROM (SELECT TOP (@Limit) Seq FROM [dbo].[Outbox] WHERE GroupName = @Group AND Topic = @Topic AND PausedBy IS NOT NULL AND CreatedAt <= @Before) AS f) AS r;
    IF @Back = 1
    BEGIN
        UPDATE o SET GroupName = NULL, OwnerToken = NULL, RetryCount = 0, Expiries = 0, PausedBy = NULL, NextAttemptAt = n.Due,
            Stage = CASE WHEN n.Due > o.CreatedAt THEN 3 ELSE 0 END, AvailableAt = CASE WHEN n.Due > o.CreatedAt THEN n.Due END
            FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @seq AS s ON s.Seq = o.Seq
            CROSS APPLY (SELECT CASE WHEN o.WaitsFor IS NULL THEN o.DueTimeUtc ELSE o.NextAttemptAt END AS Due) AS n
            WHERE o.GroupName = @Group AND o.Stage < 6;
        SET @done = @@ROWCOUNT;
    END
    ELSE
    BEGIN
        DELETE o OUTPUT deleted.Stage, deleted.Step INTO @gone (Stage, Step) FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @seq AS s ON s.Seq = o.Seq WHERE o.GroupName = @Group;
        SET @done = @@ROWCOUNT;
    END
    SELECT (SELECT COUNT(*) FROM @seq) AS Found, @done AS Done;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL AND Stage < 6)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'g' FROM @gone WHERE Step IS NOT NULL AND Stage < 6;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    COMMIT;
END
GO

-- Deletes up to @Limit undelivered records of a group and the topics @Topics, which no registration
-- of the group selects any more, except records whose lease has not ended. It notes when to check the
-- group again: at once if records of these topics are left, otherwise after @Again seconds, or never
-- if the group's last registration ended @NoteFor seconds ago. Returns how many it deleted, and then
-- the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_Sweep]
    @Group NVARCHAR(255), @Topics [dbo].[OutboxName] READONLY, @Limit INT, @Again INT, @NoteFor INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @done INT = 0, @left INT, @some BIT = 0, @filled BIT = 0, @place INT = 1, @topic NVARCHAR(255);
    DECLARE @name TABLE (Place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, Name NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
    DECLARE @seq TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Step BINARY(16));
    INSERT @name (Name) SELECT Name FROM @Topics ORDER BY Place;
    WHILE EXISTS (SELECT 1 FROM @name WHERE Place = @place)
    BEGIN
        SELECT @topic = Name FROM @name WHERE Place = @place;
        SET @left = @Limit - @done;
        IF @left > 0
        BEGIN
            -- If this transaction rolls back, the records are there again. So a claim in order waits
            -- for its end.
            EXEC [dbo].[Outbox_LockLine] @Group = @Group, @Topic = @topic, @Mode = N'Shared';
            DELETE FROM @seq;
            INSERT @seq (Seq) SELECT TOP (@left) Seq FROM (
                SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND Stage = 0 AND RetryCount >= 0) AS a
                UNION ALL SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND Stage = 1 AND RetryCount >= 0) AS b
                UNION ALL SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND Stage IN (2, 3) AND RetryCount >= 0) AS c
                UNION ALL SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND Stage = 4 AND AvailableAt <= @now AND RetryCount >= 0) AS d
                UNION ALL SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND Stage = 5 AND RetryCount >= 0) AS e
                UNION ALL SELECT * FROM (SELECT TOP (@left) Seq FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = @topic AND PausedBy IS NOT NULL AND RetryCount >= 0) AS f) AS r;
            DELETE o OUTPUT deleted.Topic, deleted.[Key], deleted.Step INTO @gone (Topic, [Key], Step) FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @seq AS s ON s.Seq = o.Seq
                WHERE o.Stage < 6 AND (o.Stage <> 4 OR o.AvailableAt <= @now);
            SET @done = @done + @@ROWCOUNT;
        END
        IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND Stage = 0)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND Stage = 1)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND Stage IN (2, 3))
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND Stage = 4)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND Stage = 5)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Topic = @topic AND PausedBy IS NOT NULL)
            SET @some = 1;
        SET @place = @place + 1;
    END
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key])) JOIN (SELECT DISTINCT Topic, [Key] FROM @gone WHERE [Key] <> N'') AS g ON g.Topic = l.Topic AND g.[Key] = l.[Key]
        WHERE l.GroupName = @Group AND (l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0);
    IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage = 0)
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage = 1)
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage IN (2, 3))
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage = 4)
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage = 5)
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND Stage >= 6)
        OR EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = @Group AND PausedBy IS NOT NULL)
        SET @filled = 1;
    UPDATE [dbo].[OutboxEnding] SET Empty = CASE WHEN @filled = 1 THEN 0 ELSE 1 END, LookAt = CASE WHEN @some = 1 THEN @now ELSE DATEADD(SECOND, @Again, @now) END WHERE GroupName = @Group;
    -- The note of a group without a registration stays as long as the group has records.
    DELETE FROM [dbo].[OutboxEnding] WHERE GroupName = @Group AND @some = 0 AND EndedAt <= DATEADD(SECOND, -@NoteFor, @now)
        AND (Empty = 1 OR EXISTS (SELECT 1 FROM [dbo].[OutboxGroup] WHERE GroupName = @Group));
    DELETE FROM [dbo].[OutboxWorker] WHERE GroupName = @Group AND NOT EXISTS (SELECT 1 FROM [dbo].[OutboxGroup] WHERE GroupName = @Group);
    SELECT @done AS Done;
    IF EXISTS (SELECT 1 FROM @gone WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'g' FROM @gone WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
    IF @own = 1
        COMMIT;
END
GO
