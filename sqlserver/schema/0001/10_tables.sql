-- Outmill's outbox on SQL Server 2019 and later, and on Azure SQL: version 1.
--
-- The names here are the defaults. The program replaces [dbo].[Outbox…] and the names of indexes by
-- those of the schema and the table in sqlserver.Config. If you run the files by hand, do the same.
-- GO separates batches.
SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- The version of the schema, the oldest program that may use it, and two counters. Generation changes
-- whenever the registered groups change, so that an append need not read the groups each time. Pauses
-- grows whenever the pauses change, so that a claim need not read the pauses each time.
CREATE TABLE [dbo].[OutboxMeta] (
    OnlyRow    TINYINT NOT NULL CONSTRAINT [PK_OutboxMeta] PRIMARY KEY,
    Version    INT     NOT NULL,
    Compatible INT     NOT NULL,
    Generation BIGINT  NOT NULL,
    Pauses     BIGINT  NOT NULL
);
GO

-- The pauses, 1,000 at most. An empty text stands for any. Number is the value of OutboxMeta.Pauses
-- that the pause has made, so it is never used again. Only the transaction that has locked the row of
-- OutboxMeta changes this table.
CREATE TABLE [dbo].[OutboxPause] (
    Number    BIGINT         NOT NULL CONSTRAINT [PK_OutboxPause] PRIMARY KEY CLUSTERED,
    GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Topic     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [Key]     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    TenantId  NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    PausedAt  DATETIME2(6)   NOT NULL,
    PausedBy  NVARCHAR(255)  NOT NULL,                                                                   -- the person or the program
    Reason    NVARCHAR(1000) NOT NULL
);
GO

CREATE INDEX [IX_OutboxPause_Key] ON [dbo].[OutboxPause] (Topic, [Key], GroupName);
GO

CREATE INDEX [IX_OutboxPause_Tenant] ON [dbo].[OutboxPause] (TenantId, Topic, GroupName);
GO

-- One row for each message and group. Texts that are compared use code points, whatever the
-- database's collation. SQL Server sorts a UNIQUEIDENTIFIER by its last bytes first, and so not by
-- the time in a UUIDv7. Therefore IdBytes, which is the key, has the same id as bytes.
CREATE TABLE [dbo].[Outbox] (
    Seq           BIGINT           NOT NULL IDENTITY(1, 1) CONSTRAINT [PK_Outbox] PRIMARY KEY CLUSTERED, -- the order of the appends
    Id            UNIQUEIDENTIFIER NOT NULL,
    IdBytes       BINARY(16)       NOT NULL,
    GroupName     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,                                    -- NULL: no group has registered for the topic yet
    Topic         NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [Key]         NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Keyed         BIT              NOT NULL,                                                             -- Key is not empty
    Stage         SMALLINT         NOT NULL,                                                             -- -1 aside, 0 in line, 1 held, 2 waiting, 3 delayed, 4 leased, 5 expired, 6 processed, 7 dead
    PausedBy      BIGINT           NULL,                                                                 -- stage -1: the number of the pause for which a claim has set the record aside
    AvailableAt   DATETIME2(6)     NULL,                                                                 -- stages 2 to 4: the end of the wait, the delay or the lease
    DueTimeUtc    DATETIME2(6)     NOT NULL,                                                             -- first due
    NextAttemptAt DATETIME2(6)     NOT NULL,                                                             -- due, or due again
    CreatedAt     DATETIME2(6)     NOT NULL,
    ExpiresAt     DATETIME2(6)     NULL,
    ProcessedAt   DATETIME2(6)     NULL,
    OwnerToken    UNIQUEIDENTIFIER NULL,
    ProcessedBy   NVARCHAR(255)    NULL,                                                                 -- the worker's name
    RetryCount    INT              NOT NULL,
    Claims        INT              NOT NULL,
    Expiries      INT              NOT NULL,
    Size          INT              NOT NULL,
    Parked        BIT              NOT NULL,                                                             -- went dead with Park
    MessageId     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CorrelationId NVARCHAR(255)    NULL,                                                                 -- NULL: none, here and below
    CausationId   NVARCHAR(255)    NULL,
    TenantId      NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    TraceParent   NVARCHAR(255)    NULL,
    TraceState    NVARCHAR(1020)   NULL,
    DedupKey      NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    Step          BINARY(16)       NULL,                                                                 -- the step that the message is of joins: IdBytes of its first record
    Joins         NVARCHAR(MAX)    NULL,                                                                 -- the joins of which the message is a step: ids with commas
    WaitsFor      BINARY(16)       NULL,                                                                 -- the join that this record is to finish
    LastError     NVARCHAR(MAX)    NULL,
    Metadata      NVARCHAR(MAX)    NULL,                                                                 -- a JSON object
    Payload       VARBINARY(MAX)   NULL,                                                                 -- NULL: a nil payload
    -- Stage in the words of the functional specification.
    Status        AS CAST(CASE Stage WHEN 4 THEN 1 WHEN 6 THEN 2 WHEN 7 THEN 3 ELSE 0 END AS TINYINT),   -- 0 ready, 1 in progress, 2 done, 3 failed
    IsProcessed   AS CAST(CASE Stage WHEN 6 THEN 1 ELSE 0 END AS BIT),
    LockedUntil   AS CASE Stage WHEN 4 THEN AvailableAt END
);
GO

CREATE UNIQUE INDEX [IX_Outbox_Id] ON [dbo].[Outbox] (IdBytes);
GO

-- Ready records, from which claims take. Indexes include the columns that claims read, so that a
-- reader need not go from an index to the row while a writer goes from the row to the index: these
-- two would deadlock.
CREATE INDEX [IX_Outbox_Line] ON [dbo].[Outbox] (GroupName, Topic, Seq)
    INCLUDE ([Key], NextAttemptAt, CreatedAt, ExpiresAt, Size, Expiries, Claims, Stage) WHERE Stage = 0;
GO

-- Held records: due, but an earlier record blocked their key when an ordered claim last checked it.
CREATE INDEX [IX_Outbox_Held] ON [dbo].[Outbox] (GroupName, Topic, Seq)
    INCLUDE ([Key], NextAttemptAt, CreatedAt, ExpiresAt, Size, Expiries, Claims, Stage) WHERE Stage = 1;
GO

-- Records that become due at AvailableAt.
CREATE INDEX [IX_Outbox_Later] ON [dbo].[Outbox] (GroupName, Topic, Stage, AvailableAt, Seq) WHERE Stage IN (2, 3);
GO

-- Records that become claimable again when their lease ends.
CREATE INDEX [IX_Outbox_Leased] ON [dbo].[Outbox] (GroupName, Topic, AvailableAt, Seq) INCLUDE (OwnerToken, ExpiresAt) WHERE Stage = 4;
GO

-- The records of one key that are neither processed nor dead. The filter uses Keyed because the
-- optimizer may not match a filter on a column ([Key] <> N'') with a query that compares this column
-- with a variable.
CREATE INDEX [IX_Outbox_Key] ON [dbo].[Outbox] (GroupName, Topic, [Key], Stage, Seq)
    INCLUDE (OwnerToken, AvailableAt, ExpiresAt) WHERE Keyed = 1 AND Stage < 6;
GO

-- Records that block claims in the order of a topic.
CREATE INDEX [IX_Outbox_Waiting] ON [dbo].[Outbox] (GroupName, Topic, Seq) INCLUDE (AvailableAt, ExpiresAt) WHERE Stage = 2;
GO

-- Records that claims have set aside because they are paused: PausedBy is set in stage -1 and in no
-- other. Claims find by these indexes what comes back.
CREATE INDEX [IX_Outbox_Aside] ON [dbo].[Outbox] (GroupName, Topic, PausedBy, Seq) WHERE PausedBy IS NOT NULL;
GO

CREATE INDEX [IX_Outbox_AsideKeyed] ON [dbo].[Outbox] (GroupName, Topic, Seq) WHERE PausedBy IS NOT NULL AND Keyed = 1;
GO

CREATE INDEX [IX_Outbox_Parked] ON [dbo].[Outbox] (GroupName, Topic, [Key], Seq) WHERE Parked = 1;
GO

CREATE INDEX [IX_Outbox_Expiring] ON [dbo].[Outbox] (ExpiresAt) WHERE ExpiresAt IS NOT NULL AND Stage < 6;
GO

-- Expired records that a claim has met; they wait for the janitor.
CREATE INDEX [IX_Outbox_Expired] ON [dbo].[Outbox] (GroupName, Topic, Seq) WHERE Stage = 5;
GO

-- Processed and dead records.
CREATE INDEX [IX_Outbox_Settled] ON [dbo].[Outbox] (GroupName, Topic, Stage, IdBytes) WHERE Stage >= 6;
GO

CREATE INDEX [IX_Outbox_Processed] ON [dbo].[Outbox] (ProcessedAt) WHERE ProcessedAt IS NOT NULL;
GO

-- The steps of joins, and the records that finish joins.
CREATE INDEX [IX_Outbox_Step] ON [dbo].[Outbox] (Step) WHERE Step IS NOT NULL;
GO

CREATE INDEX [IX_Outbox_WaitsFor] ON [dbo].[Outbox] (WaitsFor) WHERE WaitsFor IS NOT NULL;
GO

-- One row for each key that has held records. BlockedBy is the owner whose lease blocked the key; or
-- waiting, for a record that waits for its retry; or paused, for the pause whose number is PausedBy;
-- or empty, if something has changed since, so that the next claim must check the key. A claim also
-- checks it at Until. Until is
-- before the end of the lease or the wait, soon at first and then later and later (Looks), because the
-- lease or the wait may end while a claim notes it. For a pause, Until is the time at which the first
-- held record expires. A claim also checks a key whose pause is gone. Head is the first of the held
-- records.
CREATE TABLE [dbo].[OutboxLane] (
    Lane      BIGINT NOT NULL IDENTITY(1, 1) CONSTRAINT [PK_OutboxLane] PRIMARY KEY CLUSTERED, -- a heap keeps the pages of what was deleted
    GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Topic     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [Key]     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    BlockedBy NVARCHAR(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Until     DATETIME2(6) NULL,
    Looks     INT          NOT NULL,
    Head      BIGINT       NOT NULL,
    PausedBy  BIGINT       NULL
);
GO

CREATE UNIQUE INDEX [IX_OutboxLane_Key] ON [dbo].[OutboxLane] (GroupName, Topic, [Key]);
GO

CREATE INDEX [IX_OutboxLane_Blocked] ON [dbo].[OutboxLane] (GroupName, Topic, BlockedBy, Head);
GO

CREATE INDEX [IX_OutboxLane_Until] ON [dbo].[OutboxLane] (GroupName, Topic, Until) WHERE Until IS NOT NULL;
GO

CREATE INDEX [IX_OutboxLane_Paused] ON [dbo].[OutboxLane] (GroupName, Topic, PausedBy) WHERE PausedBy IS NOT NULL;
GO

-- The registrations: which group reads which topics, in the order of the registrations. Selection is
-- a digest of Include and Exclude, which are JSON arrays of patterns.
CREATE TABLE [dbo].[OutboxGroup] (
    Place     BIGINT       NOT NULL IDENTITY(1, 1) CONSTRAINT [PK_OutboxGroup] PRIMARY KEY CLUSTERED,
    GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Selection CHAR(64)     NOT NULL,
    Include   NVARCHAR(MAX) NOT NULL,
    Exclude   NVARCHAR(MAX) NOT NULL,
    SeenAt    DATETIME2(6) NOT NULL,
    ExpiresAt DATETIME2(6) NULL,                                                                         -- NULL: never
    Holding   BIT          NOT NULL                                                                      -- it does not take what waits for a first group
);
GO

CREATE UNIQUE INDEX [IX_OutboxGroup_Selection] ON [dbo].[OutboxGroup] (GroupName, Selection);
GO

CREATE INDEX [IX_OutboxGroup_Expiring] ON [dbo].[OutboxGroup] (ExpiresAt) WHERE ExpiresAt IS NOT NULL;
GO

-- The workers that registered the groups.
CREATE TABLE [dbo].[OutboxWorker] (
    GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Name      NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    SeenAt    DATETIME2(6) NOT NULL,
    Problems  NVARCHAR(MAX) COLLATE Latin1_General_100_BIN2 NULL,                                         -- JSON: why it passes on nothing, by topic
    CONSTRAINT [PK_OutboxWorker] PRIMARY KEY NONCLUSTERED (GroupName, Name)
);
GO

CREATE CLUSTERED INDEX [IX_OutboxWorker_Seen] ON [dbo].[OutboxWorker] (GroupName, SeenAt);
GO

-- Groups of which a registration has ended, until their undelivered records of topics that they no
-- longer read are deleted. The janitor checks them at LookAt.
CREATE TABLE [dbo].[OutboxEnding] (
    GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT [PK_OutboxEnding] PRIMARY KEY CLUSTERED,
    EndedAt   DATETIME2(6) NOT NULL,
    LookAt    DATETIME2(6) NOT NULL,
    Empty     BIT          NOT NULL,                                                                     -- the group had no records when it was looked at
    Others    NVARCHAR(MAX) NULL                                                                         -- the group is being dropped: JSON of the selections that the other groups had then
);
GO

CREATE INDEX [IX_OutboxEnding_Look] ON [dbo].[OutboxEnding] (LookAt);
GO

CREATE TABLE [dbo].[OutboxDedup] (
    Topic     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    DedupKey  NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    ExpiresAt DATETIME2(6) NOT NULL,
    FirstId   NVARCHAR(36) NOT NULL, -- the record that took the key
    CONSTRAINT [PK_OutboxDedup] PRIMARY KEY NONCLUSTERED (Topic, DedupKey)
);
GO

CREATE CLUSTERED INDEX [IX_OutboxDedup_Expires] ON [dbo].[OutboxDedup] (ExpiresAt);
GO

-- ExpectedSteps is NULL until the number is known.
CREATE TABLE [dbo].[OutboxJoin] (
    JoinId             UNIQUEIDENTIFIER NOT NULL,
    JoinIdBytes        BINARY(16)    NOT NULL CONSTRAINT [PK_OutboxJoin] PRIMARY KEY CLUSTERED,
    GroupingKey        NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,     -- NULL: none
    Status             TINYINT       NOT NULL, -- 0 pending, 1 completed, 2 failed, 3 cancelled
    Policy             NVARCHAR(16)  NOT NULL, -- all, any, quorum
    Quorum             INT           NOT NULL,
    ExpectedSteps      INT           NULL,
    CompletedSteps     INT           NOT NULL,
    FailedSteps        INT           NOT NULL,
    Deadline           DATETIME2(6)  NULL,
    CompleteAtDeadline BIT           NOT NULL,
    Reason             NVARCHAR(MAX) NULL,
    CreatedUtc         DATETIME2(6)  NOT NULL,
    LastUpdatedUtc     DATETIME2(6)  NOT NULL,
    FinishedUtc        DATETIME2(6)  NULL,
    Metadata           NVARCHAR(MAX) NULL      -- a JSON object; NULL: none
);
GO

CREATE INDEX [IX_OutboxJoin_GroupingKey] ON [dbo].[OutboxJoin] (GroupingKey, Status, JoinIdBytes);
GO

CREATE INDEX [IX_OutboxJoin_Status] ON [dbo].[OutboxJoin] (Status, JoinIdBytes);
GO

CREATE INDEX [IX_OutboxJoin_Finished] ON [dbo].[OutboxJoin] (FinishedUtc) WHERE FinishedUtc IS NOT NULL;
GO

-- The steps of joins. A step is one message: OpenRecords counts its records that are not settled,
-- AckedRecords and DeadRecords count the others. A transaction that changes a member has locked the
-- row of its join, unless it inserts the member together with its message.
CREATE TABLE [dbo].[OutboxJoinMember] (
    JoinIdBytes     BINARY(16) NOT NULL,
    Step            BINARY(16) NOT NULL,
    JoinId          UNIQUEIDENTIFIER NOT NULL,
    OutboxMessageId NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Status          TINYINT    NOT NULL, -- 0 pending, 1 completed, 2 failed
    OpenRecords     INT        NOT NULL,
    AckedRecords    INT        NOT NULL,
    DeadRecords     INT        NOT NULL,
    Reported        BIT        NOT NULL, -- what becomes of the message no longer matters
    CreatedUtc      DATETIME2(6) NOT NULL,
    CONSTRAINT [PK_OutboxJoinMember] PRIMARY KEY CLUSTERED (JoinIdBytes, Step)
);
GO

CREATE INDEX [IX_OutboxJoinMember_Step] ON [dbo].[OutboxJoinMember] (Step);
GO

-- Members are counted through this index. A change of a member takes no lock on it.
CREATE INDEX [IX_OutboxJoinMember_Join] ON [dbo].[OutboxJoinMember] (JoinIdBytes);
GO

-- Notes that a consumer has handled the message of that key. From DeleteAt on the janitor deletes
-- them, once the Record is gone or processed; NULL is a message from elsewhere.
CREATE TABLE [dbo].[OutboxInbox] (
    Consumer NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [Key]    NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    DeleteAt DATETIME2(6) NOT NULL,
    Record   BINARY(16)   NULL,
    CONSTRAINT [PK_OutboxInbox] PRIMARY KEY NONCLUSTERED (Consumer, [Key])
);
GO

CREATE CLUSTERED INDEX [IX_OutboxInbox_Delete] ON [dbo].[OutboxInbox] (DeleteAt);
GO

-- The states of sagas. An update requires the version that was read.
CREATE TABLE [dbo].[OutboxSaga] (
    Type        NVARCHAR(120) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Correlation NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    IdBytes     BINARY(16)    NOT NULL,
    Version     BIGINT        NOT NULL,
    State       NVARCHAR(MAX) NOT NULL, -- a JSON object
    Finished    BIT           NOT NULL, -- the saga has ended, at UpdatedAt
    CreatedAt   DATETIME2(6)  NOT NULL,
    UpdatedAt   DATETIME2(6)  NOT NULL,
    DeleteAt    DATETIME2(6)  NULL,     -- when the janitor deletes a finished saga; NULL is never
    CONSTRAINT [PK_OutboxSaga] PRIMARY KEY CLUSTERED (Type, Correlation)
);
GO

CREATE INDEX [IX_OutboxSaga_Id] ON [dbo].[OutboxSaga] (IdBytes);
GO

CREATE INDEX [IX_OutboxSaga_Finished] ON [dbo].[OutboxSaga] (Type, UpdatedAt) WHERE Finished = 1;
GO

CREATE INDEX [IX_OutboxSaga_Delete] ON [dbo].[OutboxSaga] (DeleteAt) WHERE DeleteAt IS NOT NULL;
GO

-- What operators changed, one row for each command. Details is a JSON object: the filter, ids, and
-- the records before and after.
CREATE TABLE [dbo].[OutboxAudit] (
    Number    BIGINT        NOT NULL IDENTITY(1, 1) CONSTRAINT [PK_OutboxAudit] PRIMARY KEY CLUSTERED,
    ChangedAt DATETIME2(6)  NOT NULL,
    Actor     NVARCHAR(255) NOT NULL, -- who made the call; empty: nobody named
    Action    NVARCHAR(16)  NOT NULL, -- requeue, delete, edit, skip
    Changed   INT           NOT NULL, -- how many records changed
    Details   NVARCHAR(MAX) NOT NULL,
    Command   UNIQUEIDENTIFIER NOT NULL -- the transactions of a command write one row
);
GO

CREATE UNIQUE INDEX [IX_OutboxAudit_Command] ON [dbo].[OutboxAudit] (Command);
GO

-- For people: the records with statuses in words, and payloads as text. Characters outside ASCII are
-- shown in the database's code page.
CREATE VIEW [dbo].[OutboxReadable] AS
SELECT Seq, Id, GroupName, Topic, [Key], MessageId,
    CASE Stage WHEN 4 THEN N'leased' WHEN 6 THEN N'processed' WHEN 7 THEN N'dead' ELSE N'pending' END AS StatusText,
    CASE Stage WHEN -1 THEN N'aside' WHEN 0 THEN N'in line' WHEN 1 THEN N'held' WHEN 2 THEN N'waiting' WHEN 3 THEN N'delayed' WHEN 4 THEN N'leased' WHEN 5 THEN N'expired' ELSE N'settled' END AS StageText,
    Status, IsProcessed, LockedUntil,
    CreatedAt, DueTimeUtc, NextAttemptAt, AvailableAt, ExpiresAt, ProcessedAt, ProcessedBy, OwnerToken,
    RetryCount, Claims, Expiries, Parked, LastError, CorrelationId, CausationId, TenantId, TraceParent, TraceState, DedupKey, Joins,
    Size, Metadata, CAST(Payload AS VARCHAR(MAX)) AS Payload
FROM [dbo].[Outbox];
GO

-- When one statement has 5,000 locks on a table, SQL Server replaces them by a lock of the whole
-- table, and then all transactions wait for each other. Most statements stay well below that; those
-- that park or requeue whole keys cannot. Page locks are off, too, because READPAST skips only rows.
-- Babelfish has no such settings, and does not need them.
IF SERVERPROPERTY('Babelfish') IS NULL
BEGIN
    EXEC (N'ALTER TABLE [dbo].[Outbox] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[Outbox] SET (ALLOW_PAGE_LOCKS = OFF)');
    -- All publishers append at the end, also of the index of the ids (UUIDv7) and of the dedup keys.
    EXEC (N'ALTER INDEX [PK_Outbox] ON [dbo].[Outbox] SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)');
    EXEC (N'ALTER INDEX [IX_Outbox_Id] ON [dbo].[Outbox] SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)');
    EXEC (N'ALTER INDEX [IX_OutboxDedup_Expires] ON [dbo].[OutboxDedup] SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)');
    EXEC (N'ALTER TABLE [dbo].[OutboxLane] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxLane] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER TABLE [dbo].[OutboxDedup] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxDedup] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER TABLE [dbo].[OutboxJoin] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxJoin] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER TABLE [dbo].[OutboxJoinMember] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxJoinMember] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER TABLE [dbo].[OutboxInbox] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxInbox] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER TABLE [dbo].[OutboxSaga] SET (LOCK_ESCALATION = DISABLE)');
    EXEC (N'ALTER INDEX ALL ON [dbo].[OutboxSaga] SET (ALLOW_PAGE_LOCKS = OFF)');
    EXEC (N'ALTER INDEX [IX_OutboxInbox_Delete] ON [dbo].[OutboxInbox] SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)');
END
GO
