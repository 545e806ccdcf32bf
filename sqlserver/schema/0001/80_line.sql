SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Claims in order. A claim is a transaction that has locked one line exclusively. It calls
-- Outbox_LineOpen, and then Outbox_LineLook and Outbox_LineSettle as often as needed. The program
-- decides about each page.

-- Reads the lanes that are no longer blocked for the owner, those with the earliest head first, and
-- the first ready records, with the state of each key at its first record: the lease of another
-- owner, the first record that waits, the first held record, and whether any record is parked.
--
-- It reads the ready records twice. When the first read sees a record, all earlier records of its key
-- are committed, so the second read sees them. For a record that only the second read sees, that may
-- not hold, so the record and the later ones of its key are left out.
--
-- @Before is the time when the first record became due that Outbox_LineOpen has not made ready; NULL:
-- there is none. Records that were appended at that time or after it are left out, and all records
-- behind them: see Outbox_LineOpen.
--
-- If a tenant is paused, each record comes with its tenant and its expiry, and each lane with those of
-- its first held record, unless this record has expired. They are read from the records themselves,
-- which no other claim in order changes at the same time. The indexes do not have the tenant, because
-- they would grow by it in a database in which nobody ever pauses one.
--
-- Returns how many records were left out, and then the lanes and the records.
CREATE PROCEDURE [dbo].[Outbox_LineRead]
    @Owner UNIQUEIDENTIFIER, @Group NVARCHAR(255), @Topic NVARCHAR(255), @Passed NVARCHAR(36), @Page INT, @ByTopic BIT, @Before DATETIME2(6)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @lane TABLE ([Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, Head BIGINT NOT NULL);
    DECLARE @first TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @row TABLE (Seq BIGINT NOT NULL PRIMARY KEY, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, Expired BIT NOT NULL, Expiries INT NOT NULL, Size INT NOT NULL, Seen BIT NOT NULL, CreatedAt DATETIME2(6) NOT NULL);
    DECLARE @last BIGINT, @waits BIGINT = 9223372036854775807, @cut BIGINT, @dropped INT = 0, @blocked BIT = 0;
    DECLARE @tenants BIT = CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxPause] WHERE TenantId <> N'') THEN 1 ELSE 0 END;

    IF @ByTopic = 0
        INSERT @lane ([Key], Head) SELECT TOP (@Page) [Key], Head FROM (
            SELECT * FROM (SELECT TOP (@Page) [Key], Head FROM [dbo].[OutboxLane] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND BlockedBy = N'' ORDER BY Head) AS a
            UNION ALL SELECT * FROM (SELECT TOP (@Page) [Key], Head FROM [dbo].[OutboxLane] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND BlockedBy = CONVERT(NVARCHAR(36), @Owner) ORDER BY Head) AS b
            UNION ALL SELECT * FROM (SELECT TOP (@Page) [Key], Head FROM [dbo].[OutboxLane] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND BlockedBy = @Passed ORDER BY Head) AS c) AS k ORDER BY Head;

    -- Returns no records while due records of the topic wait for a group, nor, in the order of the
    -- topic, while another owner has a lease. Each check is a statement of its own, because the server may evaluate a condition in any order.
    IF @ByTopic = 1
    BEGIN
        IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 4 AND OwnerToken <> @Owner
            AND (AvailableAt > @now OR ExpiresAt IS NULL OR ExpiresAt > @now))
            SET @blocked = 1;
    END
    IF @blocked = 0 AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Topic = @Topic AND Stage = 0)
        AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName IS NULL AND Topic = @Topic AND Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now)
    BEGIN
        IF @ByTopic = 1 AND @Passed <> N'waiting'
            SET @waits = ISNULL((SELECT MIN(Seq) FROM [dbo].[Outbox] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 2 AND (ExpiresAt IS NULL OR ExpiresAt > @now)), @waits);
        INSERT @first (Seq) SELECT TOP (@Page) Seq FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 0 AND Seq < @waits ORDER BY Seq;
        SET @last = (SELECT MAX(Seq) FROM @first);
        INSERT @row (Seq, [Key], Expired, Expiries, Size, Seen, CreatedAt)
            SELECT Seq, [Key], CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END, Expiries, Size, CASE WHEN EXISTS (SELECT 1 FROM @first AS f WHERE f.Seq = o.Seq) THEN 1 ELSE 0 END, CreatedAt
            FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 0 AND Seq <= @last;
        -- Records that claims by key hold. There may be more of either kind behind those that were
        -- read, so no more are kept than were asked for.
        IF @ByTopic = 1
        BEGIN
            INSERT @row (Seq, [Key], Expired, Expiries, Size, Seen, CreatedAt)
                SELECT TOP (@Page) Seq, [Key], CASE WHEN ExpiresAt <= @now THEN 1 ELSE 0 END, Expiries, Size, 1, CreatedAt
                FROM [dbo].[Outbox] WITH (FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND Stage = 1 AND Seq < @waits ORDER BY Seq;
            DELETE FROM @row WHERE Seq NOT IN (SELECT TOP (@Page) Seq FROM @row ORDER BY Seq);
        END
        IF EXISTS (SELECT 1 FROM @row WHERE Seen = 0)
        BEGIN
            DELETE p FROM @row AS p WHERE p.Seen = 0
                OR (@ByTopic = 1 OR p.[Key] <> N'') AND EXISTS (SELECT 1 FROM @row AS n WHERE n.Seen = 0 AND (@ByTopic = 1 OR n.[Key] = p.[Key]) AND n.Seq < p.Seq);
            SET @dropped = @@ROWCOUNT;
        END
        IF @Before IS NOT NULL
        BEGIN
            SET @cut = (SELECT MIN(Seq) FROM @row WHERE CreatedAt >= @Before);
            DELETE FROM @row WHERE Seq >= @cut;
            SET @dropped = @dropped + @@ROWCOUNT;
        END
    END
    SELECT @dropped AS Dropped;

    -- Lanes: 0, the key, the head, and the state. Then the records.
    SELECT r.Kind, r.Seq, r.[Key], r.Expired, r.Expiries, r.Size, r.Nth, r.Other, r.OtherEnd, r.Waiting, r.WaitingEnd, r.Held, r.Parked, r.TenantId, r.ExpiresAt FROM (
        SELECT k.Kind, k.Seq, k.[Key], k.Expired, k.Expiries, k.Size, k.Nth, CONVERT(NVARCHAR(36), other.OwnerToken) AS Other, other.AvailableAt AS OtherEnd,
            waiting.Seq AS Waiting, waiting.Until AS WaitingEnd, held.Seq AS Held, CASE WHEN park.Seq IS NULL THEN 0 ELSE 1 END AS Parked,
            own.TenantId, own.ExpiresAt
        FROM (SELECT 0 AS Kind, Head AS Seq, [Key], 0 AS Expired, 0 AS Expiries, 0 AS Size, CAST(1 AS BIGINT) AS Nth FROM @lane
            UNION ALL SELECT 1, Seq, [Key], Expired, Expiries, Size, ROW_NUMBER() OVER (PARTITION BY [Key] ORDER BY Seq) FROM @row) AS k
        OUTER APPLY (SELECT TOP (1) OwnerToken, AvailableAt FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE @ByTopic = 0 AND k.Nth = 1 AND k.[Key] <> N''
            AND o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = k.[Key] AND o.Keyed = 1 AND o.Stage = 4 AND o.Stage < 6
            AND o.OwnerToken <> @Owner AND (o.AvailableAt > @now OR o.ExpiresAt IS NULL OR o.ExpiresAt > @now)) AS other
        OUTER APPLY (SELECT TOP (1) o.Seq, CASE WHEN o.ExpiresAt < o.AvailableAt THEN o.ExpiresAt ELSE o.AvailableAt END AS Until FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE @ByTopic = 0 AND k.Nth = 1 AND k.[Key] <> N''
            AND o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = k.[Key] AND o.Keyed = 1 AND o.Stage = 2 AND o.Stage < 6
            AND (o.ExpiresAt IS NULL OR o.ExpiresAt > @now) ORDER BY o.Seq) AS waiting
        OUTER APPLY (SELECT TOP (1) o.Seq FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE @ByTopic = 0 AND k.Nth = 1 AND k.[Key] <> N''
            AND o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = k.[Key] AND o.Keyed = 1 AND o.Stage = 1 AND o.Stage < 6 ORDER BY o.Seq) AS held
        OUTER APPLY (SELECT TOP (1) o.Seq FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE @ByTopic = 0 AND k.Nth = 1 AND k.[Key] <> N''
            AND o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = k.[Key] AND o.Parked = 1) AS park
        OUTER APPLY (SELECT TOP (1) o.TenantId, o.ExpiresAt FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE @tenants = 1 AND o.Seq = CASE k.Kind WHEN 0 THEN held.Seq ELSE k.Seq END
            AND (k.Kind = 1 OR o.ExpiresAt IS NULL OR o.ExpiresAt > @now)) AS own
    ) AS r ORDER BY r.Kind, r.Seq;
END
GO

-- Locks the line, and makes due records ready. Afterwards a record's place is that of its append, and
-- stage 4 has only leases that have not ended. It also opens the lanes that have waited long enough.
--
-- It makes a bounded number of records ready, those that have been due longest first (by due time,
-- then by place), so that a million records that become due at once cost each claim only a bounded
-- amount of work. The records that are still due then become a bound: the claim sees the line as of
-- @before, the time when the first remaining record became due. An earlier claim would have seen the
-- same: a record that was appended before @before may go ahead of the remaining ones, because it
-- could have been handed out before they were due; a record that was appended later may not. So the
-- order of a key holds, and each claim moves the bound on. Among equal due times, the records with
-- the first places become ready, and the bound leaves out records that were appended in that same
-- microsecond.
--
-- A claim is one transaction, so a crash leaves the line as it was before the claim, and the work of
-- earlier claims stays. No record is ever between two stages.
--
-- If claims without an order have set records aside, these come back first: all that have a place in
-- the order, whatever their pause. As long as some are left, the claim returns no record. A lane whose
-- pause is gone is opened, 900 in a claim.
--
-- Returns the counter of the pauses, whether the claim may return records, whether more comes back, and
-- the bound; and then, if the claim may return records, the results of Outbox_LineRead.
CREATE PROCEDURE [dbo].[Outbox_LineOpen]
    @Owner UNIQUEIDENTIFIER, @Group NVARCHAR(255), @Topic NVARCHAR(255), @Passed NVARCHAR(36), @Page INT, @ByTopic BIT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    EXEC [dbo].[Outbox_LockLine] @Group = @Group, @Topic = @Topic, @Mode = N'Exclusive';
    DECLARE @pauses BIGINT = (SELECT Pauses FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1), @more INT = 0, @opened INT = 0;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @before DATETIME2(6), @step INT = CASE WHEN @Page < 225 THEN 4 * @Page ELSE 900 END;
    DECLARE @due TABLE (Seq BIGINT NOT NULL PRIMARY KEY, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, Stage SMALLINT NOT NULL);
    DECLARE @gap TABLE (Low BIGINT NOT NULL PRIMARY KEY, High BIGINT NOT NULL);
    DECLARE @gone TABLE (Number BIGINT NOT NULL PRIMARY KEY);
    DECLARE @of [dbo].[OutboxName];
    IF EXISTS (SELECT 1 FROM [dbo].[OutboxPause] WHERE [Key] = N'' AND TenantId = N'' AND GroupName IN (N'', @Group) AND Topic IN (N'', @Topic))
    BEGIN
        SELECT @pauses AS Pauses, 0 AS Served, 0 AS Again, @before AS Before;
        RETURN;
    END
    IF EXISTS (SELECT 1 FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND PausedBy IS NOT NULL)
    BEGIN
        INSERT @of (Place, Name) VALUES (0, @Topic);
        EXEC @more = [dbo].[Outbox_BringBack] @Group = @Group, @Topics = @of, @Keyed = 1, @All = @ByTopic;
        IF @more > 0
        BEGIN
            SELECT @pauses AS Pauses, 0 AS Served, 1 AS Again, @before AS Before;
            RETURN;
        END
    END
    -- Skips locked lanes, because the transactions that have locked them open them.
    IF EXISTS (SELECT 1 FROM [dbo].[OutboxLane] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE GroupName = @Group AND Topic = @Topic AND PausedBy IS NOT NULL)
    BEGIN
        INSERT @gap (Low, High) SELECT p.Number, LEAD(p.Number, 1, CAST(9223372036854775807 AS BIGINT)) OVER (ORDER BY p.Number)
            FROM (SELECT Number FROM [dbo].[OutboxPause] UNION ALL SELECT CAST(0 AS BIGINT)) AS p;
        INSERT @gone (Number) SELECT n.Number FROM @gap AS g
            CROSS APPLY (SELECT MIN(l.PausedBy) AS Number FROM [dbo].[OutboxLane] AS l WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE l.GroupName = @Group AND l.Topic = @Topic AND l.PausedBy IS NOT NULL AND l.PausedBy > g.Low AND l.PausedBy < g.High) AS n
            WHERE n.Number IS NOT NULL;
        UPDATE l SET BlockedBy = N'', Until = NULL, PausedBy = NULL FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN (
                SELECT TOP (900) p.Lane FROM @gone AS g JOIN [dbo].[OutboxLane] AS p WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
                ON p.GroupName = @Group AND p.Topic = @Topic AND p.PausedBy = g.Number WHERE p.PausedBy IS NOT NULL AND p.Looks >= 0) AS u ON u.Lane = l.Lane;
        SET @opened = @@ROWCOUNT;
    END
    INSERT @due (Seq, [Key], Stage) SELECT TOP (@step) d.Seq, d.[Key], d.Stage FROM (
        SELECT * FROM (SELECT TOP (@step) Seq, [Key], Stage, AvailableAt FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE GroupName = @Group AND Topic = @Topic AND Stage = 2 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt, Seq) AS waiting
        UNION ALL
        SELECT * FROM (SELECT TOP (@step) Seq, [Key], Stage, AvailableAt FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE GroupName = @Group AND Topic = @Topic AND Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt, Seq) AS delayed
        UNION ALL
        -- An expired record whose lease has ended keeps the lease until it is reaped.
        SELECT * FROM (SELECT TOP (@step) Seq, [Key], Stage, AvailableAt FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE GroupName = @Group AND Topic = @Topic AND Stage = 4 AND AvailableAt <= @now AND (ExpiresAt IS NULL OR ExpiresAt > @now) ORDER BY AvailableAt, Seq) AS leased
    ) AS d ORDER BY d.AvailableAt, d.Seq;
    UPDATE o SET Stage = 0, AvailableAt = NULL, OwnerToken = NULL,
            RetryCount = o.RetryCount + CASE WHEN o.Stage = 4 AND o.Expiries >= 2 THEN 1 ELSE 0 END,
            Expiries = o.Expiries + CASE o.Stage WHEN 4 THEN 1 ELSE 0 END
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @due AS d ON d.Seq = o.Seq WHERE o.Stage = d.Stage AND o.AvailableAt <= @now;
    IF (SELECT COUNT(*) FROM @due) >= @step
        SET @before = (SELECT MIN(d.AvailableAt) FROM (
            SELECT * FROM (SELECT TOP (1) AvailableAt FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE GroupName = @Group AND Topic = @Topic AND Stage = 2 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt) AS waiting
            UNION ALL
            SELECT * FROM (SELECT TOP (1) AvailableAt FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE GroupName = @Group AND Topic = @Topic AND Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now ORDER BY AvailableAt) AS delayed
            UNION ALL
            SELECT * FROM (SELECT TOP (1) AvailableAt FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE GroupName = @Group AND Topic = @Topic AND Stage = 4 AND AvailableAt <= @now AND (ExpiresAt IS NULL OR ExpiresAt > @now) ORDER BY AvailableAt) AS leased
        ) AS d);
    UPDATE l SET BlockedBy = N'', Until = NULL, PausedBy = NULL FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN (SELECT DISTINCT [Key] FROM @due WHERE [Key] <> N'') AS a ON a.[Key] = l.[Key]
        WHERE l.GroupName = @Group AND l.Topic = @Topic;
    -- Skips locked lanes, because the transactions that have locked them open them.
    UPDATE l SET BlockedBy = N'', Until = NULL, PausedBy = NULL FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN (
            SELECT TOP (900) Lane FROM [dbo].[OutboxLane] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            WHERE GroupName = @Group AND Topic = @Topic AND Until IS NOT NULL AND Until <= @now AND Looks >= 0 ORDER BY Until) AS u ON u.Lane = l.Lane;
    SELECT @pauses AS Pauses, 1 AS Served, CASE WHEN @opened >= 900 THEN 1 ELSE 0 END AS Again, @before AS Before;
    EXEC [dbo].[Outbox_LineRead] @Owner = @Owner, @Group = @Group, @Topic = @Topic, @Passed = @Passed, @Page = @Page, @ByTopic = @ByTopic, @Before = @before;
END
GO

-- Makes held records ready again, @Want of all lanes, of each lane up to its barrier, and notes what
-- blocks the other lanes. A claim checks these again when the block ends, but within 100 ms at first,
-- and after twice the time on each check, up to 6.4 s. A pause has no such check: a claim opens the
-- lane when the pause is gone (Outbox_LineOpen). Returns how many records became ready, and then the
-- results of Outbox_LineRead.
CREATE PROCEDURE [dbo].[Outbox_LineLook]
    @Owner UNIQUEIDENTIFIER, @Group NVARCHAR(255), @Topic NVARCHAR(255), @Passed NVARCHAR(36), @Page INT, @Before DATETIME2(6), @Notes [dbo].[OutboxNote] READONLY, @Want INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @back INT;
    DECLARE @lane TABLE (Place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, BlockedBy NVARCHAR(36) NOT NULL, Until DATETIME2(6) NULL, Barrier BIGINT NOT NULL, PausedBy BIGINT NULL);
    DECLARE @record TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    INSERT @lane ([Key], BlockedBy, Until, Barrier, PausedBy) SELECT [Key], BlockedBy, CONVERT(DATETIME2(6), Until, 126), Barrier, PausedBy FROM @Notes ORDER BY Place;
    INSERT @record (Seq) SELECT TOP (@Want) r.Seq FROM @lane AS l CROSS APPLY (
            SELECT TOP (@Want) o.Seq FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = l.[Key] AND o.Keyed = 1 AND o.Stage = 1 AND o.Stage < 6
            AND o.Seq < l.Barrier ORDER BY o.Seq) AS r ORDER BY l.Place, r.Seq;
    UPDATE o SET Stage = 0 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE o.Stage = 1;
    SET @back = @@ROWCOUNT;
    DELETE l FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN @lane AS k ON k.[Key] = l.[Key] WHERE l.GroupName = @Group AND l.Topic = @Topic
        AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = l.[Key] AND o.Keyed = 1 AND o.Stage = 1 AND o.Stage < 6);
    UPDATE l SET Looks = CASE WHEN l.Looks < 100 THEN l.Looks + 1 ELSE l.Looks END, Head = h.Seq,
            BlockedBy = CASE WHEN h.Seq < k.Barrier THEN N'' ELSE k.BlockedBy END,
            PausedBy = CASE WHEN h.Seq < k.Barrier THEN NULL ELSE k.PausedBy END,
            Until = CASE WHEN h.Seq < k.Barrier THEN NULL WHEN k.PausedBy IS NOT NULL OR k.Until < t.Again THEN k.Until ELSE t.Again END
        FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN @lane AS k ON k.[Key] = l.[Key]
        CROSS APPLY (SELECT ISNULL((SELECT MIN(o.Seq) FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.GroupName = @Group AND o.Topic = @Topic AND o.[Key] = l.[Key] AND o.Keyed = 1 AND o.Stage = 1 AND o.Stage < 6), l.Head) AS Seq) AS h
        CROSS APPLY (SELECT DATEADD(MILLISECOND, 100 * POWER(2, CASE WHEN l.Looks < 6 THEN l.Looks ELSE 6 END), @now) AS Again) AS t
        WHERE l.GroupName = @Group AND l.Topic = @Topic;
    SELECT @back AS Back;
    EXEC [dbo].[Outbox_LineRead] @Owner = @Owner, @Group = @Group, @Topic = @Topic, @Passed = @Passed, @Page = @Page, @ByTopic = 0, @Before = @Before;
END
GO

-- Carries out the decisions on a page. Expired records stay pending until the janitor makes them
-- dead. @Notes are lanes to insert or to update. @Reopen are keys whose lanes the next claim must
-- check. Returns the leased records, and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_LineSettle]
    @Owner UNIQUEIDENTIFIER, @Group NVARCHAR(255), @Topic NVARCHAR(255), @Lease BIGINT, @Records [dbo].[OutboxDecision] READONLY, @Notes [dbo].[OutboxNote] READONLY, @Reopen [dbo].[OutboxName] READONLY, @Parked NVARCHAR(MAX)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @until DATETIME2(6) = DATEADD(MICROSECOND, CAST(@Lease % 1000000 AS INT), DATEADD(SECOND, CAST(@Lease / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Lease / CAST(86400000000 AS BIGINT) AS INT), @now)));
    DECLARE @soon DATETIME2(6) = DATEADD(MILLISECOND, 100, @now);
    DECLARE @lane TABLE ([Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, BlockedBy NVARCHAR(36) NOT NULL, Until DATETIME2(6) NULL, Head BIGINT NOT NULL, PausedBy BIGINT NULL);
    DECLARE @dead TABLE (Step BINARY(16));
    DECLARE @record TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Decision NVARCHAR(1) NOT NULL, PausedBy BIGINT NULL);
    DECLARE @open TABLE ([Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    INSERT @record (Seq, Decision, PausedBy) SELECT Seq, Decision, PausedBy FROM @Records;
    INSERT @open ([Key]) SELECT DISTINCT Name FROM @Reopen;
    INSERT @lane ([Key], BlockedBy, Until, Head, PausedBy) SELECT [Key], BlockedBy, CONVERT(DATETIME2(6), Until, 126), Head, PausedBy FROM @Notes;
    IF EXISTS (SELECT 1 FROM @record WHERE Decision = N'x')
        UPDATE o SET Stage = 5 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'x' AND o.Stage IN (0, 1);
    IF EXISTS (SELECT 1 FROM @record WHERE Decision = N'a')
        UPDATE o SET Stage = -1, PausedBy = r.PausedBy FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'a' AND o.Stage = 0;
    IF EXISTS (SELECT 1 FROM @record WHERE Decision = N'p')
    BEGIN
        UPDATE o SET Stage = 7, Parked = 1, LastError = @Parked FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'p' AND o.Stage = 0;
        INSERT @dead (Step) SELECT o.Step FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'p' AND o.Stage = 7 AND o.Parked = 1 AND o.Step IS NOT NULL;
    END
    -- A record may have expired since it was read. It is then no longer ready.
    UPDATE o SET Stage = CASE WHEN o.ExpiresAt <= @now THEN 5 ELSE 4 END,
            AvailableAt = CASE WHEN o.ExpiresAt <= @now THEN NULL ELSE @until END,
            OwnerToken = CASE WHEN o.ExpiresAt <= @now THEN NULL ELSE @Owner END,
            Claims = o.Claims + CASE WHEN o.ExpiresAt <= @now THEN 0 ELSE 1 END
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'l' AND o.Stage IN (0, 1);
    IF EXISTS (SELECT 1 FROM @open)
        UPDATE l SET BlockedBy = N'', Until = NULL, PausedBy = NULL FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN @open AS k ON k.[Key] = l.[Key]
            WHERE l.GroupName = @Group AND l.Topic = @Topic;
    IF EXISTS (SELECT 1 FROM @lane)
    BEGIN
        UPDATE @lane SET Until = CASE WHEN BlockedBy = N'' THEN NULL WHEN PausedBy IS NOT NULL OR Until < @soon THEN Until ELSE @soon END;
        UPDATE o SET Stage = 1 FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @record AS r ON r.Seq = o.Seq WHERE r.Decision = N'h' AND o.Stage = 0;
        -- A paused record may be behind held ones that are not paused. Such a lane must not wait for
        -- the end of the pause, so the next claim checks it (2), unless the same pause blocks it (1).
        UPDATE l SET BlockedBy = CASE n.Behind WHEN 2 THEN N'' WHEN 1 THEN l.BlockedBy ELSE k.BlockedBy END,
                Until = CASE n.Behind WHEN 2 THEN NULL WHEN 1 THEN l.Until ELSE k.Until END,
                PausedBy = CASE n.Behind WHEN 2 THEN NULL WHEN 1 THEN l.PausedBy ELSE k.PausedBy END,
                Head = CASE WHEN l.Head < k.Head THEN l.Head ELSE k.Head END
            FROM [dbo].[OutboxLane] AS l WITH (FORCESEEK) JOIN @lane AS k ON k.[Key] = l.[Key]
            CROSS APPLY (SELECT CASE WHEN k.PausedBy IS NULL OR k.Head <= l.Head THEN 0 WHEN l.PausedBy = k.PausedBy THEN 1 ELSE 2 END AS Behind) AS n
            WHERE l.GroupName = @Group AND l.Topic = @Topic;
        INSERT [dbo].[OutboxLane] (GroupName, Topic, [Key], BlockedBy, Until, Looks, Head, PausedBy)
            SELECT @Group, @Topic, k.[Key], k.BlockedBy, k.Until, 0, k.Head, k.PausedBy FROM @lane AS k
            WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxLane] AS l WHERE l.GroupName = @Group AND l.Topic = @Topic AND l.[Key] = k.[Key]);
    END
    SELECT o.Seq, o.IdBytes, o.GroupName, o.Topic, o.[Key], o.Stage, o.AvailableAt, o.DueTimeUtc, o.NextAttemptAt, o.CreatedAt, o.ExpiresAt, o.RetryCount, o.Claims, o.Expiries,
            CONVERT(NVARCHAR(36), o.OwnerToken) AS OwnerToken, o.ProcessedAt, o.ProcessedBy, o.MessageId, o.CorrelationId, o.CausationId, o.TenantId,
            o.TraceParent, o.TraceState, o.DedupKey, o.LastError, o.Joins, o.WaitsFor, o.Metadata, o.Payload, CAST(0 AS BIT) AS Blocked
        FROM @record AS r JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.Seq = r.Seq WHERE r.Decision = N'l' AND o.Stage = 4 AND o.OwnerToken = @Owner AND o.AvailableAt = @until ORDER BY o.Seq;
    IF EXISTS (SELECT 1 FROM @dead WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'd' FROM @dead WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
END
GO
