-- The clock, in microseconds since 1970. Every time of these tables is such a number, so that no setting of a session and no mode
-- of a client changes how a time is read.
CREATE FUNCTION {p:now}() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- Refuses a transaction that was to write more rows than it has written. Its COMMIT travels with the write.
CREATE FUNCTION {p:demand}(have bigint, want bigint) RETURNS bigint LANGUAGE plpgsql AS $outmill$
BEGIN
    IF have <> want THEN
        RAISE EXCEPTION 'outmill: other sessions have changed % of % records: the transaction runs again', want - have, want
            USING ERRCODE = 'OM001';
    END IF;
    RETURN have;
END $outmill$;

-- The schema's version, and the generations of the registrations and pauses, so that a process need not
-- read them for each call.
CREATE TABLE {p:meta} (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version    integer NOT NULL,
    compatible integer NOT NULL,          -- the oldest version of a program that may use the schema
    routes     bigint  NOT NULL DEFAULT 0, -- changes with the registered groups
    pauses     bigint  NOT NULL DEFAULT 0, -- changes with the pauses
    segment    integer NOT NULL DEFAULT 0, -- to which appends write the log
    rotated_at bigint  NOT NULL DEFAULT 0, -- since when
    cluster    text    NOT NULL DEFAULT '', -- the server that has given the log's transaction numbers
    past       bigint  NOT NULL DEFAULT -1 -- the last place that other servers have given
);

-- One row for each message and group. Times are microseconds since 1970; 0 is none.
CREATE TABLE {p:records} (
    seq            bigint   NOT NULL GENERATED ALWAYS AS IDENTITY, -- the order of the appends
    created_at     bigint   NOT NULL,
    wake_at        bigint   NOT NULL,                  -- stages 2 to 4: the end of the wait, the delay or the lease
    next_at        bigint   NOT NULL,                  -- due, or due again
    expires_at     bigint   NOT NULL,
    processed_at   bigint   NOT NULL DEFAULT 0,
    due_at         bigint   NOT NULL,                  -- first due
    size           bigint   NOT NULL,
    lane           bigint   GENERATED ALWAYS AS (CASE WHEN key <> '' THEN  -- the indexes of keys have this and not the texts
        hashtextextended(key, hashtextextended(topic, hashtextextended(grp, 0))) END) STORED,
    id             uuid     NOT NULL PRIMARY KEY,
    attempts       integer  NOT NULL DEFAULT 0,
    claims         integer  NOT NULL DEFAULT 0,
    expiries       integer  NOT NULL DEFAULT 0,
    stage          smallint NOT NULL,                  -- 0 ready, 1 held, 2 waiting, 3 delayed, 4 leased, 5 processed, 6 dead
    parked         boolean  NOT NULL DEFAULT false,    -- went dead with an earlier one of its key
    grp            text COLLATE "C" NOT NULL,          -- '': no group has registered for the topic yet
    topic          text COLLATE "C" NOT NULL,          -- of a fair topic behind ' 07 ', the number of its part; part 0 has none
    key            text COLLATE "C" NOT NULL,
    tenant_id      text COLLATE "C" NOT NULL,
    owner          text COLLATE "C" NOT NULL DEFAULT '', -- stage 4: the token of the worker
    worker         text COLLATE "C" NOT NULL DEFAULT '', -- stage 4: its name
    under          text COLLATE "C" NOT NULL DEFAULT '', -- stage 1: the name of the note that holds it
    processed_by   text COLLATE "C" NOT NULL DEFAULT '', -- the worker's name
    message_id     text COLLATE "C" NOT NULL,
    step           uuid,                               -- the step that the message is of joins: the id of its first record
    waits_for      uuid,                               -- the join that makes the record due when it is decided
    correlation_id text COLLATE "C",                   -- NULL: none, here and below
    causation_id   text COLLATE "C",
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    dedup_key      text COLLATE "C",
    joins          text COLLATE "C",                   -- the joins of which the message is a step: ids with commas
    last_error     text COLLATE "C",
    history        bytea,                              -- the last attempts, the newest first
    metadata       text COLLATE "C",                   -- a JSON object
    payload        bytea                               -- NULL: none. bytea, because a message may be any bytes
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- A condition such as stage - 4 = 0 is on purpose: PostgreSQL then uses the index only for the search that repeats it, so that the
-- planner has no choice, whatever its statistics say.

-- Due, and not known to be blocked: claims take these.
CREATE INDEX {i:line} ON {p:records} (grp, topic, seq) WHERE stage = 0;

-- Due, but a claim has found that they must wait: for an earlier record of the key, or a pause.
CREATE INDEX {i:held} ON {p:records} (grp, topic, seq) WHERE stage = 1;

CREATE INDEX {i:held_keyed} ON {p:records} (grp, topic, seq) WHERE stage - 1 = 0 AND under >= 'k' AND under < 'l';

CREATE INDEX {i:held_paused} ON {p:records} (grp, topic, seq) WHERE stage - 1 = 0 AND under >= 'l';

CREATE INDEX {i:held_under} ON {p:records} (hashtextextended(under, hashtextextended(topic, hashtextextended(grp, 0))), seq)
WHERE 1 - stage = 0;

-- Records of which something ends at a time: a wait, a delay or a lease.
CREATE INDEX {i:later} ON {p:records} (grp, topic, stage, wake_at, seq) WHERE wake_at <> 0;

CREATE INDEX {i:leases} ON {p:records} (wake_at) WHERE stage - 4 = 0;

-- The records of one key.
CREATE INDEX {i:by_key} ON {p:records} (lane, seq) WHERE stage < 4 AND lane IS NOT NULL;

CREATE INDEX {i:leased_key} ON {p:records} (lane, owner) WHERE stage - 5 = -1 AND lane IS NOT NULL;

CREATE INDEX {i:waiting_key} ON {p:records} (lane, seq) WHERE stage - 3 = -1 AND lane IS NOT NULL;

CREATE INDEX {i:delayed_key} ON {p:records} (lane, seq) WHERE stage - 4 = -1 AND lane IS NOT NULL;

CREATE INDEX {i:parked} ON {p:records} (lane, seq) WHERE parked;

-- Records that block claims in the order of their topic.
CREATE INDEX {i:waiting} ON {p:records} (grp, topic, seq) WHERE stage - 2 = 0;

-- Records that no group reads yet.
CREATE INDEX {i:unrouted} ON {p:records} (topic, seq) WHERE grp = '' AND stage IN (0, 3);

CREATE INDEX {i:expiring} ON {p:records} (expires_at, seq) WHERE expires_at <> 0 AND stage < 5;

-- Processed and dead records.
CREATE INDEX {i:settled} ON {p:records} (grp, topic, stage, seq) WHERE stage > 4;

CREATE INDEX {i:processed} ON {p:records} (processed_at, seq) WHERE stage - 5 = 0;

-- The records of a step, and those that finish a join.
CREATE INDEX {i:step} ON {p:records} (step, seq) WHERE step IS NOT NULL;

CREATE INDEX {i:waits_for} ON {p:records} (waits_for, seq) WHERE waits_for IS NOT NULL;

-- Why the rows that are held under a name must wait: a name is k and a key, or p or q and the number of a pause.
-- blocker is the owner of a lease, 'waiting' for a record that waits for its retry, the name of a pause's note,
-- or '' if the next claim must look.
CREATE TABLE {p:notes} (
    head    bigint  NOT NULL,          -- the first row
    look_at bigint  NOT NULL,          -- when a claim looks in any case; 0: never
    looks   integer NOT NULL,          -- how many claims have found the same blocker
    grp     text COLLATE "C" NOT NULL,
    topic   text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    blocker text COLLATE "C" NOT NULL,
    PRIMARY KEY (grp, topic, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX {i:notes_by} ON {p:notes} (hashtextextended(topic, hashtextextended(grp, 0)), blocker, head);

CREATE INDEX {i:notes_look} ON {p:notes} (grp, topic, look_at) WHERE look_at <> 0;

CREATE INDEX {i:notes_paused} ON {p:notes} (grp, blocker) WHERE blocker >= 'p' AND blocker < 'r';

-- Small things with a kind, a key and a time: registrations, workers, pauses, dedup keys, joins and their steps, notes of
-- handled messages, sagas, the audit.
CREATE TABLE {p:entries} (
    at      bigint NOT NULL,           -- when it ends or has its turn; 0: never
    made_at bigint NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

CREATE INDEX {i:entries_at} ON {p:entries} (kind, at, key) WHERE at <> 0;

-- Notes that a message is handled, in a caller's transaction: 1 is a new note, 0 one that exists, -1 a lease that was lost, and -2 another
-- transaction that has the note and does not end in time. The block undoes what it has done where it ends by an exception, and gives
-- the caller's settings back in any case. The lease is read after the note, which may have waited.
CREATE FUNCTION {p:put_note}(of_kind text, of_key text, of_value text, keep bigint, wait text, lease uuid, of_owner text, claim integer) RETURNS integer
LANGUAGE plpgsql AS $outmill$
DECLARE
    timeout text := current_setting('lock_timeout');
    scans text := current_setting('enable_seqscan');
    written bigint;
BEGIN
    PERFORM set_config('lock_timeout', wait, true), set_config('enable_seqscan', 'off', true);
    INSERT INTO {p:entries} (kind, key, value, made_at, at) SELECT of_kind, of_key, of_value, n.now, n.now + keep FROM (SELECT {p:now}() AS now) AS n
    ON CONFLICT (kind, key) DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF lease IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {p:records} AS r
        WHERE r.id = lease AND r.stage = 4 AND r.owner = of_owner AND r.claims = claim) THEN
        RAISE EXCEPTION USING ERRCODE = 'OM002';
    END IF;
    PERFORM set_config('lock_timeout', timeout, true), set_config('enable_seqscan', scans, true);
    RETURN written;
EXCEPTION
    WHEN lock_not_available THEN RETURN -2;
    WHEN SQLSTATE 'OM002' THEN RETURN -1;
END $outmill$;

-- For people: the records with readable times. It reads all records.
CREATE VIEW {p:readable} AS
SELECT seq, id, nullif(grp, '') AS grp, CASE WHEN topic LIKE ' %' THEN substr(topic, 5) ELSE topic END AS topic, key, message_id,
       CASE stage WHEN 4 THEN 'leased' WHEN 5 THEN 'processed' WHEN 6 THEN 'dead' ELSE 'pending' END AS status,
       CASE stage WHEN 0 THEN 'ready' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased'
           WHEN 5 THEN 'processed' ELSE 'dead' END AS stage,
       to_timestamp(created_at / 1000000.0) AS created_at, to_timestamp(due_at / 1000000.0) AS due_at,
       to_timestamp(next_at / 1000000.0) AS next_at, to_timestamp(nullif(wake_at, 0) / 1000000.0) AS wake_at,
       to_timestamp(nullif(expires_at, 0) / 1000000.0) AS expires_at, to_timestamp(nullif(processed_at, 0) / 1000000.0) AS processed_at,
       attempts, claims, expiries, parked, owner, worker, under, processed_by, last_error,
       correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for, size, metadata, payload
FROM {p:records};

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (version, compatible) VALUES (1, 1);
