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

-- Thousands of row locks do not become a lock of the table.
IF SERVERPROPERTY('Babelfish') IS NULL
BEGIN
    EXEC (N'ALTER TABLE {p:records} SET (LOCK_ESCALATION = DISABLE)')
    EXEC (N'ALTER TABLE {p:notes} SET (LOCK_ESCALATION = DISABLE)')
    EXEC (N'ALTER TABLE {p:entries} SET (LOCK_ESCALATION = DISABLE)')
END;

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

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (only_row, version, compatible, routes, pauses) VALUES (1, 1, 1, 0, 0);
