-- The schema's version, and the generations of the registrations and pauses, so that a process need not read them for each call.
CREATE TABLE IF NOT EXISTS {p:meta} (
    only_row   TINYINT NOT NULL PRIMARY KEY,
    version    INT     NOT NULL,
    compatible INT     NOT NULL, -- the oldest version of a program that may use the schema
    routes     BIGINT  NOT NULL, -- changes with the registered groups
    pauses     BIGINT  NOT NULL  -- changes with the pauses
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row for each message and group. Times are microseconds since 1970; 0 is none. Texts are UTF-8 in columns of bytes, so that no
-- collation takes two of them for one, and no character set of a connection changes them.
CREATE TABLE IF NOT EXISTS {p:records} (
    seq            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY, -- the order of the appends
    id             BINARY(16)     NOT NULL,
    created_at     BIGINT         NOT NULL,
    wake_at        BIGINT         NOT NULL,            -- stages 2 to 4: the end of the wait, the delay or the lease
    next_at        BIGINT         NOT NULL,            -- due, or due again
    expires_at     BIGINT         NOT NULL,
    processed_at   BIGINT         NOT NULL DEFAULT 0,
    due_at         BIGINT         NOT NULL,            -- first due
    size           BIGINT         NOT NULL,
    attempts       INT            NOT NULL DEFAULT 0,
    claims         INT            NOT NULL DEFAULT 0,
    expiries       INT            NOT NULL DEFAULT 0,
    stage          TINYINT        NOT NULL,            -- 0 ready, 1 held, 2 waiting, 3 delayed, 4 leased, 5 processed, 6 dead
    parked         TINYINT        NOT NULL DEFAULT 0,  -- 1: went dead with an earlier one of its key
    grp            VARBINARY(765) NOT NULL,            -- '': no group has registered for the topic yet
    topic          VARBINARY(780) NOT NULL,            -- of a fair topic behind ' 07 ', the number of its part; part 0 has none
    rec_key        VARBINARY(765) NOT NULL,
    tenant_id      VARBINARY(765) NOT NULL,
    owner          VARBINARY(64)  NOT NULL DEFAULT '', -- stage 4: the token of the worker
    worker         VARBINARY(765) NOT NULL DEFAULT '', -- stage 4: its name
    under          VARBINARY(780) NOT NULL DEFAULT '', -- stage 1: the name of the note that holds it
    processed_by   VARBINARY(765) NOT NULL DEFAULT '', -- the worker's name
    message_id     VARBINARY(1020) NOT NULL,
    step           BINARY(16),                         -- the step that the message is of joins: the id of its first record
    waits_for      BINARY(16),                         -- the join that makes the record due when it is decided
    correlation_id VARBINARY(1020),                    -- NULL: none, here and below
    causation_id   VARBINARY(1020),
    traceparent    VARBINARY(1020),
    tracestate     VARBINARY(4096),
    dedup_key      VARBINARY(1020),
    joins          MEDIUMBLOB,                         -- the joins of which the message is a step: ids with commas
    last_error     MEDIUMBLOB,
    history        VARBINARY(3072) NOT NULL DEFAULT '', -- the last attempts, the newest first
    metadata       LONGBLOB,                           -- a JSON object
    payload        LONGBLOB,                           -- NULL: none
    -- The stage, with 7 for a row that a pause holds, and 8 for a parked one: InnoDB has no index of some rows only.
    slot           TINYINT AS (CASE WHEN stage = 1 AND LEFT(under, 1) <> x'6B' THEN 7 WHEN stage = 6
            AND parked = 1 THEN 8 ELSE stage END) STORED,
    -- What ends by time: 1 a lease, 2 the time for which a processed row stays, 3 a row with an expiry.
    timer          TINYINT AS (CASE WHEN stage = 4 THEN 1 WHEN stage = 5 THEN 2 WHEN stage < 4 AND expires_at > 0 THEN 3 END) STORED,
    timer_at       BIGINT AS (CASE WHEN stage = 4 THEN wake_at WHEN stage = 5 THEN processed_at WHEN stage < 4
            AND expires_at > 0 THEN expires_at END) STORED,
    UNIQUE KEY ids (id),
    -- Claims take the rows of slot 0.
    KEY line (grp, topic, slot, wake_at, seq),
    KEY by_key (grp, topic, rec_key, slot, seq),
    -- The rows that a pause holds.
    KEY held_under (grp, topic, under, seq),
    KEY timers (timer, timer_at, seq),
    -- The records of a step, and those that finish a join.
    KEY steps (step, seq),
    KEY waiters (waits_for, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Why the rows that are held under a name must wait: a name is k and a key, or p or q and the number of a pause. blocker is the owner of a
-- lease, 'waiting' for a record that waits for its retry, the name of a pause's note, or '' if the next claim must look.
CREATE TABLE IF NOT EXISTS {p:notes} (
    grp     VARBINARY(765) NOT NULL,
    topic   VARBINARY(780) NOT NULL,
    name    VARBINARY(780) NOT NULL,
    blocker VARBINARY(64)  NOT NULL,
    head    BIGINT         NOT NULL, -- the first row
    look_at BIGINT         NOT NULL, -- when a claim looks in any case; 0: never
    looks   INT            NOT NULL, -- how many claims have found the same blocker
    paused  TINYINT AS (CASE WHEN LEFT(blocker, 1) IN (x'70', x'71') THEN 1 ELSE 0 END) STORED,
    PRIMARY KEY (grp, topic, name),
    KEY blockers (grp, topic, blocker, head),
    KEY looking (grp, topic, look_at),
    KEY pauses (paused, grp, blocker)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- A claim in an order locks the row of its line.
CREATE TABLE IF NOT EXISTS {p:lines} (
    grp   VARBINARY(765) NOT NULL,
    topic VARBINARY(780) NOT NULL,
    PRIMARY KEY (grp, topic)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Small things with a kind, a key and a time: registrations, workers, pauses, dedup keys, joins and their steps, notes of handled messages,
-- sagas, the audit.
CREATE TABLE IF NOT EXISTS {p:entries} (
    kind    VARBINARY(300)  NOT NULL,
    name    VARBINARY(2400) NOT NULL,
    at      BIGINT          NOT NULL, -- when it ends or has its turn; 0: never
    made_at BIGINT          NOT NULL,
    value   LONGBLOB        NOT NULL,
    PRIMARY KEY (kind, name),
    KEY times (kind, at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- For people: the records with readable texts, and times in UTC. It reads all records.
CREATE OR REPLACE VIEW {p:readable} AS
SELECT r.seq, CAST(LOWER(CONCAT_WS('-', SUBSTR(HEX(r.id), 1, 8), SUBSTR(HEX(r.id), 9, 4), SUBSTR(HEX(r.id), 13, 4), SUBSTR(HEX(r.id),
        17, 4),
        SUBSTR(HEX(r.id), 21, 12))) AS CHAR) AS id,
    CONVERT(NULLIF(r.grp, '') USING utf8mb4) AS grp, CONVERT(IF(r.topic LIKE ' %', SUBSTR(r.topic, 5), r.topic) USING utf8mb4) AS topic,
    CONVERT(r.rec_key USING utf8mb4) AS rec_key, CONVERT(r.message_id USING utf8mb4) AS message_id,
    CASE r.stage WHEN 4 THEN 'leased' WHEN 5 THEN 'processed' WHEN 6 THEN 'dead' ELSE 'pending' END AS status,
    CASE r.stage WHEN 0 THEN 'ready' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased'
            WHEN 5 THEN 'processed' ELSE 'dead' END AS stage,
    TIMESTAMPADD(MICROSECOND, r.created_at, TIMESTAMP'1970-01-01 00:00:00') AS created_at,
    TIMESTAMPADD(MICROSECOND, r.due_at, TIMESTAMP'1970-01-01 00:00:00') AS due_at,
    TIMESTAMPADD(MICROSECOND, r.next_at, TIMESTAMP'1970-01-01 00:00:00') AS next_at,
    TIMESTAMPADD(MICROSECOND, NULLIF(r.wake_at, 0), TIMESTAMP'1970-01-01 00:00:00') AS wake_at,
    TIMESTAMPADD(MICROSECOND, NULLIF(r.expires_at, 0), TIMESTAMP'1970-01-01 00:00:00') AS expires_at,
    TIMESTAMPADD(MICROSECOND, NULLIF(r.processed_at, 0), TIMESTAMP'1970-01-01 00:00:00') AS processed_at,
    r.attempts, r.claims, r.expiries, r.parked, CONVERT(r.owner USING utf8mb4) AS owner, CONVERT(r.worker USING utf8mb4) AS worker,
    CONVERT(r.under USING utf8mb4) AS under, CONVERT(r.processed_by USING utf8mb4) AS processed_by,
    CONVERT(r.last_error USING utf8mb4) AS last_error, CONVERT(r.correlation_id USING utf8mb4) AS correlation_id,
    CONVERT(r.causation_id USING utf8mb4) AS causation_id, CONVERT(r.tenant_id USING utf8mb4) AS tenant_id,
    CONVERT(r.traceparent USING utf8mb4) AS traceparent, CONVERT(r.tracestate USING utf8mb4) AS tracestate,
    CONVERT(r.dedup_key USING utf8mb4) AS dedup_key, HEX(r.step) AS step, CONVERT(r.joins USING utf8mb4) AS joins,
            HEX(r.waits_for) AS waits_for,
    r.size, CONVERT(r.metadata USING utf8mb4) AS metadata, r.payload
FROM {p:records} AS r;

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (only_row, version, compatible, routes, pauses) VALUES (1, 1, 1, 0, 0);
