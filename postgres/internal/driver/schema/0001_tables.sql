-- Rights. These lines are all that a program needs; names of roles are examples.
-- GRANT USAGE ON SCHEMA {s:} TO publisher, worker, keeper, reader, foreign_program
-- Who publishes. Of records it can read what group and stage there are, and nothing else:
-- GRANT SELECT ON {p:meta}, {p:notes} TO publisher
-- GRANT SELECT, INSERT, UPDATE ON {p:entries} TO publisher
-- GRANT INSERT, SELECT (grp, stage) ON {p:records} TO publisher
-- Who subscribes or forwards, and operates:
-- GRANT SELECT, UPDATE ON {p:meta} TO worker
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {p:notes}, {p:entries} TO worker
-- GRANT SELECT, UPDATE, DELETE ON {p:records} TO worker
-- Who looks on:
-- GRANT SELECT ON {p:meta}, {p:notes}, {p:records}, {p:entries}, {p:readable} TO reader
-- Who appends without a store, in any language, and does nothing else:
-- GRANT EXECUTE ON FUNCTION {p:append} TO foreign_program
-- All other functions are everybody's. Where that was revoked:
-- GRANT EXECUTE ON FUNCTION {p:now} TO publisher, worker, reader
-- GRANT EXECUTE ON FUNCTION {p:demand}, {p:put_note} TO worker
-- GRANT EXECUTE ON FUNCTION {p:logged}, {p:as_text} TO reader
--
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
    rotated_at bigint  NOT NULL DEFAULT 0 -- since when
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
-- the caller's settings back in any case. The lease is read after the note, which may have waited. It may be one of the log: that of the row
-- with this ordinal in the batch of the chain. It runs with the caller's search path, because to set another one takes longer than the
-- note. So it says where its functions, operators and types are, as log_in_work does.
CREATE FUNCTION {p:put_note}(of_kind text, of_key text, of_value text, keep bigint, wait text, lease uuid, of_owner text, claim integer,
    of_topic text, of_chain bigint, of_n bigint, of_token bigint, of_ordinal integer) RETURNS integer LANGUAGE plpgsql AS $outmill$
DECLARE
    timeout pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    scans pg_catalog.text := pg_catalog.current_setting('enable_seqscan');
    written bigint;
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', wait, true), pg_catalog.set_config('enable_seqscan', 'off', true);
    INSERT INTO {p:entries} (kind, key, value, made_at, at) SELECT of_kind, of_key, of_value, n.now, n.now OPERATOR(pg_catalog.+) keep FROM (SELECT {p:now}() AS now) AS n
    ON CONFLICT (kind, key) DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF lease IS NULL OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.id OPERATOR(pg_catalog.=) lease AND r.stage OPERATOR(pg_catalog.=) 4
            AND r.owner OPERATOR(pg_catalog.=) of_owner AND r.claims OPERATOR(pg_catalog.=) claim) THEN
        NULL;
    ELSIF of_n IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'OM002';
    ELSIF NOT EXISTS (SELECT 1 FROM {p:log_in_work}(of_topic, of_chain) AS b
        WHERE b.n OPERATOR(pg_catalog.=) of_n AND b.token OPERATOR(pg_catalog.=) of_token
            AND (b.done IS NULL OR pg_catalog.get_bit(b.done, of_ordinal) OPERATOR(pg_catalog.=) 0)) THEN
        RAISE EXCEPTION USING ERRCODE = 'OM002';
    END IF;
    PERFORM pg_catalog.set_config('lock_timeout', timeout, true), pg_catalog.set_config('enable_seqscan', scans, true);
    RETURN written;
EXCEPTION
    WHEN lock_not_available THEN RETURN -2;
    WHEN SQLSTATE 'OM002' THEN RETURN -1;
END $outmill$;

-- Whether the topic $2 is one that the pattern $1 of a registration selects: * is any run of characters, and \* and \\ are * and \ themselves.
CREATE FUNCTION {p:topic_matches}(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT $2 COLLATE "C" LIKE coalesce((SELECT string_agg(CASE WHEN p[1] = '*' THEN '%' WHEN p[1] = E'\\*' THEN '*'
        WHEN p[1] IN (E'\\', E'\\\\', '%', '_') THEN E'\\' || right(p[1], 1) ELSE p[1] END, '' ORDER BY n)
        FROM regexp_matches($1 COLLATE "C", E'\\\\[\\\\*]|.', 'g') WITH ORDINALITY AS t (p, n)), '') ESCAPE E'\\'
$outmill$;

-- Whether the topic $2 is one that a registration selects.
CREATE FUNCTION {p:selects}(jsonb, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT (coalesce(jsonb_array_length(nullif($1 -> 'Include', 'null')), 0) = 0
            OR EXISTS (SELECT 1 FROM jsonb_array_elements_text(nullif($1 -> 'Include', 'null')) AS p WHERE {p:topic_matches}(p, $2)))
        AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(nullif($1 -> 'Exclude', 'null')) AS p WHERE {p:topic_matches}(p, $2))
$outmill$;

-- The groups that read the topic $1. The key of a registration begins with the length of the group's name in bytes, and the name.
CREATE FUNCTION {p:readers_of}(text) RETURNS SETOF text LANGUAGE sql STABLE AS $outmill$
    SELECT DISTINCT convert_from(substr(convert_to(substr(e.key, strpos(e.key, ':') + 1), 'UTF8'), 1, split_part(e.key, ':', 1)::integer), 'UTF8') COLLATE "C"
    FROM {p:entries} AS e WHERE e.kind = 'registration' AND {p:selects}(e.value::jsonb, $1)
$outmill$;

-- The name of the line that has the records of the topic and tenant: see storekit.PartOf and storekit.LineName. It is the topic, unless
-- that is fair.
CREATE FUNCTION {p:line_name}(topic text, tenant text) RETURNS text LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    text_of bytea := convert_to(topic, 'UTF8') || E'\\x00'::bytea || convert_to(tenant, 'UTF8');
    hash numeric := 14695981039346656037;
    part integer;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {p:entries} AS e CROSS JOIN LATERAL jsonb_array_elements_text(nullif(e.value::jsonb, 'null')) AS p
        WHERE e.kind = 'setting' AND e.key = 'fair topics' AND {p:topic_matches}(p, topic)) THEN
        RETURN topic;
    END IF;
    FOR i IN 0 .. length(text_of) - 1 LOOP
        hash := (hash - hash % 256 + ((hash % 256)::integer # get_byte(text_of, i))) * 1099511628211 % 18446744073709551616;
    END LOOP;
    part := (hash % 64)::integer # (div(hash, 4294967296) % 64)::integer;
    RETURN CASE part WHEN 0 THEN topic ELSE format(' %s %s', lpad(part::text, 2, '0'), topic) END;
END $outmill$;

-- A time-ordered id (UUIDv7), as the programs make them.
CREATE FUNCTION {p:new_id}() RETURNS uuid LANGUAGE sql VOLATILE AS $outmill$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substr(int8send({p:now}() / 1000), 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$outmill$;

-- The id of the record of the group $2, which is not the first one, of the message $1: see storekit.CopyID.
CREATE FUNCTION {p:copy_id}(uuid, text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT encode(substr(uuid_send($1), 1, 8) || int8send(('x' || encode(substr(uuid_send($1), 9), 'hex'))::bit(64)::bigint
        # (('x' || encode(substr(sha256(convert_to($2, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint & 4611686018427387903)), 'hex')::uuid
$outmill$;

-- Why the text is not one that every store takes; NULL if it is. most is in characters of UTF-16. A name has no blanks around it.
CREATE FUNCTION {p:text_fault}(value text, most integer, name boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT CASE WHEN octet_length(value) > most AND char_length(value) + wide > most THEN 'has more than ' || most || ' characters'
        WHEN name AND value <> btrim(value, E' \t\n\u000b\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000')
            THEN 'begins or ends with a blank' END
    FROM (SELECT char_length(value) - char_length(regexp_replace(value, E'[\\U00010000-\\U0010ffff]', '', 'g')) AS wide) AS w
$outmill$;

-- Appends messages for programs without a store, in any language, in the caller's transaction, and checks them as a store does. Each list
-- is NULL or has an item for each topic, which may be NULL too. metadatas are JSON objects of texts, delays and times_to_live
-- microseconds. It returns the number of messages whose dedup key was not seen before. It has the rights of its owner, so its callers
-- need no others. It makes the ids itself.
CREATE FUNCTION {p:append}(topics text[], payloads bytea[], keys text[] DEFAULT NULL, metadatas text[] DEFAULT NULL, message_ids text[] DEFAULT NULL,
    dedup_keys text[] DEFAULT NULL, tenant_ids text[] DEFAULT NULL, correlation_ids text[] DEFAULT NULL, causation_ids text[] DEFAULT NULL,
    traceparents text[] DEFAULT NULL, tracestates text[] DEFAULT NULL, due_ats timestamptz[] DEFAULT NULL, delays bigint[] DEFAULT NULL,
    expire_ats timestamptz[] DEFAULT NULL, times_to_live bigint[] DEFAULT NULL, dedup_window bigint DEFAULT 86400000000, notify boolean DEFAULT true)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $outmill$
DECLARE
    fault    text;
    appended bigint;
    woken    text;
    moment   bigint := {p:now}();
BEGIN
    SELECT v.list INTO fault FROM (VALUES ('payloads', cardinality(payloads)), ('keys', cardinality(keys)), ('metadatas', cardinality(metadatas)),
        ('message_ids', cardinality(message_ids)), ('dedup_keys', cardinality(dedup_keys)), ('tenant_ids', cardinality(tenant_ids)),
        ('correlation_ids', cardinality(correlation_ids)), ('causation_ids', cardinality(causation_ids)), ('traceparents', cardinality(traceparents)),
        ('tracestates', cardinality(tracestates)), ('due_ats', cardinality(due_ats)), ('delays', cardinality(delays)),
        ('expire_ats', cardinality(expire_ats)), ('times_to_live', cardinality(times_to_live))) AS v (list, items)
    WHERE v.items <> coalesce(cardinality(topics), 0) LIMIT 1;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'outmill: % and topics differ in length: want NULL, or an item for each topic', fault USING ERRCODE = '22023';
    END IF;
    SELECT format('message %s: %s %s', u.nth, c.field, c.fault) INTO fault
    FROM unnest(topics, keys, metadatas, message_ids, dedup_keys, tenant_ids, correlation_ids, causation_ids, traceparents, tracestates,
        due_ats, delays, expire_ats, times_to_live) WITH ORDINALITY
        AS u (topic, key, metadata, message_id, dedup_key, tenant_id, correlation_id, causation_id, traceparent, tracestate, due, delay, expires, ttl, nth)
    CROSS JOIN LATERAL (VALUES ('topic', CASE WHEN coalesce(u.topic, '') = '' THEN 'is empty' ELSE {p:text_fault}(u.topic, 255, true) END),
        ('key', {p:text_fault}(u.key, 255, true)), ('dedup key', {p:text_fault}(u.dedup_key, 255, true)),
        ('message id', {p:text_fault}(u.message_id, 255, false)), ('tenant id', {p:text_fault}(u.tenant_id, 255, false)),
        ('correlation id', {p:text_fault}(u.correlation_id, 255, false)), ('causation id', {p:text_fault}(u.causation_id, 255, false)),
        ('traceparent', {p:text_fault}(u.traceparent, 255, false)), ('tracestate', {p:text_fault}(u.tracestate, 1020, false)),
        ('metadata', CASE WHEN jsonb_typeof(u.metadata::jsonb) <> 'object'
            OR jsonb_path_exists(u.metadata::jsonb, '$.* ? (@.type() != "string")') THEN 'is not a JSON object of texts'
            WHEN octet_length(u.metadata) > 4194304 THEN 'has more than 4 MiB' END),
        ('due at', CASE WHEN u.due < '0001-01-01 UTC' OR u.due >= '10000-01-01 UTC' THEN 'is not in the years 1 to 9999' END),
        ('expires at', CASE WHEN u.expires < '0001-01-01 UTC' OR u.expires >= '10000-01-01 UTC' THEN 'is not in the years 1 to 9999' END),
        ('delay', CASE WHEN u.delay NOT BETWEEN 0 AND 9223372036854775 THEN 'is not from 0 to 292 years' END),
        ('time to live', CASE WHEN u.ttl NOT BETWEEN 0 AND 9223372036854775 THEN 'is not from 0 to 292 years' END)) AS c (field, fault)
    WHERE c.fault IS NOT NULL ORDER BY u.nth LIMIT 1;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'outmill: %', fault USING ERRCODE = '22023';
    END IF;
    WITH given AS MATERIALIZED (
        SELECT u.nth, u.topic, coalesce(u.key, '') AS key, u.payload, nullif(u.metadata::jsonb, '{}') AS metadata, coalesce(u.tenant_id, '') AS tenant_id,
            nullif(u.correlation_id, '') AS correlation_id, nullif(u.causation_id, '') AS causation_id, nullif(u.traceparent, '') AS traceparent,
            nullif(u.tracestate, '') AS tracestate, nullif(u.dedup_key, '') AS dedup_key, i.id, coalesce(nullif(u.message_id, ''), i.id::text) AS message_id,
            CASE WHEN u.delay > 0 THEN moment + u.delay ELSE coalesce((extract(epoch FROM u.due) * 1000000)::bigint, moment) END AS next,
            CASE WHEN u.ttl > 0 THEN moment + u.ttl ELSE coalesce((extract(epoch FROM u.expires) * 1000000)::bigint, 0) END AS expires,
            octet_length(u.topic)::text || ':' || u.topic || u.dedup_key AS entry,
            row_number() OVER (PARTITION BY u.topic, u.dedup_key ORDER BY u.nth) AS same
        FROM unnest(topics, keys, payloads, metadatas, message_ids, dedup_keys, tenant_ids, correlation_ids, causation_ids, traceparents, tracestates,
            due_ats, delays, expire_ats, times_to_live) WITH ORDINALITY AS u (topic, key, payload, metadata, message_id, dedup_key, tenant_id,
            correlation_id, causation_id, traceparent, tracestate, due, delay, expires, ttl, nth)
        CROSS JOIN LATERAL (SELECT {p:new_id}() AS id WHERE u.nth > 0) AS i),
    free AS (
        INSERT INTO {p:entries} AS e (kind, key, value, made_at, at)
        SELECT 'dedup', g.entry, g.id::text, 0, moment + dedup_window FROM given AS g WHERE g.dedup_key IS NOT NULL AND g.same = 1 ORDER BY g.entry COLLATE "C"
        ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, at = excluded.at WHERE e.at <= {p:now}()
        RETURNING e.key),
    kept AS MATERIALIZED (
        SELECT g.* FROM given AS g WHERE g.dedup_key IS NULL OR g.same = 1 AND g.entry COLLATE "C" IN (SELECT f.key FROM free AS f)),
    readers AS MATERIALIZED (
        SELECT t.topic, coalesce(r.grp, '') AS grp, row_number() OVER (PARTITION BY t.topic ORDER BY r.grp COLLATE "C") AS copy
        FROM (SELECT DISTINCT k.topic FROM kept AS k) AS t LEFT JOIN LATERAL {p:readers_of}(t.topic) AS r (grp) ON true),
    lines AS MATERIALIZED (
        SELECT t.topic, t.tenant_id, {p:line_name}(t.topic, t.tenant_id) AS line FROM (SELECT DISTINCT k.topic, k.tenant_id FROM kept AS k) AS t),
    inserted AS (
        INSERT INTO {p:records} (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at,
            message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
        SELECT CASE r.copy WHEN 1 THEN k.id ELSE {p:copy_id}(k.id, r.grp) END, r.grp, l.line, k.key, k.tenant_id, moment,
            coalesce(octet_length(k.payload), 0) + octet_length(k.message_id || k.topic || k.key || k.tenant_id || coalesce(k.correlation_id, '')
                || coalesce(k.causation_id, '') || coalesce(k.traceparent, '') || coalesce(k.tracestate, '') || coalesce(k.dedup_key, ''))
                + coalesce((SELECT sum(octet_length(m.key) + octet_length(m.value)) FROM jsonb_each_text(k.metadata) AS m), 0),
            CASE WHEN k.next > moment THEN 3 ELSE 0 END, CASE WHEN k.next > moment THEN k.next ELSE 0 END, k.next, k.expires, greatest(k.next, moment),
            k.message_id, k.correlation_id, k.causation_id, k.traceparent, k.tracestate, k.dedup_key, k.metadata::text, k.payload
        FROM kept AS k JOIN readers AS r ON r.topic = k.topic JOIN lines AS l ON l.topic = k.topic AND l.tenant_id = k.tenant_id
        ORDER BY k.nth, r.copy)
    SELECT count(*), json_agg(DISTINCT k.topic)::text INTO appended, woken FROM kept AS k;
    -- With a full queue the commit would fail.
    IF notify AND appended > 0 AND pg_notification_queue_usage() < 0.5 THEN
        -- PostgreSQL takes 8,000 bytes. A notification without topics stands for any topic.
        PERFORM pg_notify({c:notify}, CASE WHEN octet_length(woken) <= 7900 THEN woken ELSE '' END);
    END IF;
    RETURN appended;
END $outmill$;

REVOKE EXECUTE ON FUNCTION {p:append} FROM PUBLIC;

-- A payload as text, if it is one: valid UTF-8 without a zero byte. Of others it shows the first bytes in hexadecimal.
CREATE FUNCTION {p:as_text}(payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $outmill$
BEGIN
    RETURN pg_catalog.convert_from(payload, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN E'\\x' OPERATOR(pg_catalog.||) pg_catalog.encode(pg_catalog.substr(payload, 1, 1000000), 'hex');
END $outmill$;

-- What the log has, as records. Without a log it is nothing; with one the function is another: see log_readable.sql.
CREATE FUNCTION {p:logged}() RETURNS SETOF {p:records} LANGUAGE sql STABLE AS $outmill$ SELECT r.* FROM {p:records} AS r WHERE false $outmill$;

-- For people: the records with readable times, and payloads as text, so that payload::json works for those that are JSON. It reads all
-- records.
CREATE VIEW {p:readable} AS
SELECT seq, id, nullif(grp, '') AS grp, CASE WHEN topic LIKE ' %' THEN substr(topic, 5) ELSE topic END AS topic, key, message_id,
       CASE stage WHEN 4 THEN 'leased' WHEN 5 THEN 'processed' WHEN 6 THEN 'dead' ELSE 'pending' END AS status,
       CASE stage WHEN 0 THEN 'ready' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased'
           WHEN 5 THEN 'processed' ELSE 'dead' END AS stage,
       to_timestamp(created_at / 1000000.0) AS created_at, to_timestamp(due_at / 1000000.0) AS due_at,
       to_timestamp(next_at / 1000000.0) AS next_at, to_timestamp(nullif(wake_at, 0) / 1000000.0) AS wake_at,
       to_timestamp(nullif(expires_at, 0) / 1000000.0) AS expires_at, to_timestamp(nullif(processed_at, 0) / 1000000.0) AS processed_at,
       attempts, claims, expiries, parked, owner, worker, under, processed_by, last_error,
       correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for, size, metadata, {p:as_text}(payload) AS payload
FROM (SELECT * FROM {p:records} UNION ALL SELECT * FROM {p:logged}()) AS r;

-- Each file of the schema ends with its version.
INSERT INTO {p:meta} (version, compatible) VALUES (1, 1);
