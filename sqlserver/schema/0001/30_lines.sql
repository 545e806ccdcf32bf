SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Locks the line of a group and a topic until the transaction ends. A claim in order takes the lock
-- exclusively. A transaction takes it shared if it gives back or deletes records that may block their
-- key, or makes records ready that are not new. So a claim sees the state of a key as of one moment,
-- whatever the isolation of the database. A transaction that only settles a record does not need it.
CREATE PROCEDURE [dbo].[Outbox_LockLine]
    @Group NVARCHAR(255), @Topic NVARCHAR(255), @Mode NVARCHAR(32)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rc INT, @resource NVARCHAR(255) = N'outmill:' + CONVERT(NVARCHAR(20), CAST(SUBSTRING(HASHBYTES('SHA2_256', N'[dbo].[Outbox]' + NCHAR(1) + @Group + NCHAR(1) + @Topic), 1, 8) AS BIGINT));
    EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = @Mode, @LockOwner = N'Transaction', @LockTimeout = 30000;
    IF @rc < 0
        THROW 50901, N'outmill: the lock of a line was not to be had; the call may be repeated', 1;
END
GO

-- Locks a name of that kind (note, saga) until the transaction ends. Returns 0, or -1 if another
-- transaction has held the lock for @Wait milliseconds; with a @Wait of -1 it waits without a limit.
-- It waits only for this name. The range locks of HOLDLOCK would make each handler wait for its
-- neighbours.
CREATE PROCEDURE [dbo].[Outbox_LockName]
    @Kind NVARCHAR(10), @Of NVARCHAR(255), @Name NVARCHAR(255), @Wait INT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rc INT, @resource NVARCHAR(255) = N'outmill:' + @Kind + N':' + CONVERT(NVARCHAR(20), CAST(SUBSTRING(HASHBYTES('SHA2_256', N'[dbo].[Outbox]' + NCHAR(1) + @Of + NCHAR(1) + @Name), 1, 8) AS BIGINT));
    EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @Wait;
    IF @rc < -1
        THROW 50901, N'outmill: the lock of a name was not to be had; the transaction may be repeated', 1;
    RETURN CASE WHEN @rc < 0 THEN -1 ELSE 0 END;
END
GO

-- Locks a dedup key until the transaction ends. It waits as long as the session's LOCK_TIMEOUT
-- allows.
CREATE PROCEDURE [dbo].[Outbox_LockDedupKey]
    @Topic NVARCHAR(255), @DedupKey NVARCHAR(255)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rc INT, @resource NVARCHAR(255) = N'outmill:dedup:' + CONVERT(NVARCHAR(20), CAST(SUBSTRING(HASHBYTES('SHA2_256', N'[dbo].[Outbox]' + NCHAR(1) + @Topic + NCHAR(1) + @DedupKey), 1, 8) AS BIGINT));
    EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
    IF @rc < 0
        THROW 50901, N'outmill: the lock of a dedup key was not to be had; the transaction may be repeated', 1;
END
GO

-- Shares the lines of records, always in the same order, so that two callers never deadlock.
CREATE PROCEDURE [dbo].[Outbox_ShareLines]
    @Ids [dbo].[OutboxId] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @line TABLE (Place INT IDENTITY(1, 1) PRIMARY KEY, GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2, Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2);
    INSERT @line (GroupName, Topic) SELECT DISTINCT o.GroupName, o.Topic
        FROM @Ids AS i JOIN [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK) ON o.IdBytes = i.IdBytes WHERE o.GroupName IS NOT NULL
        ORDER BY o.GroupName, o.Topic;
    DECLARE @place INT = 1, @group NVARCHAR(255), @topic NVARCHAR(255);
    WHILE EXISTS (SELECT 1 FROM @line WHERE Place = @place)
    BEGIN
        SELECT @group = GroupName, @topic = Topic FROM @line WHERE Place = @place;
        EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Shared';
        SET @place = @place + 1;
    END
END
GO

-- Locks records until the transaction ends. SQL Server does that by a hint (UPDLOCK), which Babelfish
-- ignores, so the procedure is called only on Babelfish.
CREATE PROCEDURE [dbo].[Outbox_Hold]
    @Ids [dbo].[OutboxId] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE o SET Size = o.Size
        FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN @Ids AS i ON i.IdBytes = o.IdBytes;
END
GO
