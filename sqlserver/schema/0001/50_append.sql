SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Writes records, in the caller's transaction (@Within) or in one of its own. If the registered
-- groups, or the schema's version, differ from those for which the records were made, it writes
-- nothing and returns 0. Otherwise it returns 1 and the time of creation, and then the dedup keys
-- that were free. An error rolls the whole transaction back. The procedure copies its sets first,
-- because Babelfish shows the second of two calls in one transaction the set of the first.
CREATE PROCEDURE [dbo].[Outbox_Append]
    @Within BIT, @Generation BIGINT, @Version INT, @New [dbo].[OutboxNew] READONLY, @Members [dbo].[OutboxNewMember] READONLY, @DedupWindow BIGINT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    IF @Within = 1 AND @own = 1
        THROW 50902, N'outmill: no transaction is open', 1;
    IF @own = 1
        BEGIN TRANSACTION;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @fits BIT = 0;
    SELECT @fits = 1 FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1 AND Generation = @Generation AND Version >= @Version AND Compatible <= @Version;
    DECLARE @free TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, DedupKey NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
    IF @fits = 1
    BEGIN
        DECLARE @wanted TABLE (Place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, DedupKey NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
        INSERT @wanted (Topic, DedupKey) SELECT DISTINCT Topic, DedupKey FROM @New WHERE DedupKey <> N'' ORDER BY Topic, DedupKey;
        IF EXISTS (SELECT 1 FROM @wanted)
        BEGIN
            DECLARE @ends DATETIME2(6) = DATEADD(MICROSECOND, CAST(@DedupWindow % 1000000 AS INT), DATEADD(SECOND, CAST(@DedupWindow / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@DedupWindow / CAST(86400000000 AS BIGINT) AS INT), @now)));
            -- Waits only for transactions that append the same key. The range locks of HOLDLOCK would
            -- make appends wait for their neighbours.
            DECLARE @place INT = 1, @keys INT = (SELECT COUNT(*) FROM @wanted), @of NVARCHAR(255), @key NVARCHAR(255);
            WHILE @place <= @keys
            BEGIN
                SELECT @of = Topic, @key = DedupKey FROM @wanted WHERE Place = @place;
                EXEC [dbo].[Outbox_LockDedupKey] @Topic = @of, @DedupKey = @key;
                SET @place = @place + 1;
            END
            DELETE d FROM [dbo].[OutboxDedup] AS d WITH (FORCESEEK) JOIN @wanted AS w ON w.Topic = d.Topic AND w.DedupKey = d.DedupKey WHERE d.ExpiresAt <= @now;
            INSERT @free (Topic, DedupKey) SELECT w.Topic, w.DedupKey FROM @wanted AS w
                WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxDedup] AS d WITH (FORCESEEK) WHERE d.Topic = w.Topic AND d.DedupKey = w.DedupKey);
            -- The first row of a key has the id that Append gave the record; the rows of further groups follow it.
            INSERT [dbo].[OutboxDedup] (Topic, DedupKey, ExpiresAt, FirstId)
                SELECT f.Topic, f.DedupKey, @ends, (SELECT TOP (1) n.Id FROM @New AS n WHERE n.Topic = f.Topic AND n.DedupKey = f.DedupKey ORDER BY n.Place)
                FROM @free AS f;
        END

        INSERT [dbo].[Outbox] (Id, IdBytes, GroupName, Topic, [Key], Keyed, Stage, AvailableAt, DueTimeUtc, NextAttemptAt, CreatedAt, ExpiresAt,
                RetryCount, Claims, Expiries, Size, Parked, MessageId, CorrelationId, CausationId, TenantId, TraceParent, TraceState, DedupKey,
                Step, Joins, WaitsFor, LastError, Metadata, Payload)
            SELECT CONVERT(UNIQUEIDENTIFIER, n.Id), n.IdBytes, n.GroupName, n.Topic, n.[Key], CASE n.[Key] WHEN N'' THEN 0 ELSE 1 END,
                CASE WHEN t.Due > @now THEN 3 ELSE 0 END, CASE WHEN t.Due > @now THEN t.Due END, t.Due, t.Due, @now, t.Expires,
                0, 0, 0, n.Size, 0, n.MessageId, n.CorrelationId, n.CausationId, n.TenantId, n.TraceParent, n.TraceState, CASE WHEN n.DedupKey <> N'' THEN n.DedupKey END,
                n.Step, n.Joins, n.WaitsFor, NULL, n.Metadata, n.Payload
            FROM @New AS n
            CROSS APPLY (SELECT
                CASE WHEN n.DueAfter IS NOT NULL THEN DATEADD(MICROSECOND, CAST(n.DueAfter % 1000000 AS INT), DATEADD(SECOND, CAST(n.DueAfter / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(n.DueAfter / CAST(86400000000 AS BIGINT) AS INT), @now)))
                    WHEN n.DueAt IS NOT NULL THEN CONVERT(DATETIME2(6), n.DueAt, 126) ELSE @now END AS Due,
                CASE WHEN n.ExpiresAfter IS NOT NULL THEN DATEADD(MICROSECOND, CAST(n.ExpiresAfter % 1000000 AS INT), DATEADD(SECOND, CAST(n.ExpiresAfter / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(n.ExpiresAfter / CAST(86400000000 AS BIGINT) AS INT), @now)))
                    WHEN n.ExpiresAt IS NOT NULL THEN CONVERT(DATETIME2(6), n.ExpiresAt, 126) END AS Expires) AS t
            WHERE n.DedupKey = N'' OR EXISTS (SELECT 1 FROM @free AS f WHERE f.Topic = n.Topic AND f.DedupKey = n.DedupKey)
            ORDER BY n.Place;

        DECLARE @member TABLE (JoinIdBytes BINARY(16) NOT NULL, JoinId NVARCHAR(36) NOT NULL, Step BINARY(16) NOT NULL, MessageId NVARCHAR(255) NOT NULL, OpenRecords INT NOT NULL);
        INSERT @member (JoinIdBytes, JoinId, Step, MessageId, OpenRecords) SELECT JoinIdBytes, JoinId, Step, MessageId, OpenRecords FROM @Members;
        IF EXISTS (SELECT 1 FROM @member)
            INSERT [dbo].[OutboxJoinMember] (JoinIdBytes, Step, JoinId, OutboxMessageId, Status, OpenRecords, AckedRecords, DeadRecords, Reported, CreatedUtc)
                SELECT m.JoinIdBytes, m.Step, CONVERT(UNIQUEIDENTIFIER, m.JoinId), m.MessageId, 0, m.OpenRecords, 0, 0, 0, @now FROM @member AS m
                WHERE EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.IdBytes = m.Step)
                    AND NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoinMember] AS k WITH (FORCESEEK) WHERE k.JoinIdBytes = m.JoinIdBytes AND k.Step = m.Step);
    END
    IF @own = 1
        COMMIT;
    SELECT @fits AS Fits, @now AS CreatedAt, N'' AS Topic, N'' AS DedupKey UNION ALL SELECT 1, @now, Topic, DedupKey FROM @free;
END
GO
