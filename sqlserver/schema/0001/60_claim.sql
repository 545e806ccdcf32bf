SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- The topics that may have records to claim, and the topics with records that are due, or will be,
-- and wait for a group. With @All, the procedure searches all topics that have records, instead of
-- @Topics. @Passed is waiting if records that wait are skipped. @HeldToo says whether held records
-- count. A topic that is paused as a whole is not due. The procedure skips records that other
-- transactions have locked. Returns the counter of the pauses, and then the topics.
CREATE PROCEDURE [dbo].[Outbox_Due]
    @Group NVARCHAR(255), @All BIT, @Topics [dbo].[OutboxName] READONLY, @Owner UNIQUEIDENTIFIER, @Passed NVARCHAR(36), @HeldToo BIT
AS
BEGIN
    SET NOCOUNT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @pauses BIGINT = (SELECT Pauses FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1), @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @whole TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @gap TABLE (Low BIGINT NOT NULL PRIMARY KEY, High BIGINT NOT NULL);
    DECLARE @back TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
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
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND PausedBy IS NOT NULL AND Topic > @next ORDER BY Topic) AS g
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Stage = 0 AND Topic > @next ORDER BY Topic) AS e
                UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Stage IN (2, 3) AND Topic > @next ORDER BY Topic) AS f) AS k);
            IF @next IS NOT NULL
                INSERT @topic (Topic) VALUES (@next);
        END
    END
    INSERT @whole (Topic) SELECT DISTINCT Topic FROM [dbo].[OutboxPause] WHERE [Key] = N'' AND TenantId = N'' AND GroupName IN (N'', @Group);
    -- Topics in which something comes back, because its pause is gone: see Outbox_BringBack.
    IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND PausedBy IS NOT NULL)
        OR EXISTS (SELECT 1 FROM [dbo].[OutboxLane] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND PausedBy IS NOT NULL)
    BEGIN
        INSERT @gap (Low, High) SELECT p.Number, LEAD(p.Number, 1, CAST(9223372036854775807 AS BIGINT)) OVER (ORDER BY p.Number)
            FROM (SELECT Number FROM [dbo].[OutboxPause] UNION ALL SELECT CAST(0 AS BIGINT)) AS p;
        INSERT @back (Topic) SELECT t.Topic FROM @topic AS t
            WHERE EXISTS (SELECT 1 FROM @gap AS g CROSS APPLY (SELECT TOP (1) r.PausedBy FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                    WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.PausedBy IS NOT NULL AND r.PausedBy > g.Low AND r.PausedBy < g.High) AS n)
                OR EXISTS (SELECT 1 FROM @gap AS g CROSS APPLY (SELECT TOP (1) l.PausedBy FROM [dbo].[OutboxLane] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                    WHERE l.GroupName = @Group AND l.Topic = t.Topic AND l.PausedBy IS NOT NULL AND l.PausedBy > g.Low AND l.PausedBy < g.High) AS n);
    END
    SELECT @pauses AS Pauses;
    SELECT t.Topic,
        CASE WHEN EXISTS (SELECT 1 FROM @whole AS w WHERE w.Topic IN (N'', t.Topic)) THEN 0
            WHEN EXISTS (SELECT 1 FROM @back AS b WHERE b.Topic = t.Topic)
            OR EXISTS (SELECT 1 FROM [dbo].[Outbox] AS r WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE r.GroupName = @Group AND r.Topic = t.Topic AND r.Stage = 0)
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
-- procedure skips records that another transaction has locked, and topics that are paused as a whole.
-- It moves an expired record to stage 5 instead; the record stays pending until the janitor makes it
-- dead. It moves a paused record to stage -1, and first brings back records whose pause is gone.
--
-- Returns the counter of the pauses, then the topics in which it passed over records that have expired
-- or are paused, with their number, and then the leased records.
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
    DECLARE @pauses BIGINT = (SELECT Pauses FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1), @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @until DATETIME2(6) = DATEADD(MICROSECOND, CAST(@Lease % 1000000 AS INT), DATEADD(SECOND, CAST(@Lease / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Lease / CAST(86400000000 AS BIGINT) AS INT), @now)));
    DECLARE @whole TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @turn [dbo].[OutboxName];
    DECLARE @found TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Turn INT NOT NULL, Due DATETIME2(6) NOT NULL, Passed INT NOT NULL, Size INT NOT NULL,
        Expiries INT NOT NULL, Stage SMALLINT NOT NULL, Claims INT NOT NULL, PausedBy BIGINT NULL);
    DECLARE @chosen TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Turn INT NOT NULL, Passed INT NOT NULL, Stage SMALLINT NOT NULL, Claims INT NOT NULL, PausedBy BIGINT NULL);
    INSERT @whole (Topic) SELECT DISTINCT Topic FROM [dbo].[OutboxPause] WHERE [Key] = N'' AND TenantId = N'' AND GroupName IN (N'', @Group);
    INSERT @turn (Place, Name) SELECT t.Place, t.Name FROM @Topics AS t WHERE NOT EXISTS (SELECT 1 FROM @whole AS w WHERE w.Topic IN (N'', t.Name));
    BEGIN TRANSACTION;
    IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND PausedBy IS NOT NULL)
        EXEC [dbo].[Outbox_BringBack] @Group = @Group, @Topics = @turn, @Keyed = 0, @All = 0;
    INSERT @found (Seq, Turn, Due, Passed, Size, Expiries, Stage, Claims)
        SELECT c.Seq, t.Place, c.Due, c.Expired, c.Size, c.Expiries, c.Stage, c.Claims FROM @turn AS t CROSS APPLY (SELECT TOP (@Share) * FROM (
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
    -- The number of the pause of each record, by its key or by its tenant. SQL Server ignores trailing
    -- blanks when it compares texts, and a tenant may have some.
    IF EXISTS (SELECT 1 FROM [dbo].[OutboxPause] WHERE [Key] <> N'' OR TenantId <> N'')
        UPDATE f SET Passed = 1, PausedBy = p.Number
            FROM @found AS f JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = f.Seq
            CROSS APPLY (SELECT MIN(n.Number) AS Number FROM (
                SELECT k.Number FROM [dbo].[OutboxPause] AS k WITH (FORCESEEK) WHERE o.Keyed = 1 AND k.Topic = o.Topic AND k.[Key] = o.[Key] AND k.GroupName IN (N'', @Group)
                UNION ALL SELECT k.Number FROM [dbo].[OutboxPause] AS k WITH (FORCESEEK) WHERE k.TenantId = o.TenantId AND k.TenantId <> N''
                    AND DATALENGTH(k.TenantId) = DATALENGTH(o.TenantId) AND k.Topic IN (N'', o.Topic) AND k.GroupName IN (N'', @Group)) AS n) AS p
            WHERE f.Passed = 0 AND p.Number IS NOT NULL;
    -- Apply the claim's limit in bytes. A suspect is leased alone.
    INSERT @chosen (Seq, Turn, Passed, Stage, Claims, PausedBy)
        SELECT Seq, Turn, Passed, Stage, Claims, PausedBy FROM (SELECT Seq, Turn, Passed, Stage, Claims, PausedBy,
            SUM(1 - Passed) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Nth,
            SUM(CASE Passed WHEN 0 THEN CAST(Size AS BIGINT) ELSE 0 END) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Bytes,
            SUM(CASE WHEN Passed = 0 AND Expiries >= 2 THEN 1 ELSE 0 END) OVER (ORDER BY Turn, Due, Seq ROWS UNBOUNDED PRECEDING) AS Suspects
            FROM @found) AS n
        WHERE n.Passed = 1 OR n.Nth = 1 AND @First = 1 OR n.Nth <= @Room AND n.Suspects = 0 AND (@Bytes = 0 OR n.Bytes <= @Bytes);
    -- These check the stage again, because Babelfish does not take the locks of the statement above. A
    -- statement of its own sets PausedBy, so that the other one need not maintain the indexes of it.
    IF EXISTS (SELECT 1 FROM @chosen WHERE PausedBy IS NOT NULL)
        UPDATE o SET Stage = -1, PausedBy = c.PausedBy, AvailableAt = NULL, OwnerToken = NULL,
                RetryCount = o.RetryCount + CASE WHEN o.Stage = 4 AND o.Expiries >= 2 THEN 1 ELSE 0 END,
                Expiries = o.Expiries + CASE o.Stage WHEN 4 THEN 1 ELSE 0 END
            FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @chosen AS c ON c.Seq = o.Seq
            WHERE c.PausedBy IS NOT NULL AND o.Stage = c.Stage AND o.Claims = c.Claims AND o.GroupName = @Group AND (o.Stage <> 4 OR o.AvailableAt <= @now);
    UPDATE o SET Stage = CASE c.Passed WHEN 1 THEN 5 ELSE 4 END,
            AvailableAt = CASE c.Passed WHEN 1 THEN NULL ELSE @until END,
            OwnerToken = CASE c.Passed WHEN 1 THEN NULL ELSE @Owner END,
            Claims = o.Claims + 1 - c.Passed,
            RetryCount = o.RetryCount + CASE WHEN o.Stage = 4 AND o.Expiries >= 2 THEN 1 ELSE 0 END,
            Expiries = o.Expiries + CASE o.Stage WHEN 4 THEN 1 ELSE 0 END
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @chosen AS c ON c.Seq = o.Seq
        WHERE c.PausedBy IS NULL AND o.Stage = c.Stage AND o.Claims = c.Claims AND o.GroupName = @Group AND (o.Stage <> 4 OR o.AvailableAt <= @now);
    -- Commit before the rows are sent, because otherwise a slow reader would keep the locks.
    COMMIT;
    SELECT @pauses AS Pauses;
    SELECT t.Name AS Topic, COUNT(*) AS Passed FROM @chosen AS c JOIN @turn AS t ON t.Place = c.Turn WHERE c.Passed = 1 GROUP BY t.Name;
    SELECT o.Seq, o.IdBytes, o.GroupName, o.Topic, o.[Key], o.Stage, o.AvailableAt, o.DueTimeUtc, o.NextAttemptAt, o.CreatedAt, o.ExpiresAt, o.RetryCount, o.Claims, o.Expiries,
            CONVERT(NVARCHAR(36), o.OwnerToken) AS OwnerToken, o.ProcessedAt, o.ProcessedBy, o.MessageId, o.CorrelationId, o.CausationId, o.TenantId,
            o.TraceParent, o.TraceState, o.DedupKey, o.LastError, o.Joins, o.WaitsFor, o.Metadata, o.Payload, CAST(0 AS BIT) AS Blocked
        FROM @chosen AS c JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = c.Seq
        WHERE c.Passed = 0 AND o.Stage = 4 AND o.OwnerToken = @Owner AND o.Claims = c.Claims + 1 AND o.AvailableAt = @until;
END
GO
