SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- The topics that may have records to claim, and the topics with records that are due, or will be,
-- and wait for a group. With @All, the procedure searches all topics that have records, instead of
-- @Topics. @Passed is waiting if records that wait are skipped. @HeldToo says whether held records
-- count. The procedure never waits: it skips rows that other transactions have locked.
CREATE PROCEDURE [dbo].[Outbox_Due]
    @Group NVARCHAR(255), @All BIT, @Topics [dbo].[OutboxName] READONLY, @Owner UNIQUEIDENTIFIER, @Passed NVARCHAR(36), @HeldToo BIT
AS
BEGIN
    SET NOCOUNT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @topic TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    IF @All = 0
        INSERT @topic (Topic) SELECT DISTINCT Name FROM @Topics;
    ELSE
    BEGIN
        DECLARE @next NVARCHAR(255) = N'';
        WHILE @next IS NOT NULL
        BEGIN
            SET @next = (SELECT MIN(k.Topic) FROM (
                SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Stage = 0 AND Topic > @next ORDER BY Topic) AS a
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Stage = 1 AND Topic > @next ORDER BY Topic) AS b
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Stage IN (2, 3) AND Topic > @next ORDER BY Topic) AS c
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Stage = 4 AND Topic > @next ORDER BY Topic) AS d
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Stage = 0 AND Topic > @next ORDER BY Topic) AS e
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Stage IN (2, 3) AND Topic > @next ORDER BY Topic) AS f) AS k);
            IF @next IS NOT NULL
                INSERT @topic (Topic) VALUES (@next);
        END
    END
    SELECT t.Topic,
        CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 0)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 2 AND r.Stage IN (2, 3) AND r.AvailableAt <= @now)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 3 AND r.Stage IN (2, 3) AND r.AvailableAt <= @now)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 4 AND r.AvailableAt <= @now)
            OR EXISTS (SELECT 1 FROM [dbo].[OutboxLane] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE l.GroupName = @Group AND l.Topic = t.Topic AND l.BlockedBy IN (N'', CONVERT(NVARCHAR(36), @Owner), @Passed))
            OR EXISTS (SELECT 1 FROM [dbo].[OutboxLane] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE l.GroupName = @Group AND l.Topic = t.Topic AND l.Until IS NOT NULL AND l.Until <= @now)
            OR @HeldToo = 1 AND EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 1)
            THEN 1 ELSE 0 END AS Due,
        CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName IS NULL AND r.Topic = t.Topic AND r.Stage = 0)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName IS NULL AND r.Topic = t.Topic AND r.Stage IN (2, 3))
            THEN 1 ELSE 0 END AS Unrouted
    FROM @topic AS t;
END
GO

-- Leases the earliest due records of each topic without an order. @Topics are in the order of their
-- turn. @Share is the number of records of each topic, @Room the number of all, @Bytes the number of
-- bytes (0: no limit), @First whether the claim has none yet, and @Lease is in microseconds. The
-- procedure skips records that another transaction has locked. It moves an expired record to stage 5
-- instead; the record stays pending until the janitor makes it dead.
--
-- READPAST skips locked rows among the rows that the statement reads. If an index has all columns of
-- the statement, these are only rows of the index. RetryCount, which is in no index, makes the
-- statement read the record itself too. Otherwise the update would wait for the transaction that has
-- locked the record, and could deadlock with it.
CREATE PROCEDURE [dbo].[Outbox_Claim]
    @Owner UNIQUEIDENTIFIER, @Group NVARCHAR(255), @Topics [dbo].[OutboxName] READONLY, @Share INT, @Room INT, @Bytes BIGINT, @First BIT, @Lease BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @until DATETIME2(6) = DATEADD(MICROSECOND, CAST(@Lease % 1000000 AS INT), DATEADD(SECOND, CAST(@Lease / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Lease / CAST(86400000000 AS BIGINT) AS INT), @now)));
    DECLARE @found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Turn INT NOT NULL, Due DATETIME2(6) NOT NULL, Expired INT NOT NULL, Size INT NOT NULL,
        Expiries INT NOT NULL, Stage TINYINT NOT NULL, Claims INT NOT NULL);
    DECLARE @chosen TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Expired INT NOT NULL, Stage TINYINT NOT NULL, Claims INT NOT NULL);
    BEGIN TRANSACTION;
    INSERT @found (Seq, Turn, Due, Expired, Size, Expiries, Stage, Claims)
        SELECT c.Seq, t.Place, c.Due, c.Expired, c.Size, c.Expiries, c.Stage, c.Claims FROM @Topics AS t CROSS APPLY (SELECT TOP (@Share) * FROM (
            SELECT * FROM (SELECT TOP (@Share) Seq, CASE WHEN NextAttemptAt > CreatedAt THEN NextAttemptAt ELSE CreatedAt END AS Due,
                CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END AS Expired, Size, Expiries, Stage, Claims
                FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = t.Name AND Stage = 0 AND RetryCount >= 0 ORDER BY Seq) AS line
            UNION ALL
            SELECT * FROM (SELECT TOP (@Share) Seq, CASE WHEN NextAttemptAt > CreatedAt THEN NextAttemptAt ELSE CreatedAt END AS Due,
                CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END AS Expired, Size, Expiries, Stage, Claims
                FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = t.Name AND Stage = 1 AND RetryCount >= 0 ORDER BY Seq) AS held
            UNION ALL
            SELECT * FROM (SELECT TOP (@Share) Seq, AvailableAt AS Due,
                CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END AS Expired, Size, Expiries, Stage, Claims
                FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = t.Name AND Stage = 2 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt, Seq) AS waiting
            UNION ALL
            SELECT * FROM (SELECT TOP (@Share) Seq, AvailableAt AS Due,
                CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END AS Expired, Size, Expiries, Stage, Claims
                FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = t.Name AND Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt, Seq) AS delayed
            UNION ALL
            -- An expired record whose lease has ended keeps the lease until it is reaped.
            SELECT * FROM (SELECT TOP (@Share) Seq, AvailableAt AS Due, 0 AS Expired, Size, Expiries + 1 AS Expiries, Stage, Claims
                FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE GroupName = @Group AND Topic = t.Name AND Stage = 4 AND AvailableAt <= @now AND (ExpiresAt IS NULL OR ExpiresAt > @now) ORDER BY AvailableAt, Seq) AS leased
        ) AS each ORDER BY Due, Seq) AS c;
    -- Apply the claim's limit in bytes. A suspect is leased alone.
    INSERT @chosen (Seq, Expired, Stage, Claims)
        SELECT Seq, Expired, Stage, Claims FROM (SELECT Seq, Expired, Stage, Claims,
            SUM(1 - Expired) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Nth,
            SUM(CASE Expired WHEN 0 THEN CAST(Size AS BIGINT) ELSE 0 END) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Bytes,
            SUM(CASE WHEN Expired = 0 AND Expiries >= 2 THEN 1 ELSE 0 END) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Suspects
            FROM @found) AS n
        WHERE n.Expired = 1 OR n.Nth = 1 AND @First = 1 OR n.Nth <= @Room AND n.Suspects = 0 AND (@Bytes = 0 OR n.Bytes <= @Bytes);
    -- Checks the stage again, because Babelfish does not take the locks of the statement above.
    UPDATE o SET Stage = CASE c.Expired WHEN 1 THEN 5 ELSE 4 END,
            AvailableAt = CASE c.Expired WHEN 1 THEN NULL ELSE @until END,
            OwnerToken = CASE c.Expired WHEN 1 THEN NULL ELSE @Owner END,
            Claims = o.Claims + 1 - c.Expired,
            RetryCount = o.RetryCount + CASE WHEN o.Stage = 4 AND o.Expiries >= 2 THEN 1 ELSE 0 END,
            Expiries = o.Expiries + CASE o.Stage WHEN 4 THEN 1 ELSE 0 END
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @chosen AS c ON c.Seq = o.Seq
        WHERE o.Stage = c.Stage AND o.Claims = c.Claims AND o.GroupName = @Group AND (o.Stage <> 4 OR o.AvailableAt <= @now);
    -- Commit before the rows are sent, because otherwise a slow reader would keep the locks.
    COMMIT;
    SELECT o.Seq, o.IdBytes, o.GroupName, o.Topic, o.[Key], o.Stage, o.AvailableAt, o.DueTimeUtc, o.NextAttemptAt, o.CreatedAt, o.ExpiresAt, o.RetryCount, o.Claims, o.Expiries,
            CONVERT(NVARCHAR(36), o.OwnerToken) AS OwnerToken, o.ProcessedAt, o.ProcessedBy, o.MessageId, o.CorrelationId, o.CausationId, o.TenantId,
            o.TraceParent, o.TraceState, o.DedupKey, o.LastError, o.Joins, o.WaitsFor, o.Metadata, o.Payload, CAST(0 AS BIT) AS Blocked
        FROM @chosen AS c JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = c.Seq
        WHERE c.Expired = 1 AND o.Stage = 5 OR o.Stage = 4 AND o.OwnerToken = @Owner AND o.Claims = c.Claims + 1 AND o.AvailableAt = @until;
END
GO
