-- The types of sets that procedures take. Ids have the type of the columns with which they are
-- compared, because a conversion may prevent an index seek.

-- Records to append. A time is given as a time, or as microseconds from the server's now.
CREATE TYPE [dbo].[OutboxNew] AS TABLE (
    Place         INT            NOT NULL PRIMARY KEY,
    Id            NVARCHAR(36)   NOT NULL,
    IdBytes       BINARY(16)     NOT NULL,
    GroupName     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
    Topic         NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [Key]         NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Size          BIGINT         NOT NULL,
    DueAt         NVARCHAR(30)   NULL,
    DueAfter      BIGINT         NULL,
    ExpiresAt     NVARCHAR(30)   NULL,
    ExpiresAfter  BIGINT         NULL,
    MessageId     NVARCHAR(255)  NOT NULL,
    CorrelationId NVARCHAR(255)  NULL,
    CausationId   NVARCHAR(255)  NULL,
    TenantId      NVARCHAR(255)  NULL,
    TraceParent   NVARCHAR(255)  NULL,
    TraceState    NVARCHAR(1020) NULL,
    DedupKey      NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Step          BINARY(16)     NULL,
    Joins         NVARCHAR(MAX)  NULL,
    WaitsFor      BINARY(16)     NULL,
    Metadata      NVARCHAR(MAX)  NULL,
    Payload       VARBINARY(MAX) NULL
);
GO

-- Leases, with the arguments of the call for each: a number (a delay in microseconds, or whether to
-- park) and a text (the error). A lease is valid if the record is leased by that owner under that
-- claim number.
CREATE TYPE [dbo].[OutboxLease] AS TABLE (
    IdBytes    BINARY(16)    NOT NULL,
    OwnerToken NVARCHAR(36)  NOT NULL,
    Claims     INT           NOT NULL,
    Number     BIGINT        NOT NULL,
    Error      NVARCHAR(MAX) NOT NULL
);
GO

CREATE TYPE [dbo].[OutboxId] AS TABLE (
    IdBytes BINARY(16) NOT NULL
);
GO

-- Topics or keys, in their order.
CREATE TYPE [dbo].[OutboxName] AS TABLE (
    Place INT NOT NULL PRIMARY KEY,
    Name  NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL
);
GO

-- Lanes, in the order in which they are checked: what blocks each, and until when; the place up to
-- which its records become ready again; its first record; the number of the pause that blocks it, if
-- one does.
CREATE TYPE [dbo].[OutboxNote] AS TABLE (
    Place     INT           NOT NULL PRIMARY KEY,
    [Key]     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    BlockedBy NVARCHAR(36)  NOT NULL,
    Until     NVARCHAR(30)  NULL,
    Barrier   BIGINT        NOT NULL,
    Head      BIGINT        NOT NULL,
    PausedBy  BIGINT        NULL
);
GO

-- Decisions of a claim about records: l leases it, x marks it as expired, p parks it, h holds it, a
-- sets it aside for the pause of that number.
CREATE TYPE [dbo].[OutboxDecision] AS TABLE (
    Seq      BIGINT      NOT NULL PRIMARY KEY,
    Decision NVARCHAR(1) NOT NULL,
    PausedBy BIGINT      NULL
);
GO

-- The steps of an append.
CREATE TYPE [dbo].[OutboxNewMember] AS TABLE (
    JoinIdBytes BINARY(16)    NOT NULL,
    JoinId      NVARCHAR(36)  NOT NULL,
    Step        BINARY(16)    NOT NULL,
    MessageId   NVARCHAR(255) NOT NULL,
    OpenRecords INT           NOT NULL
);
GO

-- New states of records that are steps of joins: a acked, d dead, r requeued, g deleted with its
-- group.
CREATE TYPE [dbo].[OutboxStep] AS TABLE (
    Step BINARY(16) NULL,
    How  CHAR(1)    NOT NULL
);
GO
