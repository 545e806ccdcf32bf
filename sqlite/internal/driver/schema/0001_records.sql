-- The schema's version, and the generations of the registrations and pauses, so that a process need not
-- read them for each call.
CREATE TABLE {p:meta} (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version  INTEGER NOT NULL,
    routes   INTEGER NOT NULL DEFAULT 0, -- changes with the registered groups
    pauses   INTEGER NOT NULL DEFAULT 0  -- changes with the pauses
);

-- One row for each message and group. Times are microseconds since 1970; 0 is none. Small columns come
-- first, so that SQLite reads them without the payload.
CREATE TABLE {p:records} (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of the appends; below 0 in the parts of fair topics
    id             TEXT    NOT NULL UNIQUE,
    grp            TEXT    NOT NULL,                  -- '': no group has registered for the topic yet
    topic          TEXT    NOT NULL,                  -- of a fair topic behind ' 07 ', the number of its part; part 0 has none
    key            TEXT    NOT NULL,
    tenant_id      TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    size           INTEGER NOT NULL,
    stage          INTEGER NOT NULL,                  -- 0 ready, 1 held, 2 waiting, 3 delayed, 4 leased, 5 processed, 6 dead
    wake_at        INTEGER NOT NULL,                  -- stages 2 to 4: the end of the wait, the delay or the lease
    next_at        INTEGER NOT NULL,                  -- due, or due again
    expires_at     INTEGER NOT NULL,
    attempts       INTEGER NOT NULL DEFAULT 0,
    claims         INTEGER NOT NULL DEFAULT 0,
    expiries       INTEGER NOT NULL DEFAULT 0,
    owner          TEXT    NOT NULL DEFAULT '',       -- stage 4: the token of the worker
    worker         TEXT    NOT NULL DEFAULT '',       -- stage 4: its name
    under          TEXT    NOT NULL DEFAULT '',       -- stage 1: the name of the note that holds it
    parked         INTEGER NOT NULL DEFAULT 0,        -- 1: went dead with an earlier one of its key
    processed_at   INTEGER NOT NULL DEFAULT 0,
    processed_by   TEXT    NOT NULL DEFAULT '',       -- the worker's name
    step           TEXT,                              -- the step that the message is of joins: the id of its first record
    waits_for      TEXT,                              -- the join that makes the record due when it is decided
    due_at         INTEGER NOT NULL,                  -- first due
    message_id     TEXT    NOT NULL,
    correlation_id TEXT,                              -- NULL: none, here and below
    causation_id   TEXT,
    traceparent    TEXT,
    tracestate     TEXT,
    dedup_key      TEXT,
    joins          TEXT,                              -- the joins of which the message is a step: ids with commas
    last_error     TEXT,
    history        BLOB    NOT NULL DEFAULT x'',      -- the last attempts, the newest first
    metadata       TEXT,                              -- a JSON object
    payload        BLOB                               -- NULL: none, or in the table of payloads
);

-- Payloads of more than 64 KiB: SQLite writes a whole row again when something in it changes.
CREATE TABLE {p:payloads} (
    seq     INTEGER PRIMARY KEY, -- of the record
    payload BLOB    NOT NULL
);

CREATE TRIGGER {p:gone} AFTER DELETE ON {p:records} WHEN OLD.size > 65536 BEGIN DELETE FROM {p:payloads} WHERE seq = OLD.seq; END;

-- Due, and not known to be blocked: claims take these.
CREATE INDEX {p:line} ON {p:records} (grp, topic, seq) WHERE stage = 0;

-- Due, but a claim has found that they must wait: for an earlier record of the key (1), or a pause (0).
CREATE INDEX {p:held} ON {p:records} (grp, topic, under < 'l', seq) WHERE stage = 1;

CREATE INDEX {p:held_under} ON {p:records} (grp, topic, under, seq) WHERE stage = 1;

-- Records of which something ends at a time: a wait, a delay or a lease.
CREATE INDEX {p:later} ON {p:records} (grp, topic, stage, wake_at, seq) WHERE wake_at <> 0;
CREATE INDEX {p:leases} ON {p:records} (wake_at) WHERE stage = 4;

-- The records of one key, whatever their stage.
CREATE INDEX {p:by_key} ON {p:records} (grp, topic, key, seq) WHERE key <> '';

-- Records that block ordered claims.
CREATE INDEX {p:waiting} ON {p:records} (grp, topic, seq) WHERE stage = 2;
CREATE INDEX {p:waiting_key} ON {p:records} (grp, topic, key, seq) WHERE stage = 2 AND key <> '';
CREATE INDEX {p:leased_key} ON {p:records} (grp, topic, key, owner) WHERE stage = 4 AND key <> '';
CREATE INDEX {p:parked} ON {p:records} (grp, topic, key, seq) WHERE parked > 0;

-- Records that no group reads yet.
CREATE INDEX {p:unrouted} ON {p:records} (topic, seq) WHERE grp = '' AND stage IN (0, 3);
CREATE INDEX {p:expiring} ON {p:records} (expires_at) WHERE expires_at <> 0 AND stage < 5;

-- Processed and dead records.
CREATE INDEX {p:settled} ON {p:records} (grp, topic, stage, seq) WHERE stage > 4;

-- The records of a step, and those that finish a join.
CREATE INDEX {p:step} ON {p:records} (step, seq) WHERE step IS NOT NULL;
CREATE INDEX {p:waits_for} ON {p:records} (waits_for, seq) WHERE waits_for IS NOT NULL;
CREATE INDEX {p:processed} ON {p:records} (processed_at) WHERE stage = 5;

-- Why the rows that are held under a name must wait: a name is k and a key, or p or q and the number of a pause.
-- blocker is the owner of a lease, 'waiting' for a record that waits for its retry, the name of a pause's note,
-- or '' if the next claim must look.
CREATE TABLE {p:notes} (
    grp     TEXT    NOT NULL,
    topic   TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    blocker TEXT    NOT NULL,
    head    INTEGER NOT NULL, -- the first row
    look_at INTEGER NOT NULL, -- when a claim looks in any case; 0: never
    looks   INTEGER NOT NULL, -- how many claims have found the same blocker
    PRIMARY KEY (grp, topic, name)
) WITHOUT ROWID;
CREATE INDEX {p:notes_by} ON {p:notes} (grp, blocker, topic, head);
CREATE INDEX {p:notes_look} ON {p:notes} (grp, topic, look_at) WHERE look_at <> 0;
CREATE INDEX {p:notes_paused} ON {p:notes} (grp, blocker) WHERE blocker >= 'p' AND blocker < 'r';

-- Small things with a kind, a key and a time: registrations, workers, pauses, dedup keys, joins and their steps, notes of
-- handled messages, sagas, the audit.
CREATE TABLE {p:entries} (
    kind    TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    at      INTEGER NOT NULL, -- when it ends or has its turn; 0: never
    made_at INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX {p:entries_at} ON {p:entries} (kind, at) WHERE at <> 0;

-- For people: the records with readable times. It reads all records.
CREATE VIEW {p:readable} AS
SELECT seq, id, nullif(grp, '') AS grp, iif(topic LIKE ' %', substr(topic, 5), topic) AS topic, key, message_id,
       CASE stage WHEN 4 THEN 'leased' WHEN 5 THEN 'processed' WHEN 6 THEN 'dead' ELSE 'pending' END AS status,
       CASE stage WHEN 0 THEN 'ready' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased' WHEN 5 THEN 'processed' ELSE 'dead' END AS stage,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1000000.0, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', next_at / 1000000.0, 'unixepoch') AS next_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(wake_at, 0) / 1000000.0, 'unixepoch') AS wake_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(expires_at, 0) / 1000000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(processed_at, 0) / 1000000.0, 'unixepoch') AS processed_at,
       attempts, claims, expiries, parked, owner, worker, under, processed_by, last_error,
       correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for,
       size, metadata, CAST(coalesce(payload, (SELECT p.payload FROM {p:payloads} AS p WHERE p.seq = r.seq)) AS TEXT) AS payload
FROM {p:records} AS r;

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (only_row, version) VALUES (1, 1);
