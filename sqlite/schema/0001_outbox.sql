-- The schema's version, and a counter that changes with the registered groups, so that an
-- append need not read them each time.
CREATE TABLE {p:meta} (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    version    INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    pauses     INTEGER NOT NULL DEFAULT 0 -- changes with the pauses
);

-- One row for each message and group. Times are microseconds since 1970. Small columns come
-- first, so that SQLite reads them without the payload.
CREATE TABLE {p:records} (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of the appends
    id             TEXT    NOT NULL UNIQUE,
    grp            TEXT,                              -- NULL: no group has registered for the topic yet
    topic          TEXT    NOT NULL,
    key            TEXT    NOT NULL DEFAULT '',
    status         TEXT    NOT NULL DEFAULT 'pending', -- pending, leased, processed, dead
    stage          INTEGER NOT NULL,                  -- -1 aside (paused), 0 in line, 1 held, 2 waiting, 3 delayed, 4 leased, 5 expired, 6 settled (processed or dead)
    available_at   INTEGER,                           -- stages 2 to 4: the end of the wait, the delay or the lease
    due_at         INTEGER NOT NULL,                  -- first due
    next_at        INTEGER NOT NULL,                  -- due, or due again
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    attempts       INTEGER NOT NULL DEFAULT 0,
    claims         INTEGER NOT NULL DEFAULT 0,
    expiries       INTEGER NOT NULL DEFAULT 0,
    parked         INTEGER NOT NULL DEFAULT 0,        -- 1: went dead with Park
    paused_by      INTEGER,                           -- stage -1: the number of the pause
    size           INTEGER NOT NULL,
    owner          TEXT    NOT NULL DEFAULT '',
    processed_at   INTEGER,
    processed_by   TEXT,                              -- the worker's name; NULL: none
    message_id     TEXT    NOT NULL,
    correlation_id TEXT,                              -- NULL: none, here and below
    causation_id   TEXT,
    tenant_id      TEXT,
    turn           TEXT,                              -- '.' and the tenant, if claims serve the tenants of the topic in turn
    traceparent    TEXT,
    tracestate     TEXT,
    dedup_key      TEXT,
    last_error     TEXT,
    metadata       TEXT,                              -- a JSON object
    step           TEXT,                              -- the step that the message is of joins: the id of its first record
    joins          TEXT,                              -- the joins of which the message is a step: ids with commas
    waits_for      TEXT,                              -- the join that this record is to finish
    payload        BLOB                               -- NULL: a nil payload
);

-- Due, and not known to be blocked: claims take these.
CREATE INDEX {p:line} ON {p:records} (grp, topic, seq) WHERE stage = 0 AND turn IS NULL;

-- The same for records that have a turn: in the order of the appends, by tenant and by key.
CREATE INDEX {p:turn_line} ON {p:records} (grp, topic, seq) WHERE stage = 0 AND turn IS NOT NULL;

CREATE INDEX {p:turns} ON {p:records} (grp, topic, turn, seq) WHERE stage = 0 AND turn IS NOT NULL;

CREATE INDEX {p:turn_key} ON {p:records} (grp, topic, key, seq) WHERE stage = 0 AND turn IS NOT NULL AND key <> '';

-- Due, but an earlier record of the key blocked them at the last ordered claim.
CREATE INDEX {p:held} ON {p:records} (grp, topic, seq) WHERE stage = 1;

CREATE INDEX {p:held_key} ON {p:records} (grp, topic, key, seq) WHERE stage = 1;

-- Records that become claimable at a time.
CREATE INDEX {p:later} ON {p:records} (grp, topic, stage, available_at, seq) WHERE available_at IS NOT NULL;

-- The records of one key, whatever their status.
CREATE INDEX {p:by_key} ON {p:records} (grp, topic, key, seq) WHERE key <> '';

-- Records that block ordered claims.
CREATE INDEX {p:waiting} ON {p:records} (grp, topic, seq) WHERE stage = 2;

CREATE INDEX {p:waiting_key} ON {p:records} (grp, topic, key, seq) WHERE stage = 2 AND key <> '';

CREATE INDEX {p:leased_key} ON {p:records} (grp, topic, key, owner) WHERE stage = 4 AND key <> '';

CREATE INDEX {p:parked} ON {p:records} (grp, topic, key) WHERE parked > 0;

CREATE INDEX {p:expiring} ON {p:records} (expires_at) WHERE expires_at IS NOT NULL AND stage < 6;

-- Expired records that a claim has met. They wait for the janitor.
CREATE INDEX {p:expired} ON {p:records} (grp, topic, seq) WHERE stage = 5;

-- Paused records that a claim has set aside.
CREATE INDEX {p:aside} ON {p:records} (grp, topic, paused_by, seq) WHERE stage = -1;

CREATE INDEX {p:aside_keyed} ON {p:records} (grp, topic, seq) WHERE stage = -1 AND key <> '';

-- Processed and dead records.
CREATE INDEX {p:settled} ON {p:records} (grp, topic, status, id) WHERE stage = 6;

CREATE INDEX {p:processed} ON {p:records} (processed_at) WHERE processed_at IS NOT NULL;

-- The steps of joins, and the records that finish a join.
CREATE INDEX {p:step} ON {p:records} (step) WHERE step IS NOT NULL;

CREATE INDEX {p:waits_for} ON {p:records} (waits_for) WHERE waits_for IS NOT NULL;

-- One row for each key that has held records. blocked_by is the owner whose lease blocked the
-- key, 'waiting' for a record that waits for its retry, 'turn' for a ready record that is not held,
-- 'paused' for the pause with the number
-- paused_by, or empty if something has changed since. If it is empty, or the time until has come (the end of the lease or the wait), a claim
-- checks the key again. head is the first of the held records.
CREATE TABLE {p:lanes} (
    grp        TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    blocked_by TEXT    NOT NULL,
    until      INTEGER,
    paused_by  INTEGER,
    head       INTEGER NOT NULL,
    PRIMARY KEY (grp, topic, key)
) WITHOUT ROWID;

CREATE INDEX {p:lanes_blocked} ON {p:lanes} (grp, topic, blocked_by, head);

CREATE INDEX {p:lanes_until} ON {p:lanes} (grp, topic, until) WHERE until IS NOT NULL;

CREATE INDEX {p:lanes_paused} ON {p:lanes} (grp, topic, paused_by) WHERE paused_by IS NOT NULL;

-- What is paused: the records that match each column that is not empty. A number is never used
-- again.
CREATE TABLE {p:pauses} (
    grp       TEXT    NOT NULL,
    topic     TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    tenant_id TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    paused_at INTEGER NOT NULL,
    paused_by TEXT    NOT NULL, -- who made the pause
    reason    TEXT    NOT NULL,
    PRIMARY KEY (grp, topic, key, tenant_id)
) WITHOUT ROWID;

-- What operators changed, one row for each command. details is a JSON object: the filter, ids,
-- and the records before and after.
CREATE TABLE {p:audit} (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    changed_at INTEGER NOT NULL,
    actor      TEXT    NOT NULL, -- who made the call; empty: nobody named
    action     TEXT    NOT NULL, -- requeue, delete, edit, skip
    count      INTEGER NOT NULL, -- how many records changed
    details    TEXT    NOT NULL,
    command    TEXT    NOT NULL UNIQUE -- a UUID: the transactions of a command write one row
);

-- The topics of each group: JSON lists of patterns.
CREATE TABLE {p:groups} (
    grp        TEXT    NOT NULL,
    include    TEXT    NOT NULL,
    exclude    TEXT    NOT NULL,
    seen_at    INTEGER NOT NULL,
    expires_at INTEGER,                               -- NULL: never
    holding    INTEGER NOT NULL,                      -- 1: it does not take what waits for a first group
    PRIMARY KEY (grp, include, exclude)
) WITHOUT ROWID;

CREATE INDEX {p:groups_expiring} ON {p:groups} (expires_at) WHERE expires_at IS NOT NULL;

-- The workers that registered the groups.
CREATE TABLE {p:workers} (
    grp      TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    seen_at  INTEGER NOT NULL,
    problems TEXT,                                    -- JSON: why it passes on nothing, by topic; NULL: no problem
    PRIMARY KEY (grp, name)
) WITHOUT ROWID;

-- Groups with an ended registration, until their undelivered records of topics that they no
-- longer read are deleted. The janitor checks them at look_at.
CREATE TABLE {p:endings} (
    grp      TEXT    NOT NULL PRIMARY KEY,
    ended_at INTEGER NOT NULL,
    look_at  INTEGER NOT NULL,
    empty    INTEGER NOT NULL DEFAULT 0,              -- 1: the group had no records when it was looked at
    others   TEXT                                     -- the group is being dropped: JSON of the selections that the other groups had then
) WITHOUT ROWID;

CREATE INDEX {p:endings_look} ON {p:endings} (look_at);

CREATE TABLE {p:dedup} (
    topic      TEXT    NOT NULL,
    dedup_key  TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    first_id   TEXT    NOT NULL,                      -- the record that took the key
    PRIMARY KEY (topic, dedup_key)
) WITHOUT ROWID;

CREATE INDEX {p:dedup_expires} ON {p:dedup} (expires_at);

-- One row for each message that a consumer has handled. record is the id of a record of this
-- store, which the row outlives.
CREATE TABLE {p:inbox} (
    consumer  TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    delete_at INTEGER NOT NULL,
    record    TEXT,                                          -- NULL: the message came from elsewhere
    PRIMARY KEY (consumer, key)
) WITHOUT ROWID;

CREATE INDEX {p:inbox_delete} ON {p:inbox} (delete_at);

-- expected is NULL until the number is known.
CREATE TABLE {p:joins} (
    id                   TEXT    NOT NULL PRIMARY KEY,
    grouping_key         TEXT,                               -- NULL: none
    status               TEXT    NOT NULL DEFAULT 'pending', -- pending, completed, failed, cancelled
    policy               TEXT    NOT NULL,                   -- all, any, quorum
    quorum               INTEGER NOT NULL,
    expected_steps       INTEGER,
    completed_steps      INTEGER NOT NULL DEFAULT 0,
    failed_steps         INTEGER NOT NULL DEFAULT 0,
    deadline             INTEGER,
    complete_at_deadline INTEGER NOT NULL,
    reason               TEXT,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    finished_at          INTEGER,
    metadata             TEXT                                -- a JSON object
) WITHOUT ROWID;

CREATE INDEX {p:joins_grouping} ON {p:joins} (grouping_key, status, id);

CREATE INDEX {p:joins_status} ON {p:joins} (status, id);

CREATE INDEX {p:joins_finished} ON {p:joins} (finished_at) WHERE finished_at IS NOT NULL;

-- The steps of joins. A step is one message: open is the number of its unsettled records, acked
-- and dead the numbers of the others.
CREATE TABLE {p:join_members} (
    join_id TEXT    NOT NULL,
    step    TEXT    NOT NULL,
    status  TEXT    NOT NULL DEFAULT 'pending', -- pending, completed, failed
    open    INTEGER NOT NULL,
    acked   INTEGER NOT NULL DEFAULT 0,
    dead    INTEGER NOT NULL DEFAULT 0,
    reported INTEGER NOT NULL DEFAULT 0,        -- 1: later changes of the message's records no longer count
    PRIMARY KEY (join_id, step)
) WITHOUT ROWID;

CREATE INDEX {p:join_members_step} ON {p:join_members} (step);

-- The states of sagas. A change compares the version.
CREATE TABLE {p:sagas} (
    id          TEXT    NOT NULL PRIMARY KEY,
    type        TEXT    NOT NULL,
    correlation TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT    NOT NULL,           -- a JSON object
    finished    INTEGER NOT NULL DEFAULT 0, -- 1: the saga has ended, at updated_at
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    delete_at   INTEGER,                    -- when the janitor deletes a finished saga; NULL is never
    UNIQUE (type, correlation)
) WITHOUT ROWID;

CREATE INDEX {p:sagas_finished} ON {p:sagas} (type, updated_at) WHERE finished = 1;

CREATE INDEX {p:sagas_delete} ON {p:sagas} (delete_at) WHERE delete_at IS NOT NULL;

-- For people: the records with readable times. It reads all records.
CREATE VIEW {p:readable} AS
SELECT seq, id, grp, topic, key, message_id, status,
       CASE stage WHEN -1 THEN 'paused' WHEN 0 THEN 'in line' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased' WHEN 5 THEN 'expired' ELSE 'settled' END AS stage,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1000000.0, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', next_at / 1000000.0, 'unixepoch') AS next_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1000000.0, 'unixepoch') AS available_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', processed_at / 1000000.0, 'unixepoch') AS processed_at,
       attempts, claims, expiries, parked, owner, processed_by, last_error,
       correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for,
       size, metadata, CAST(payload AS TEXT) AS payload
FROM {p:records};
