-- Procedures, and indexes with a filter, keep these settings of the session that makes them, and sqlcmd has QUOTED_IDENTIFIER off.
SET ANSI_NULLS ON;

SET QUOTED_IDENTIFIER ON;

-- A page of a line is one statement, which must see one moment.
IF EXISTS (SELECT 1 FROM sys.databases AS d WHERE d.name = DB_NAME() AND d.is_read_committed_snapshot_on = 0)
    THROW 50904, N'outmill: the database needs ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON', 1;

-- The clock, in microseconds since 1970. Every time of these tables is such a number, so that no setting of a session and no zone of a
-- client changes how a time is read. $outmill$
CREATE FUNCTION {p:now}() RETURNS BIGINT AS
BEGIN
    RETURN DATEDIFF_BIG(MICROSECOND, CAST('1970-01-01T00:00:00' AS DATETIME2(7)), SYSUTCDATETIME());
END
-- $outmill$
;

-- The schema's version, and the generations of the registrations and pauses, so that a process need not read them for each call.
CREATE TABLE {p:meta} (
    only_row   TINYINT NOT NULL CONSTRAINT {i:pk_meta} PRIMARY KEY CLUSTERED WITH (ALLOW_PAGE_LOCKS = OFF),
    version    INT     NOT NULL,
    compatible INT     NOT NULL,           -- the oldest version of a program that may use the schema
    routes     BIGINT  NOT NULL,           -- changes with the registered groups
    pauses     BIGINT  NOT NULL            -- changes with the pauses
);

-- One row for each message and group. Times are microseconds since 1970; 0 is none. Texts that are compared use code points,
-- whatever the database's collation.
CREATE TABLE {p:records} (
    seq            BIGINT     NOT NULL IDENTITY(1, 1) CONSTRAINT {i:pk_records} PRIMARY KEY CLUSTERED WITH (ALLOW_PAGE_LOCKS = OFF), -- the order of the appends
    id             BINARY(16) NOT NULL,
    created_at     BIGINT     NOT NULL,
    wake_at        BIGINT     NOT NULL,    -- stages 2 to 4: the end of the wait, the delay or the lease
    next_at        BIGINT     NOT NULL,    -- due, or due again
    expires_at     BIGINT     NOT NULL,
    processed_at   BIGINT     NOT NULL,
    due_at         BIGINT     NOT NULL,    -- first due
    size           BIGINT     NOT NULL,
    attempts       INT        NOT NULL,
    claims         INT        NOT NULL,
    expiries       INT        NOT NULL,
    stage          SMALLINT   NOT NULL,    -- 0 ready, 1 held, 2 waiting, 3 delayed, 4 leased, 5 processed, 6 dead
    hold           TINYINT    NOT NULL,    -- stage 1: 1 under the note of a key, 2 under that of a pause; otherwise 0
    parked         BIT        NOT NULL,    -- went dead with an earlier one of its key
    keyed          BIT        NOT NULL,    -- [key] is not empty
    grp            NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- '': no group has registered for the topic yet
    topic          NVARCHAR(260)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- of a fair topic behind ' 07 ', the number of its part; part 0 has none
    [key]          NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    tenant_id      NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner          NVARCHAR(40)   COLLATE Latin1_General_100_BIN2 NOT NULL, -- stage 4: the token of the worker
    worker         NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- stage 4: its name
    under          NVARCHAR(260)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- stage 1: the name of the note that holds it
    processed_by   NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- the worker's name
    message_id     NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    step           BINARY(16)     NULL,    -- the step that the message is of joins: the id of its first record
    waits_for      BINARY(16)     NULL,    -- the join that makes the record due when it is decided
    correlation_id NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NULL,     -- NULL: none, here and below
    causation_id   NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NULL,
    traceparent    NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NULL,
    tracestate     NVARCHAR(1020) COLLATE Latin1_General_100_BIN2 NULL,
    dedup_key      NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NULL,
    joins          NVARCHAR(MAX)  COLLATE Latin1_General_100_BIN2 NULL,     -- the joins of which the message is a step: ids with commas
    last_error     NVARCHAR(MAX)  COLLATE Latin1_General_100_BIN2 NULL,
    history        VARBINARY(MAX) NULL,    -- the last attempts, the newest first, as UTF-8
    metadata       NVARCHAR(MAX)  COLLATE Latin1_General_100_BIN2 NULL,     -- a JSON object
    payload        VARBINARY(MAX) NULL     -- NULL: none
);

CREATE UNIQUE INDEX {i:ids} ON {p:records} (id) WITH (ALLOW_PAGE_LOCKS = OFF);

-- Due, and not known to be blocked: claims take these.
CREATE INDEX {i:line} ON {p:records} (grp, topic, seq) INCLUDE (stage) WHERE stage = 0 WITH (ALLOW_PAGE_LOCKS = OFF);

-- Due, but a claim has found that they must wait: for an earlier record of the key, or a pause.
CREATE INDEX {i:held} ON {p:records} (grp, topic, seq) INCLUDE (stage) WHERE stage = 1 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:held_by} ON {p:records} (grp, topic, hold, seq) INCLUDE (stage) WHERE stage = 1 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:held_under} ON {p:records} (grp, topic, under, seq) INCLUDE (stage) WHERE stage = 1 WITH (ALLOW_PAGE_LOCKS = OFF);

-- Records of which something ends at a time: a wait, a delay or a lease.
CREATE INDEX {i:later} ON {p:records} (grp, topic, stage, wake_at, seq) INCLUDE (owner, expires_at) WHERE wake_at > 0
    WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:leases} ON {p:records} (wake_at) INCLUDE (stage) WHERE stage = 4 WITH (ALLOW_PAGE_LOCKS = OFF);

-- The records of one key. The filter names keyed, because the optimizer does not match a filter on a column ([key] <> N'') with a
-- query that compares this column with a variable.
CREATE INDEX {i:by_key} ON {p:records} (grp, topic, [key], stage, seq) INCLUDE (keyed, owner, wake_at, expires_at)
    WHERE keyed = 1 AND stage < 5 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:parked} ON {p:records} (grp, topic, [key], seq) INCLUDE (parked) WHERE parked = 1 WITH (ALLOW_PAGE_LOCKS = OFF);

-- Records that no group reads yet.
CREATE INDEX {i:unrouted} ON {p:records} (topic, seq) INCLUDE (grp, stage) WHERE grp = N'' WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:expiring} ON {p:records} (expires_at, seq) INCLUDE (stage, wake_at) WHERE expires_at > 0 AND stage < 5
    WITH (ALLOW_PAGE_LOCKS = OFF);

-- Processed and dead records.
CREATE INDEX {i:settled} ON {p:records} (grp, topic, stage, seq) WHERE stage > 4 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:processed} ON {p:records} (processed_at, seq) INCLUDE (stage) WHERE stage = 5 WITH (ALLOW_PAGE_LOCKS = OFF);

-- The records of a step, and those that finish a join.
CREATE INDEX {i:step} ON {p:records} (step, seq) WHERE step IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:waits_for} ON {p:records} (waits_for, seq) WHERE waits_for IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

-- Why the rows that are held under a name must wait: a name is k and a key, or p or q and the number of a pause. blocker is the owner
-- of a lease, 'waiting' for a record that waits for its retry, the name of a pause's note, or '' if the next claim must look.
-- id is a hash of group, topic and name. An insert of an id that exists waits for the transaction that has it, and then does nothing. Only a
-- clustered index may have IGNORE_DUP_KEY: with another one an insert locks the range around the key, and its neighbours wait.
CREATE TABLE {p:notes} (
    id      BINARY(16) NOT NULL CONSTRAINT {i:pk_notes} PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON, ALLOW_PAGE_LOCKS = OFF),
    head    BIGINT     NOT NULL,           -- the first row
    look_at BIGINT     NOT NULL,           -- when a claim looks in any case; 0: never
    looks   INT        NOT NULL,           -- how many claims have found the same blocker
    paused  BIT        NOT NULL,           -- the blocker is a pause
    version ROWVERSION NOT NULL,           -- changes with each write
    grp     NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic   NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
    name    NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
    blocker NVARCHAR(40)  COLLATE Latin1_General_100_BIN2 NOT NULL
);

CREATE INDEX {i:notes_name} ON {p:notes} (grp, topic, name) INCLUDE (blocker) WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:notes_by} ON {p:notes} (grp, topic, blocker, head) WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:notes_look} ON {p:notes} (grp, topic, look_at) WHERE look_at > 0 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:notes_paused} ON {p:notes} (grp, blocker) INCLUDE (paused) WHERE paused = 1 WITH (ALLOW_PAGE_LOCKS = OFF);

-- Small things with a kind, a key and a time: registrations, workers, pauses, dedup keys, joins and their steps, notes of handled
-- messages, sagas, the audit. id is a hash of kind and key: so two keys differ that differ by a blank at their end.
CREATE TABLE {p:entries} (
    id      BINARY(16) NOT NULL CONSTRAINT {i:pk_entries} PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON, ALLOW_PAGE_LOCKS = OFF),
    at      BIGINT     NOT NULL,           -- when it ends or has its turn; 0: never
    made_at BIGINT     NOT NULL,
    kind    NVARCHAR(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key]   NVARCHAR(600) COLLATE Latin1_General_100_BIN2 NOT NULL,
    value   NVARCHAR(MAX) COLLATE Latin1_General_100_BIN2 NOT NULL
);

CREATE INDEX {i:entries_key} ON {p:entries} (kind, [key]) WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {i:entries_at} ON {p:entries} (kind, at) WHERE at > 0 WITH (ALLOW_PAGE_LOCKS = OFF);

-- Thousands of row locks do not become a lock of the table. All publishers append at the end, also of the index of the ids (UUIDv7).
EXEC (N'ALTER TABLE {p:records} SET (LOCK_ESCALATION = DISABLE)')
EXEC (N'ALTER TABLE {p:notes} SET (LOCK_ESCALATION = DISABLE)')
EXEC (N'ALTER TABLE {p:entries} SET (LOCK_ESCALATION = DISABLE)')
EXEC (N'ALTER INDEX {i:pk_records} ON {p:records} SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)')
EXEC (N'ALTER INDEX {i:ids} ON {p:records} SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)');

-- The rows of an append: JSON has no bytes for a payload.
CREATE TYPE {p:new_records} AS TABLE (
    place          INT        NOT NULL PRIMARY KEY,
    id             BINARY(16) NOT NULL,
    grp            NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic          NVARCHAR(260)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    [key]          NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    tenant_id      NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    created_at     BIGINT     NOT NULL,
    size           BIGINT     NOT NULL,
    stage          INT        NOT NULL,
    wake_at        BIGINT     NOT NULL,
    next_at        BIGINT     NOT NULL,
    expires_at     BIGINT     NOT NULL,
    due_at         BIGINT     NOT NULL,
    step           BINARY(16) NULL,
    waits_for      BINARY(16) NULL,
    message_id     NVARCHAR(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    correlation_id NVARCHAR(255)  NULL,
    causation_id   NVARCHAR(255)  NULL,
    traceparent    NVARCHAR(255)  NULL,
    tracestate     NVARCHAR(1020) NULL,
    dedup_key      NVARCHAR(255)  NULL,
    joins          NVARCHAR(MAX)  NULL,
    metadata       NVARCHAR(MAX)  NULL,
    payload        VARBINARY(MAX) NULL
);

-- What the rows of a key mean for a claim by an owner: another owner with a lease, and the first rows that wait, are held, are parked, and
-- are due and not admitted. A lease that has ended counts only if its row has not expired. It becomes a part of the statement that names
-- it, so it is of the moment of that statement. $outmill$
CREATE FUNCTION {p:key_state}(@grp NVARCHAR(255), @topic NVARCHAR(260), @key NVARCHAR(255), @owner NVARCHAR(40), @now BIGINT) RETURNS TABLE AS RETURN
SELECT
    ISNULL((SELECT TOP (1) r.owner FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
        AND r.keyed = 1 AND r.stage = 4 AND r.owner <> @owner AND (r.wake_at > @now OR r.expires_at = 0 OR r.expires_at > @now)), N'') AS other,
    ISNULL((SELECT TOP (1) r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
        AND r.keyed = 1 AND r.stage = 2 AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.seq), 9223372036854775807) AS waiting,
    ISNULL((SELECT TOP (1) r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.stage = 1
        AND r.under = N'k' + @key ORDER BY r.seq), 9223372036854775807) AS held,
    ISNULL((SELECT TOP (1) r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
        AND r.parked = 1 ORDER BY r.seq), 9223372036854775807) AS parked,
    ISNULL((SELECT MIN(d.seq) FROM (
        SELECT r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
            AND r.keyed = 1 AND r.stage = 2 AND r.wake_at <= @now AND (r.expires_at = 0 OR r.expires_at > @now)
        UNION ALL SELECT r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
            AND r.keyed = 1 AND r.stage = 3 AND r.wake_at <= @now AND (r.expires_at = 0 OR r.expires_at > @now)
        UNION ALL SELECT r.seq FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @topic AND r.[key] = @key
            AND r.keyed = 1 AND r.stage = 4 AND r.owner = @owner AND r.wake_at <= @now AND (r.expires_at = 0 OR r.expires_at > @now)) AS d),
        9223372036854775807) AS due
-- $outmill$
;

-- For people: the records with readable times. It reads all records.
CREATE VIEW {p:readable} AS
SELECT r.seq, LOWER(SUBSTRING(CONVERT(NVARCHAR(32), r.id, 2), 1, 8) + N'-' + SUBSTRING(CONVERT(NVARCHAR(32), r.id, 2), 9, 4) + N'-' +
        SUBSTRING(CONVERT(NVARCHAR(32), r.id, 2), 13, 4) + N'-' + SUBSTRING(CONVERT(NVARCHAR(32), r.id, 2), 17, 4) + N'-' +
        SUBSTRING(CONVERT(NVARCHAR(32), r.id, 2), 21, 12)) AS id,
    CASE r.grp WHEN N'' THEN NULL ELSE r.grp END AS grp, CASE WHEN r.topic LIKE N' %' THEN SUBSTRING(r.topic, 5, 255) ELSE r.topic END AS topic,
    r.[key], r.message_id,
    CASE r.stage WHEN 4 THEN N'leased' WHEN 5 THEN N'processed' WHEN 6 THEN N'dead' ELSE N'pending' END AS status,
    CASE r.stage WHEN 0 THEN N'ready' WHEN 1 THEN N'held' WHEN 2 THEN N'waiting' WHEN 3 THEN N'delayed' WHEN 4 THEN N'leased'
        WHEN 5 THEN N'processed' ELSE N'dead' END AS stage,
    DATEADD(SECOND, r.created_at / 1000000 % 86400, DATEADD(DAY, r.created_at / 86400000000, CAST('1970-01-01T00:00:00' AS DATETIME2(0)))) AS created_at,
    DATEADD(SECOND, r.next_at / 1000000 % 86400, DATEADD(DAY, r.next_at / 86400000000, CAST('1970-01-01T00:00:00' AS DATETIME2(0)))) AS next_at,
    CASE WHEN r.wake_at > 0 THEN DATEADD(SECOND, r.wake_at / 1000000 % 86400,
        DATEADD(DAY, r.wake_at / 86400000000, CAST('1970-01-01T00:00:00' AS DATETIME2(0)))) END AS wake_at,
    r.attempts, r.claims, r.expiries, r.parked, r.owner, r.worker, r.under, r.processed_by, r.last_error, r.correlation_id, r.causation_id,
    r.tenant_id, r.traceparent, r.tracestate, r.dedup_key, r.joins, r.size, r.metadata, r.payload
FROM {p:records} AS r;

-- For people: the joins, and their steps. Both are entries, of which package engine reads and writes the values.
CREATE VIEW {p:joins} AS
SELECT e.[key] AS id, JSON_VALUE(e.value, '$.Status') AS status, JSON_VALUE(e.value, '$.Policy') AS policy, JSON_VALUE(e.value, '$.Grouping') AS grouping_key,
    ISNULL(CAST(JSON_VALUE(e.value, '$.Expected') AS INT), 0) AS expected_steps, ISNULL(CAST(JSON_VALUE(e.value, '$.Completed') AS INT), 0) AS completed_steps,
    ISNULL(CAST(JSON_VALUE(e.value, '$.Failed') AS INT), 0) AS failed_steps, JSON_VALUE(e.value, '$.Deadline') AS deadline, JSON_VALUE(e.value, '$.Reason') AS reason,
    DATEADD(SECOND, e.made_at / 1000000 % 86400, DATEADD(DAY, e.made_at / 86400000000, CAST('1970-01-01T00:00:00' AS DATETIME2(0)))) AS created_at,
    CASE WHEN e.at > 0 THEN DATEADD(SECOND, e.at / 1000000 % 86400, DATEADD(DAY, e.at / 86400000000, CAST('1970-01-01T00:00:00' AS DATETIME2(0)))) END AS finished_at
FROM {p:entries} AS e WHERE e.kind = N'join';

CREATE VIEW {p:steps} AS
SELECT SUBSTRING(e.kind, 10, 36) AS join_id, e.[key] AS step, e.value AS status FROM {p:entries} AS e WHERE e.kind LIKE N'steps of %';

-- The procedures are for programs without the Go API: they claim without an order, and settle. What a group must have registered, joins, the rules of
-- keys, the inbox and the janitor's other work are those of the Go API, which calls none of them. Each runs in the transaction of its caller, or in one of
-- its own, under XACT_ABORT: an error rolls back all of it. A lease is the id and the number of the claim that {p:claim} has returned.
CREATE TYPE {p:leases} AS TABLE (
    id     BINARY(16)    NOT NULL PRIMARY KEY,
    claims INT           NOT NULL,
    delay  BIGINT        NULL,             -- for abandon: microseconds until the record is due again; NULL is none
    error  NVARCHAR(MAX) COLLATE Latin1_General_100_BIN2 NULL -- for abandon and fail
);

-- Leases up to @limit records of a group and a topic to @owner, for @seconds, those first that have been due longest, and returns them. It leaves
-- out what another transaction has locked, what has expired, records of joins, and a topic of which something is paused. A record whose lease has
-- ended twice without an outcome comes alone. $outmill$
CREATE PROCEDURE {p:claim} @owner UNIQUEIDENTIFIER, @group NVARCHAR(4000), @topic NVARCHAR(4000), @limit INT, @seconds INT, @worker NVARCHAR(4000) = N''
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF @owner IS NULL OR ISNULL(@group, N'') = N'' OR ISNULL(@topic, N'') = N'' OR @worker IS NULL
        THROW 50905, N'outmill: @owner, @group, @topic and @worker must not be NULL, and @group and @topic not empty', 1;
    IF DATALENGTH(@group) > 510 OR DATALENGTH(@topic) > 510 OR DATALENGTH(@worker) > 510
        THROW 50905, N'outmill: @group, @topic and @worker have at most 255 characters', 1;
    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 900
        THROW 50905, N'outmill: @limit is from 1 to 900', 1;
    IF @seconds IS NULL OR @seconds NOT BETWEEN 1 AND 86400
        THROW 50905, N'outmill: @seconds is from 1 to 86400', 1;
    DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END, @token NVARCHAR(40) = LOWER(CONVERT(NVARCHAR(36), @owner)), @grp NVARCHAR(255) = @group;
    DECLARE @line TABLE (topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @found TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, seq BIGINT NOT NULL, expiries INT NOT NULL);
    DECLARE @gone TABLE (seq BIGINT NOT NULL PRIMARY KEY, grp NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
        topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL, [key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
    DECLARE @now BIGINT = {p:now}(), @part INT = 0, @name NVARCHAR(260) = @topic, @share INT, @end INT;
    -- A fair topic has 64 lines.
    WHILE @part < 64
    BEGIN
        IF EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @name AND r.stage = 0)
            OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @name AND r.stage = 1)
            OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = @grp AND r.topic = @name AND r.wake_at > 0)
            INSERT @line (topic) VALUES (@name);
        SET @part = @part + 1;
        SET @name = N' ' + RIGHT(N'0' + CAST(@part AS NVARCHAR(2)), 2) + N' ' + @topic;
        IF @part = 1 AND NOT EXISTS (SELECT 1 FROM {p:entries} AS e WITH (FORCESEEK) WHERE e.kind = N'setting')
            BREAK;
    END
    IF EXISTS (SELECT 1 FROM {p:entries} AS e WITH (FORCESEEK) WHERE e.kind = N'pause'
            AND JSON_VALUE(e.value, '$.Scope.Group') COLLATE Latin1_General_100_BIN2 IN (N'', @grp)
            AND JSON_VALUE(e.value, '$.Scope.Topic') COLLATE Latin1_General_100_BIN2 IN (N'', @topic))
        DELETE l FROM @line AS l;
    SET @share = (SELECT CASE COUNT(*) WHEN 0 THEN 0 ELSE (@limit + COUNT(*) - 1) / COUNT(*) END FROM @line AS l);
    IF @own = 1
        BEGIN TRANSACTION;
    INSERT @found (seq, expiries) SELECT TOP (@limit) c.seq, c.expiries FROM @line AS l CROSS APPLY (
        SELECT * FROM (SELECT TOP (@share) r.seq, r.expiries, CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END AS due
            FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = @grp AND r.topic = l.topic AND r.stage = 0
            AND r.step IS NULL AND r.waits_for IS NULL AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.seq) AS ready
        UNION ALL SELECT * FROM (SELECT TOP (@share) r.seq, r.expiries, CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END AS due
            FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = @grp AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1
            AND r.step IS NULL AND r.waits_for IS NULL AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.seq) AS held
        UNION ALL SELECT * FROM (SELECT TOP (@share) r.seq, r.expiries, r.wake_at AS due
            FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = @grp AND r.topic = l.topic AND r.stage = 2
            AND r.wake_at > 0 AND r.wake_at <= @now AND r.step IS NULL AND r.waits_for IS NULL AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.wake_at, r.seq) AS waiting
        UNION ALL SELECT * FROM (SELECT TOP (@share) r.seq, r.expiries, r.wake_at AS due
            FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = @grp AND r.topic = l.topic AND r.stage = 3
            AND r.wake_at > 0 AND r.wake_at <= @now AND r.step IS NULL AND r.waits_for IS NULL AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.wake_at, r.seq) AS delayed
        UNION ALL SELECT * FROM (SELECT TOP (@share) r.seq, r.expiries + 1 AS expiries, r.wake_at AS due
            FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE r.grp = @grp AND r.topic = l.topic AND r.stage = 4
            AND r.wake_at > 0 AND r.wake_at <= @now AND r.step IS NULL AND r.waits_for IS NULL AND (r.expires_at = 0 OR r.expires_at > @now) ORDER BY r.wake_at, r.seq) AS ended
        ) AS c ORDER BY c.due, c.seq;
    SET @end = ISNULL((SELECT MIN(f.place) FROM @found AS f WHERE f.expiries >= 2), 901);
    UPDATE r SET stage = 4, wake_at = @now + CAST(@seconds AS BIGINT) * 1000000, owner = @token, worker = @worker, claims = r.claims + 1, under = N'', hold = 0,
        attempts = r.attempts + CASE WHEN r.stage = 4 AND r.expiries >= 2 THEN 1 ELSE 0 END, expiries = r.expiries + CASE r.stage WHEN 4 THEN 1 ELSE 0 END,
        history = CASE WHEN r.stage = 4 AND r.expiries >= 2 THEN {tried:r.wake_at, N'the lease ended, and the worker had stored no outcome'} ELSE r.history END
        OUTPUT inserted.seq, inserted.grp, inserted.topic, inserted.[key] INTO @gone (seq, grp, topic, [key])
    FROM @found AS f
    INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = f.seq WHERE f.place < CASE @end WHEN 1 THEN 2 ELSE @end END;
    {open_gone}
    IF @own = 1
        COMMIT TRANSACTION;
    SELECT r.id, r.claims, r.seq, @topic AS topic, r.[key], r.message_id, r.attempts, r.expiries, r.correlation_id, r.causation_id, r.tenant_id, r.traceparent,
        r.tracestate, r.metadata, r.payload
    FROM @gone AS g INNER LOOP JOIN {p:records} AS r WITH (FORCESEEK) ON r.seq = g.seq AND r.stage = 4 AND r.owner = @token ORDER BY r.seq;
END
-- $outmill$
;

-- Makes leased records processed: deletes them, or keeps them as processed by @by if @keep is 1, as Config.Retain says in Go. It returns the ids of those whose
-- leases were valid. It leaves records of joins, which only the Go API counts. $outmill$
CREATE PROCEDURE {p:ack} @owner UNIQUEIDENTIFIER, @leases {p:leases} READONLY, @keep BIT = 0, @by NVARCHAR(4000) = N''
AS
BEGIN
    {settles}
    IF ISNULL(DATALENGTH(@by), 512) > 510
        THROW 50905, N'outmill: @by is not NULL, and has at most 255 characters', 1;
    {begin}
    IF @keep = 1
        UPDATE r SET stage = 5, wake_at = 0, owner = N'', worker = N'', processed_at = @now, processed_by = @by
            OUTPUT inserted.id, inserted.grp, inserted.topic, inserted.[key] INTO @gone (id, grp, topic, [key])
        FROM @leases AS l INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = l.id WHERE {leased};
    ELSE
        DELETE r OUTPUT deleted.id, deleted.grp, deleted.topic, deleted.[key] INTO @gone (id, grp, topic, [key])
        FROM @leases AS l INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = l.id WHERE {leased};
    {open_gone}
    {end}
END
-- $outmill$
;

-- Makes leased records due again after their delay, and counts the attempt. It returns the ids of those whose leases were valid. $outmill$
CREATE PROCEDURE {p:abandon} @owner UNIQUEIDENTIFIER, @leases {p:leases} READONLY
AS
BEGIN
    {settles}
    IF EXISTS (SELECT 1 FROM @leases AS l WHERE l.delay NOT BETWEEN 0 AND 3153600000000000)
        THROW 50905, N'outmill: a delay is from 0 microseconds to 100 years', 1;
    {begin}
    UPDATE r SET stage = 2, next_at = @now + ISNULL(l.delay, 0), owner = N'', worker = N'', expiries = 0, attempts = r.attempts + 1,
        wake_at = CASE WHEN r.expires_at <> 0 AND r.expires_at < @now + ISNULL(l.delay, 0) THEN r.expires_at ELSE @now + ISNULL(l.delay, 0) END,
        last_error = ISNULL(l.error, N''), history = {tried:@now, ISNULL(l.error, N'')}
        OUTPUT inserted.id, inserted.grp, inserted.topic, inserted.[key] INTO @gone (id, grp, topic, [key])
    FROM @leases AS l INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = l.id WHERE {leased};
    {open_gone}
    {end}
END
-- $outmill$
;

-- Makes leased records dead, and counts the attempt. With @park 1 the later records of their keys go dead when a claim by key with KeyPark meets them. It returns
-- the ids of those whose leases were valid. It leaves records of joins. $outmill$
CREATE PROCEDURE {p:fail} @owner UNIQUEIDENTIFIER, @leases {p:leases} READONLY, @park BIT = 0
AS
BEGIN
    {settles}
    {begin}
    UPDATE r SET stage = 6, wake_at = 0, owner = N'', worker = N'', attempts = r.attempts + 1, parked = CASE WHEN @park = 1 AND r.keyed = 1 THEN 1 ELSE 0 END,
        last_error = ISNULL(l.error, N''), history = {tried:@now, ISNULL(l.error, N'')}
        OUTPUT inserted.id, inserted.grp, inserted.topic, inserted.[key] INTO @gone (id, grp, topic, [key])
    FROM @leases AS l INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.id = l.id WHERE {leased};
    {open_gone}
    {end}
END
-- $outmill$
;

-- Makes up to @limit records pending whose lease has ended, and returns their ids. It leaves those that wait for joins. $outmill$
CREATE PROCEDURE {p:reap} @limit INT
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 900
        THROW 50905, N'outmill: @limit is from 1 to 900', 1;
    DECLARE @found TABLE (seq BIGINT NOT NULL PRIMARY KEY);
    {begin}
    INSERT @found (seq) SELECT TOP (@limit) r.seq FROM {p:records} AS r WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE r.stage = 4 AND r.wake_at <= @now AND r.waits_for IS NULL ORDER BY r.wake_at;
    UPDATE r SET stage = CASE WHEN r.next_at > r.created_at THEN 2 ELSE 0 END, owner = N'', worker = N'',
        wake_at = CASE WHEN r.next_at <= r.created_at THEN 0 WHEN r.expires_at <> 0 AND r.expires_at < r.next_at THEN r.expires_at ELSE r.next_at END,
        attempts = r.attempts + CASE WHEN r.expiries >= 2 THEN 1 ELSE 0 END, expiries = r.expiries + 1,
        history = CASE WHEN r.expiries >= 2 THEN {tried:r.wake_at, N'the lease ended, and the worker had stored no outcome'} ELSE r.history END
        OUTPUT inserted.id, inserted.grp, inserted.topic, inserted.[key] INTO @gone (id, grp, topic, [key])
    FROM @found AS f
    INNER LOOP JOIN {p:records} AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON r.seq = f.seq WHERE r.stage = 4 AND r.wake_at <= @now;
    {open_gone}
    {end}
END
-- $outmill$
;

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (only_row, version, compatible, routes, pauses) VALUES (1, 1, 1, 0, 0);
