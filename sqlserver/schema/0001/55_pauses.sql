SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- A claim that meets a record that is paused by its key or tenant moves the record out of the way of
-- later claims, with the number of the pause: to stage 1, behind a lane that the pause blocks; or to
-- stage -1, if the claim has no order, or the record no key. A claim that finds a number without a
-- pause opens the lane, or brings the record back. Only claims move records, so these two procedures
-- write one pause and the counter, and a crash leaves nothing half done. Each first locks the row of
-- OutboxMeta, so that one transaction at a time changes the pauses.
--
-- A claim reads the counter before the pauses. So it never keeps an older list under a newer number.

-- Pauses a scope, or replaces the name and the reason of its pause. Returns 0, and has changed
-- nothing, if there are @Most pauses of other scopes.
--
-- SQL Server ignores trailing blanks when it compares texts. A tenant, unlike the other names, may
-- have some.
CREATE PROCEDURE [dbo].[Outbox_Pause]
    @Group NVARCHAR(255), @Topic NVARCHAR(255), @Key NVARCHAR(255), @TenantId NVARCHAR(255), @By NVARCHAR(255), @Reason NVARCHAR(1000), @Most INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @done BIT = 0, @number BIGINT;
    BEGIN TRANSACTION;
    UPDATE [dbo].[OutboxMeta] SET Pauses = Pauses WHERE OnlyRow = 1;
    SET @number = (SELECT Pauses + 1 FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1);
    UPDATE [dbo].[OutboxPause] SET PausedBy = @By, Reason = @Reason
        WHERE GroupName = @Group AND Topic = @Topic AND [Key] = @Key AND TenantId = @TenantId AND DATALENGTH(TenantId) = DATALENGTH(@TenantId);
    IF @@ROWCOUNT > 0
        SET @done = 1;
    ELSE IF (SELECT COUNT(*) FROM [dbo].[OutboxPause]) < @Most
    BEGIN
        INSERT [dbo].[OutboxPause] (Number, GroupName, Topic, [Key], TenantId, PausedAt, PausedBy, Reason)
            VALUES (@number, @Group, @Topic, @Key, @TenantId, SYSUTCDATETIME(), @By, @Reason);
        SET @done = 1;
    END
    IF @done = 1
        UPDATE [dbo].[OutboxMeta] SET Pauses = @number WHERE OnlyRow = 1;
    COMMIT;
    SELECT @done AS Done;
END
GO

-- Ends the pause of a scope. Returns how many there were, 0 or 1.
CREATE PROCEDURE [dbo].[Outbox_Resume]
    @Group NVARCHAR(255), @Topic NVARCHAR(255), @Key NVARCHAR(255), @TenantId NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @done INT;
    BEGIN TRANSACTION;
    UPDATE [dbo].[OutboxMeta] SET Pauses = Pauses WHERE OnlyRow = 1;
    DELETE FROM [dbo].[OutboxPause]
        WHERE GroupName = @Group AND Topic = @Topic AND [Key] = @Key AND TenantId = @TenantId AND DATALENGTH(TenantId) = DATALENGTH(@TenantId);
    SET @done = @@ROWCOUNT;
    IF @done > 0
        UPDATE [dbo].[OutboxMeta] SET Pauses = Pauses + 1 WHERE OnlyRow = 1;
    COMMIT;
    SELECT @done AS Done;
END
GO

-- Brings back up to 900 records of these topics that claims have set aside: with @Keyed, first all
-- that have a key; with @All, all; and then those whose pause is gone. The records are as after
-- Outbox_Release. Returns 1 if there may be more with a key, or more of all: a claim in order must
-- then return no record.
--
-- Numbers without a pause are found between the numbers of two pauses, by one index seek each. To read
-- the numbers of all records would take as long as there are records.
CREATE PROCEDURE [dbo].[Outbox_BringBack]
    @Group NVARCHAR(255), @Topics [dbo].[OutboxName] READONLY, @Keyed BIT, @All BIT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @in TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @gap TABLE (Low BIGINT NOT NULL PRIMARY KEY, High BIGINT NOT NULL);
    DECLARE @gone TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, Number BIGINT NOT NULL);
    DECLARE @back TABLE (Seq BIGINT NOT NULL PRIMARY KEY);
    DECLARE @left INT = 900, @more INT = 0;
    INSERT @in (Topic) SELECT DISTINCT t.Name FROM @Topics AS t CROSS APPLY (SELECT TOP (1) o.PausedBy FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
        WHERE o.GroupName = @Group AND o.Topic = t.Name AND o.PausedBy IS NOT NULL) AS a;
    IF @All = 1
        INSERT @back (Seq) SELECT TOP (900) o.Seq FROM @in AS i JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o.GroupName = @Group AND o.Topic = i.Topic
            WHERE o.PausedBy IS NOT NULL AND o.RetryCount >= 0;
    ELSE IF @Keyed = 1
        INSERT @back (Seq) SELECT TOP (900) o.Seq FROM @in AS i JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON o.GroupName = @Group AND o.Topic = i.Topic
            WHERE o.PausedBy IS NOT NULL AND o.Keyed = 1 AND o.RetryCount >= 0;
    SET @left = @left - (SELECT COUNT(*) FROM @back);
    IF @left <= 0
        SET @more = 1;
    ELSE
    BEGIN
        INSERT @gap (Low, High) SELECT p.Number, LEAD(p.Number, 1, CAST(9223372036854775807 AS BIGINT)) OVER (ORDER BY p.Number)
            FROM (SELECT Number FROM [dbo].[OutboxPause] UNION ALL SELECT CAST(0 AS BIGINT)) AS p;
        INSERT @gone (Topic, Number) SELECT i.Topic, n.Number FROM @in AS i CROSS JOIN @gap AS g
            CROSS APPLY (SELECT MIN(o.PausedBy) AS Number FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)
                WHERE o.GroupName = @Group AND o.Topic = i.Topic AND o.PausedBy IS NOT NULL AND o.PausedBy > g.Low AND o.PausedBy < g.High) AS n
            WHERE n.Number IS NOT NULL;
        INSERT @back (Seq) SELECT TOP (@left) o.Seq FROM @gone AS g JOIN [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
            ON o.GroupName = @Group AND o.Topic = g.Topic AND o.PausedBy = g.Number
            WHERE o.PausedBy IS NOT NULL AND o.RetryCount >= 0 AND NOT EXISTS (SELECT 1 FROM @back AS b WHERE b.Seq = o.Seq);
    END
    UPDATE o SET Stage = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN 2 ELSE 0 END,
            AvailableAt = CASE WHEN o.NextAttemptAt > o.CreatedAt THEN o.NextAttemptAt END, PausedBy = NULL
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @back AS b ON b.Seq = o.Seq WHERE o.Stage = -1;
    RETURN @more;
END
GO
