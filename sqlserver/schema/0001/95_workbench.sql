SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- What operators do with one dead record, in a transaction of the program: it reads the record with
-- Outbox_HoldDead, decides, changes the record, and notes that in OutboxAudit.

-- Locks a record until the transaction ends, and returns it. With @Line it first locks the line of the
-- record, so that no claim in order parks again what Outbox_Skip brings back.
CREATE PROCEDURE [dbo].[Outbox_HoldDead]
    @IdBytes BINARY(16), @Line BIT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF @@TRANCOUNT = 0
        THROW 50902, N'outmill: no transaction is open', 1;
    DECLARE @group NVARCHAR(255), @topic NVARCHAR(255);
    IF @Line = 1
    BEGIN
        SELECT @group = GroupName, @topic = Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE IdBytes = @IdBytes;
        IF @group IS NOT NULL
            EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Exclusive';
    END
    -- Babelfish does not take the lock of the statement below.
    IF SERVERPROPERTY('Babelfish') = 1
        UPDATE [dbo].[Outbox] SET Size = Size WHERE IdBytes = @IdBytes;
    SELECT o.Seq, o.IdBytes, o.GroupName, o.Topic, o.[Key], o.Stage, o.AvailableAt, o.DueTimeUtc, o.NextAttemptAt, o.CreatedAt, o.ExpiresAt, o.RetryCount, o.Claims, o.Expiries,
            CONVERT(NVARCHAR(36), o.OwnerToken) AS OwnerToken, o.ProcessedAt, o.ProcessedBy, o.MessageId, o.CorrelationId, o.CausationId, o.TenantId,
            o.TraceParent, o.TraceState, o.DedupKey, o.LastError, o.Joins, o.WaitsFor, o.Metadata, o.Payload, CAST(0 AS BIT) AS Blocked
        FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE o.IdBytes = @IdBytes;
END
GO

-- Replaces the payload and the metadata of a dead record that the transaction has locked.
CREATE PROCEDURE [dbo].[Outbox_Edit]
    @IdBytes BINARY(16), @Payload VARBINARY(MAX), @Metadata NVARCHAR(MAX), @Size INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    UPDATE [dbo].[Outbox] SET Payload = @Payload, Metadata = @Metadata, Size = @Size WHERE IdBytes = @IdBytes AND Stage = 7;
END
GO

-- Brings back the first @Limit records that are parked behind a dead record, which the transaction has
-- locked, as Outbox_Requeue does. If these were the last, it deletes the record. Otherwise the record
-- is no longer parked, has the error @Begun, and keeps the time at which all of them become due: they
-- become ready in the order of their places, although claims between two steps may park the first ones
-- again. A record that is not the first parked one of its key is only deleted. Returns how many
-- records came back, and whether the record is gone, and then the joins that were counted.
CREATE PROCEDURE [dbo].[Outbox_Skip]
    @IdBytes BINARY(16), @Limit INT, @Begun NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @seq BIGINT, @group NVARCHAR(255), @topic NVARCHAR(255), @key NVARCHAR(255), @parked BIT = 0, @begins BIT = 0, @due DATETIME2(6);
    DECLARE @first BIGINT, @released INT = 0, @done INT = 1;
    DECLARE @back TABLE (Seq BIGINT NOT NULL PRIMARY KEY, Step BINARY(16));
    SELECT @seq = Seq, @group = GroupName, @topic = Topic, @key = [Key], @parked = Parked, @due = NextAttemptAt,
            @begins = CASE WHEN Keyed = 1 AND LastError COLLATE Latin1_General_100_BIN2 = @Begun THEN 1 ELSE 0 END
        FROM [dbo].[Outbox] WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE IdBytes = @IdBytes;
    IF @begins = 0
        SET @due = @now;
    IF @parked = 1 OR @begins = 1
        SET @first = (SELECT MIN(o.Seq) FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE o.GroupName = @group AND o.Topic = @topic AND o.[Key] = @key AND o.Parked = 1);
    IF @first >= @seq
    BEGIN
        INSERT @back (Seq, Step) SELECT TOP (@Limit) o.Seq, o.Step FROM [dbo].[Outbox] AS o WITH (UPDLOCK, ROWLOCK, FORCESEEK)
            WHERE o.GroupName = @group AND o.Topic = @topic AND o.[Key] = @key AND o.Parked = 1 AND o.Seq > @seq ORDER BY o.Seq;
        UPDATE o SET Stage = CASE WHEN o.GroupName IS NULL THEN 3 ELSE 2 END, AvailableAt = @due, NextAttemptAt = @due, RetryCount = 0, Expiries = 0, ExpiresAt = NULL, Parked = 0
            FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @back AS b ON b.Seq = o.Seq WHERE o.Stage = 7;
        SET @released = (SELECT COUNT(*) FROM @back);
        IF @released >= @Limit
            SET @done = 0;
    END
    IF @done = 0
        UPDATE [dbo].[Outbox] SET Parked = 0, LastError = @Begun, NextAttemptAt = @due WHERE Seq = @seq;
    ELSE
        DELETE FROM [dbo].[Outbox] WHERE Seq = @seq;
    UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0, PausedBy = NULL
        FROM [dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key]))
        WHERE l.GroupName = @group AND l.Topic = @topic AND l.[Key] = @key AND (l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0);
    SELECT @released AS Released, @done AS Done;
    IF EXISTS (SELECT 1 FROM @back WHERE Step IS NOT NULL)
    BEGIN
        DECLARE @steps [dbo].[OutboxStep];
        INSERT @steps (Step, How) SELECT Step, 'r' FROM @back WHERE Step IS NOT NULL;
        EXEC [dbo].[Outbox_CountSteps] @Steps = @steps;
    END
END
GO
