SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- What takes part in a caller's transaction. The caller may keep it open for long, so no claim,
-- reaper or other caller waits for its locks.

-- Notes that the consumer handles the message of that key, for @Retention microseconds, in the
-- caller's transaction (@Within) or in one of its own. @Record is the record of a message of this
-- store. If there is an @Owner, it must have leased the record under the claim number @Claim; the
-- read of the lease waits for short transactions only, and keeps no lock. Returns 1; or 0 if it was
-- noted before; or -1 if another transaction that has noted it was still open after @Wait
-- milliseconds; or -2 if the lease is not valid. It reads before it writes, because a duplicate key
-- would end the transaction.
CREATE PROCEDURE [dbo].[Outbox_PutNote]
    @Within BIT, @Consumer NVARCHAR(255), @Key NVARCHAR(255), @Retention BIGINT, @Wait INT, @Record BINARY(16) = NULL, @Owner UNIQUEIDENTIFIER = NULL, @Claim INT = NULL
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
    ELSE IF @Owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE o.IdBytes = @Record AND o.Stage = 4 AND o.OwnerToken = @Owner AND o.Claims = @Claim)
        SET @put = -2;
    ELSE IF NOT EXISTS (SELECT 1 FROM [dbo].[OutboxInbox] WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE Consumer = @Consumer AND [Key] = @Key)
    BEGIN
        DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
        INSERT [dbo].[OutboxInbox] (Consumer, [Key], DeleteAt, Record) VALUES (@Consumer, @Key,
            DATEADD(MICROSECOND, CAST(@Retention % 1000000 AS INT), DATEADD(SECOND, CAST(@Retention / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@Retention / CAST(86400000000 AS BIGINT) AS INT), @now))), @Record);
        SET @put = 1;
    END
    IF @own = 1
        COMMIT;
    SELECT @put AS Put;
END
GO

-- Takes up to @Limit notes whose time has come. It deletes those of messages from elsewhere, and those
-- whose record is gone or processed, and puts the others off by an hour. It skips notes that other
-- transactions have locked. Returns how many it has deleted, and how many it has kept.
CREATE PROCEDURE [dbo].[Outbox_DeleteNotes]
    @Limit INT
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET DEADLOCK_PRIORITY LOW;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @kept INT, @gone INT;
    DECLARE @old TABLE (Consumer NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, [Key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, Comes BIT NOT NULL, PRIMARY KEY (Consumer, [Key]));
    BEGIN TRANSACTION;
    INSERT @old (Consumer, [Key], Comes) SELECT TOP (@Limit) i.Consumer, i.[Key], CASE WHEN EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE o.IdBytes = i.Record AND o.Stage <> 6) THEN 1 ELSE 0 END
        FROM [dbo].[OutboxInbox] AS i WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE i.DeleteAt <= @now ORDER BY i.DeleteAt;
    UPDATE i SET DeleteAt = DATEADD(HOUR, 1, @now)
        FROM [dbo].[OutboxInbox] AS i WITH (FORCESEEK) JOIN @old AS n ON n.Consumer = i.Consumer AND n.[Key] = i.[Key] WHERE n.Comes = 1;
    SET @kept = @@ROWCOUNT;
    DELETE i FROM [dbo].[OutboxInbox] AS i WITH (FORCESEEK) JOIN @old AS n ON n.Consumer = i.Consumer AND n.[Key] = i.[Key] WHERE n.Comes = 0;
    SET @gone = @@ROWCOUNT;
    COMMIT;
    SELECT @gone AS Done, @kept AS Kept;
END
GO
