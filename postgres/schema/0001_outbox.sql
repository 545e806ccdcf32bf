-- The schema's version, the oldest program version that supports it, a counter that changes
-- with the registered groups, so that an append need not read them each time, and one that
-- changes with the pauses.
CREATE TABLE {p:meta} (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version    integer NOT NULL,
    compatible integer NOT NULL,
    generation bigint  NOT NULL DEFAULT 0,
    pauses     bigint  NOT NULL DEFAULT 0
);

-- One row for each message and group. Text is compared byte by byte, whatever
-- the database's collation.
CREATE TABLE {p:records} (
    seq            bigint      GENERATED ALWAYS AS IDENTITY, -- the order of the appends
    id             uuid        NOT NULL PRIMARY KEY,
    available_at   timestamptz,                              -- stages 2 to 4: the end of the wait, the delay or the lease
    due_at         timestamptz NOT NULL,                     -- first due
    next_at        timestamptz NOT NULL,                     -- due, or due again
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz,
    processed_at   timestamptz,
    owner          uuid,
    size           integer     NOT NULL,
    attempts       integer     NOT NULL DEFAULT 0,
    claims         integer     NOT NULL DEFAULT 0,
    expiries       integer     NOT NULL DEFAULT 0,
    stage          smallint    NOT NULL,                     -- -1 aside, 0 in line, 1 held, 2 waiting, 3 delayed, 4 leased, 5 expired, 6 processed, 7 dead
    paused_by      bigint,                                   -- stage -1: the number of the pause
    parked         boolean     NOT NULL DEFAULT false,       -- went dead with Park
    grp            text COLLATE "C",                         -- NULL: no group has registered for the topic yet
    topic          text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL DEFAULT '',
    message_id     text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C",                         -- NULL: none, here and below
    causation_id   text COLLATE "C",
    tenant_id      text COLLATE "C",
    turn           text COLLATE "C",                         -- '.' and the tenant, if claims serve the tenants of the topic in turn
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    dedup_key      text COLLATE "C",
    last_error     text COLLATE "C",
    processed_by   text COLLATE "C",                         -- the worker's name
    step           uuid,                                     -- the step that the message is of joins: the id of its first record
    joins          uuid[],                                   -- the joins of which the message is a step
    waits_for      uuid,                                     -- the join that this record is to finish
    metadata       jsonb,
    payload        bytea                                     -- NULL: a nil payload
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000);

-- Due, and not known to be blocked: claims take these. num_nulls(turn) is 1 for a record without
-- a turn and 0 for one with a turn; each kind is in the order of the appends. The number costs an index entry
-- nothing, because seq begins at a multiple of 8 bytes.
CREATE INDEX {i:line} ON {p:records} (grp, topic, num_nulls(turn), seq) WHERE stage = 0;

-- Due, but an earlier record of the key blocked them at the last ordered claim.
CREATE INDEX {i:held} ON {p:records} (grp, topic, seq) WHERE stage = 1;

-- With missing or old statistics the planner chooses badly between indexes. So each partial
-- index spells its condition in its own way (stage - 1 = 0, …), and only the queries for which
-- the index is made repeat it. A hash of topic and key keeps the indexes small.
CREATE INDEX {i:held_key} ON {p:records} (hashtextextended(key, hashtextextended(topic, 0)), seq) WHERE stage - 1 = 0;

-- Ready records that have a turn, by tenant and by key.
CREATE INDEX {i:turns} ON {p:records} (grp, topic, turn, seq) WHERE stage * 2 = 0 AND turn IS NOT NULL;

CREATE INDEX {i:turn_key} ON {p:records} (hashtextextended(key, hashtextextended(topic, hashtextextended(grp, 0))), seq)
    WHERE stage * 3 = 0 AND turn IS NOT NULL AND key <> '';

-- Paused records that a claim has set aside. The second index has those that an ordered claim
-- by key brings back.
CREATE INDEX {i:aside} ON {p:records} (grp, topic, paused_by, seq) WHERE stage = -1;

CREATE INDEX {i:aside_keyed} ON {p:records} (grp, topic, seq) WHERE stage + 1 = 0 AND key <> '';

-- Records that become due at a time.
CREATE INDEX {i:later} ON {p:records} (grp, topic, stage, available_at, seq) WHERE stage IN (2, 3);

-- Records that become claimable again when their lease ends. The index is narrow, because each
-- claim writes to it for each record.
CREATE INDEX {i:leased} ON {p:records} (grp, topic, available_at) WHERE stage = 4;

-- The pending records of one key.
CREATE INDEX {i:by_key} ON {p:records} (hashtextextended(key, hashtextextended(topic, 0))) WHERE key <> '' AND stage - 6 < 0 AND stage - 4 <> 0;

-- Records that block ordered claims.
CREATE INDEX {i:waiting} ON {p:records} (hashtextextended(topic, 0), seq) WHERE stage - 2 = 0;

CREATE INDEX {i:waiting_key} ON {p:records} (hashtextextended(key, hashtextextended(topic, 0)), seq) WHERE stage - 3 = -1 AND key <> '';

CREATE INDEX {i:leased_key} ON {p:records} (hashtextextended(key, hashtextextended(topic, 0))) WHERE stage - 4 = 0 AND key <> '';

CREATE INDEX {i:parked} ON {p:records} (hashtextextended(key, hashtextextended(topic, 0)), seq) WHERE parked;

CREATE INDEX {i:expiring} ON {p:records} (expires_at) WHERE expires_at IS NOT NULL AND stage < 6;

-- Expired records that a claim has met. They wait for the janitor.
CREATE INDEX {i:expired} ON {p:records} (grp, topic, seq) WHERE stage = 5;

-- Processed and dead records.
CREATE INDEX {i:settled} ON {p:records} (grp, topic, stage, id) WHERE stage >= 6;

CREATE INDEX {i:processed} ON {p:records} (processed_at) WHERE processed_at IS NOT NULL;

-- The steps of joins, and the records that finish a join.
CREATE INDEX {i:step} ON {p:records} (step) WHERE step IS NOT NULL;

CREATE INDEX {i:waits_for} ON {p:records} (waits_for) WHERE waits_for IS NOT NULL;

-- One row for each key that has held records. blocked_by is the owner whose lease blocked the
-- key, 'waiting' for a record that waits for its retry, 'turn' for a ready record that is not held,
-- 'paused' for a pause (paused_by is its
-- number), or empty if something has changed since. If it is empty, or the time until has come,
-- or the pause is gone, a claim checks the key again. until is before the end of the lease or
-- the wait, at first soon and then later and later (looks), because the block may end while a
-- claim notes it. head is the first of the held records.
CREATE TABLE {p:lanes} (
    grp        text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    blocked_by text COLLATE "C" NOT NULL,
    until      timestamptz,
    looks      smallint NOT NULL DEFAULT 0,
    head       bigint   NOT NULL,
    paused_by  bigint,
    PRIMARY KEY (grp, topic, key)
);

CREATE INDEX {i:lanes_blocked} ON {p:lanes} (hashtextextended(topic, hashtextextended(grp, 0)), blocked_by, head);

CREATE INDEX {i:lanes_until} ON {p:lanes} (hashtextextended(grp, hashtextextended(topic, 0)), until) WHERE until IS NOT NULL;

CREATE INDEX {i:lanes_paused} ON {p:lanes} (hashtextextended(grp, 1), topic, paused_by) WHERE paused_by IS NOT NULL;

-- What is paused: the records that match all fields that are not empty. number is meta.pauses
-- at the insert, and is never used again.
CREATE TABLE {p:pauses} (
    grp       text COLLATE "C" NOT NULL,
    topic     text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    number    bigint           NOT NULL,
    paused_at timestamptz      NOT NULL,
    paused_by text COLLATE "C" NOT NULL,                     -- who made the pause
    reason    text COLLATE "C" NOT NULL,
    PRIMARY KEY (grp, topic, key, tenant_id)
);

-- The topics of each group, in the order of the registrations. selection is a digest of include
-- and exclude, because these may be longer than an index takes.
CREATE TABLE {p:groups} (
    grp        text COLLATE "C" NOT NULL,
    selection  text COLLATE "C" NOT NULL,
    place      bigint GENERATED ALWAYS AS IDENTITY,
    include    text[]      NOT NULL,
    exclude    text[]      NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz,                                  -- NULL: never
    holding    boolean     NOT NULL DEFAULT false,           -- it does not take what waits for a first group
    PRIMARY KEY (grp, selection)
);

CREATE INDEX {i:groups_expiring} ON {p:groups} (expires_at) WHERE expires_at IS NOT NULL;

-- The workers that registered the groups.
CREATE TABLE {p:workers} (
    grp      text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    seen_at  timestamptz      NOT NULL,
    problems text,                                           -- JSON: why it passes on nothing, by topic; NULL: no problem
    PRIMARY KEY (grp, name)
);

-- Groups with an ended registration, until their undelivered records of topics that they no
-- longer read are deleted. The janitor checks them at look_at.
CREATE TABLE {p:endings} (
    grp      text COLLATE "C" NOT NULL PRIMARY KEY,
    ended_at timestamptz      NOT NULL,
    look_at  timestamptz      NOT NULL,
    empty    boolean          NOT NULL DEFAULT false,        -- the group had no records when it was looked at
    others   text                                            -- the group is being dropped: JSON of the selections that the other groups had then
);

CREATE INDEX {i:endings_look} ON {p:endings} (look_at);

-- What operators changed, one row for each command. details is a JSON object: the filter, ids,
-- and the records before and after.
CREATE TABLE {p:audit} (
    number     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    changed_at timestamptz NOT NULL,
    actor      text        NOT NULL, -- who made the call; empty: nobody named
    action     text        NOT NULL, -- requeue, delete, edit, skip
    count      bigint      NOT NULL, -- how many records changed
    details    text        NOT NULL,
    command    uuid        NOT NULL UNIQUE -- the transactions of a command write one row
);

CREATE TABLE {p:dedup} (
    topic      text COLLATE "C" NOT NULL,
    dedup_key  text COLLATE "C" NOT NULL,
    expires_at timestamptz      NOT NULL,
    first_id   uuid             NOT NULL,                    -- the record that took the key
    PRIMARY KEY (topic, dedup_key)
);

CREATE INDEX {i:dedup_expires} ON {p:dedup} (expires_at);

-- One row for each message that a consumer has handled. record is the id of a record of this
-- schema, which the row outlives.
CREATE TABLE {p:inbox} (
    consumer  text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    delete_at timestamptz      NOT NULL,
    record    uuid,                                          -- NULL: the message came from elsewhere
    PRIMARY KEY (consumer, key)
);

CREATE INDEX {i:inbox_delete} ON {p:inbox} (delete_at);

-- expected_steps is NULL until the number is known.
CREATE TABLE {p:joins} (
    id                   uuid        NOT NULL PRIMARY KEY,
    grouping_key         text COLLATE "C",                            -- NULL: none
    status               text COLLATE "C" NOT NULL DEFAULT 'pending', -- pending, completed, failed, cancelled
    policy               text COLLATE "C" NOT NULL,                   -- all, any, quorum
    quorum               integer     NOT NULL,
    expected_steps       integer,
    completed_steps      integer     NOT NULL DEFAULT 0,
    failed_steps         integer     NOT NULL DEFAULT 0,
    deadline             timestamptz,
    complete_at_deadline boolean     NOT NULL,
    reason               text COLLATE "C",
    created_at           timestamptz NOT NULL,
    updated_at           timestamptz NOT NULL,
    finished_at          timestamptz,
    metadata             jsonb                                        -- NULL: none
) WITH (fillfactor = 70);

CREATE INDEX {i:joins_grouping} ON {p:joins} (coalesce(grouping_key, ''), status, id);

CREATE INDEX {i:joins_status} ON {p:joins} (status, id);

CREATE INDEX {i:joins_finished} ON {p:joins} (finished_at) WHERE finished_at IS NOT NULL;

-- The steps of joins. A step is one message: open is the number of its unsettled records, acked
-- and dead the numbers of the others. A change of a member locks the row of its join, except an
-- insert together with its message.
CREATE TABLE {p:join_members} (
    join_id  uuid    NOT NULL,
    step     uuid    NOT NULL,
    status   text COLLATE "C" NOT NULL DEFAULT 'pending', -- pending, completed, failed
    open     integer NOT NULL,
    acked    integer NOT NULL DEFAULT 0,
    dead     integer NOT NULL DEFAULT 0,
    reported boolean NOT NULL DEFAULT false,              -- later changes of the message's records no longer count
    PRIMARY KEY (join_id, step)
) WITH (fillfactor = 70);

CREATE INDEX {i:join_members_step} ON {p:join_members} (step);

-- Returns $1 if it is $2 or more, and fails otherwise. It is for a statement that is sent
-- together with a COMMIT: if it fails, nothing is committed.
CREATE FUNCTION {p:demand}(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $outmill$
BEGIN
    IF $1 OPERATOR(pg_catalog.<) $2 THEN
        RAISE EXCEPTION 'outmill: a transaction found % rows instead of %, because another one was faster; it is rolled back', $1, $2
            USING ERRCODE = 'OM001';
    END IF;
    RETURN $1;
END
$outmill$;

-- The states of sagas. A change compares the version.
CREATE TABLE {p:sagas} (
    id          uuid        NOT NULL PRIMARY KEY,
    type        text COLLATE "C" NOT NULL,
    correlation text COLLATE "C" NOT NULL,
    version     bigint      NOT NULL,
    state       json        NOT NULL,               -- an object; json stores texts that jsonb refuses, such as NUL
    finished    boolean     NOT NULL DEFAULT false, -- the saga has ended, at updated_at
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    delete_at   timestamptz,                        -- when the janitor deletes a finished saga; NULL is never
    UNIQUE (type, correlation)
) WITH (fillfactor = 70);

CREATE INDEX {i:sagas_finished} ON {p:sagas} (type, updated_at) WHERE finished;

CREATE INDEX {i:sagas_delete} ON {p:sagas} (delete_at) WHERE delete_at IS NOT NULL;

-- Counts changes of records that are steps of joins. It is the last statement of the
-- transaction that changes them. Earlier statements have noted the changes in the setting
-- outmill.steps, which ends with the transaction: a letter for each (a acked, d dead, r
-- requeued, g gone with its group), the step, and a comma. Joins are locked in the order of
-- their ids, and members change only under that lock. It returns the pending joins that were
-- counted.
CREATE FUNCTION {p:count_steps}() RETURNS SETOF uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $outmill$
DECLARE
    noted text[] := string_to_array(rtrim(coalesce(current_setting('outmill.steps', true), ''), ','), ',');
    held uuid[];
BEGIN
    IF cardinality(noted) = 0 OR noted[1] = '' THEN
        RETURN;
    END IF;
    PERFORM set_config('outmill.steps', '', true);
    held := ARRAY(SELECT j.id FROM {p:joins} AS j WHERE j.status IS NOT DISTINCT FROM 'pending' AND j.id = ANY (ARRAY(
        SELECT m.join_id FROM unnest(noted) AS n CROSS JOIN LATERAL (SELECT join_id FROM {p:join_members} WHERE step = substr(n, 2)::uuid OFFSET 0) AS m))
        ORDER BY j.id FOR NO KEY UPDATE OF j);
    IF cardinality(held) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY WITH changed AS (
        SELECT substr(n, 2)::uuid AS step, sum(CASE left(n, 1) WHEN 'r' THEN 1 ELSE -1 END)::integer AS open,
            (count(*) FILTER (WHERE left(n, 1) = 'a'))::integer AS acked,
            sum(CASE left(n, 1) WHEN 'd' THEN 1 WHEN 'r' THEN -1 ELSE 0 END)::integer AS dead
        FROM unnest(noted) AS n GROUP BY 1),
    old AS (SELECT m.ctid AS tid, m.status, m.open + c.open AS open, m.acked + c.acked AS acked, m.dead + c.dead AS dead
        FROM changed AS c CROSS JOIN LATERAL (SELECT ctid, * FROM {p:join_members} WHERE step = c.step OFFSET 0) AS m WHERE m.join_id = ANY (held)),
    moved AS (UPDATE {p:join_members} AS m SET open = o.open, acked = o.acked, dead = o.dead, status = CASE
            WHEN m.reported THEN m.status
            WHEN o.dead > 0 OR o.open <= 0 AND o.acked = 0 THEN 'failed'
            WHEN o.open <= 0 THEN 'completed'
            ELSE 'pending' END
        FROM old AS o WHERE m.ctid = o.tid
        RETURNING m.join_id, o.status AS before, m.status AS after),
    total AS (SELECT t.join_id,
            (count(*) FILTER (WHERE t.after = 'completed') - count(*) FILTER (WHERE t.before = 'completed'))::integer AS completed,
            (count(*) FILTER (WHERE t.after = 'failed') - count(*) FILTER (WHERE t.before = 'failed'))::integer AS failed
        FROM moved AS t GROUP BY t.join_id)
    UPDATE {p:joins} AS j SET completed_steps = j.completed_steps + t.completed, failed_steps = j.failed_steps + t.failed,
        updated_at = statement_timestamp()
    FROM total AS t WHERE j.id = ANY (held) AND j.id = t.join_id AND (t.completed <> 0 OR t.failed <> 0) RETURNING j.id;
END
$outmill$;

-- Whether records or lanes may have a row, in the caller's snapshot. Where all records are in the
-- log it is false, and then other statements leave out what they would read there: a session
-- needs some milliseconds to plan that for the first time. An empty file costs no plan, and a small
-- one few pages, whatever dead rows it has. A row is in the file before its transaction commits.
CREATE FUNCTION {p:may_have_rows}() RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $outmill$
DECLARE
    of_records bigint := pg_relation_size({q:records}::regclass);
    of_lanes   bigint := pg_relation_size({q:lanes}::regclass);
BEGIN
    IF of_records > 1048576 OR of_lanes > 1048576 THEN
        RETURN true;
    END IF;
    IF of_records > 0 THEN
        IF (SELECT 1 FROM {p:records} LIMIT 1) IS NOT NULL THEN
            RETURN true;
        END IF;
    END IF;
    IF of_lanes > 0 THEN
        RETURN (SELECT 1 FROM {p:lanes} LIMIT 1) IS NOT NULL;
    END IF;
    RETURN false;
END
$outmill$;

-- The kinds of records that there are, each of which has an index: a bit for each of the stages -1, 0, 1,
-- 2 and 3 together, 4, 5, and 6 and 7 together.
CREATE FUNCTION {p:kinds}() RETURNS integer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
BEGIN
    IF NOT {p:may_have_rows}() THEN
        RETURN 0;
    END IF;
    RETURN coalesce((SELECT 1 FROM {p:records} WHERE stage = -1 ORDER BY grp, topic, paused_by, seq LIMIT 1), 0)
        + coalesce((SELECT 2 FROM {p:records} WHERE stage = 0 ORDER BY grp, topic LIMIT 1), 0)
        + coalesce((SELECT 4 FROM {p:records} WHERE stage = 1 ORDER BY grp, topic, seq LIMIT 1), 0)
        + coalesce((SELECT 8 FROM {p:records} WHERE stage IN (2, 3) ORDER BY grp, topic LIMIT 1), 0)
        + coalesce((SELECT 16 FROM {p:records} WHERE stage = 4 ORDER BY grp, topic LIMIT 1), 0)
        + coalesce((SELECT 32 FROM {p:records} WHERE stage = 5 ORDER BY grp, topic, seq LIMIT 1), 0)
        + coalesce((SELECT 64 FROM {p:records} WHERE stage >= 6 ORDER BY grp, topic LIMIT 1), 0);
END
$outmill$;

-- The topics that may have records to claim, and those with records that wait for a group and
-- are due or will be. $1 is the group; $2 lists topics, NULL is all that have records; $3 is
-- the claimer, $4 is 'waiting' if waiting records are skipped, $5 whether held records count.
-- It is a function so that a poll is one statement whose plan uses the indexes whatever the
-- statistics are: each condition fits one index. The last row has no topic, but whether the log
-- was turned on (due), whether records of the group are aside or lanes are paused (unrouted),
-- and the counter of the pauses.
CREATE FUNCTION {p:due}(text, text[], text, text, boolean) RETURNS TABLE (topic text, due boolean, unrouted boolean, pauses bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
#variable_conflict use_column
DECLARE
    topics text[] := $2;
    rows boolean := {p:may_have_rows}();
BEGIN
    IF rows AND topics IS NULL THEN
        topics := ARRAY(SELECT all_of.topic FROM (
            (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 0 ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 0 AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)
            UNION (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage IN (2, 3) ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage IN (2, 3) AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)
            UNION (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 4 ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 4 AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)
            UNION (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 1 ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = 1 AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)
            UNION (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp IS NULL AND r.stage = 0 ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp IS NULL AND r.stage = 0 AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)
            UNION (WITH RECURSIVE n AS (
                (SELECT r.topic FROM {p:records} AS r WHERE r.grp IS NULL AND r.stage IN (2, 3) ORDER BY r.grp, r.topic LIMIT 1)
                UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp IS NULL AND r.stage IN (2, 3) AND r.topic > n.topic ORDER BY r.grp, r.topic LIMIT 1)
                FROM n WHERE n.topic IS NOT NULL)
            SELECT n.topic FROM n WHERE n.topic IS NOT NULL)) AS all_of);
    END IF;
    IF rows THEN
        RETURN QUERY SELECT t.topic::text, ((SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = 2 AND r.available_at <= statement_timestamp() LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = 3 AND r.available_at <= statement_timestamp() LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = 4 AND r.available_at <= statement_timestamp() LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:lanes} AS l WHERE hashtextextended(l.topic, hashtextextended(l.grp, 0)) = hashtextextended(t.topic, hashtextextended($1, 0))
                AND l.grp IS NOT DISTINCT FROM $1 AND l.topic IS NOT DISTINCT FROM t.topic AND l.blocked_by = '' LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:lanes} AS l WHERE hashtextextended(l.topic, hashtextextended(l.grp, 0)) = hashtextextended(t.topic, hashtextextended($1, 0))
                AND l.grp IS NOT DISTINCT FROM $1 AND l.topic IS NOT DISTINCT FROM t.topic AND l.blocked_by = $3 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:lanes} AS l WHERE hashtextextended(l.topic, hashtextextended(l.grp, 0)) = hashtextextended(t.topic, hashtextextended($1, 0))
                AND l.grp IS NOT DISTINCT FROM $1 AND l.topic IS NOT DISTINCT FROM t.topic AND l.blocked_by = $4 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:lanes} AS l WHERE hashtextextended(l.grp, hashtextextended(l.topic, 0)) = hashtextextended($1, hashtextextended(t.topic, 0))
                AND l.grp IS NOT DISTINCT FROM $1 AND l.topic IS NOT DISTINCT FROM t.topic AND l.until <= statement_timestamp() LIMIT 1) IS NOT NULL
            OR $5 AND (SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = 1 LIMIT 1) IS NOT NULL),
            ((SELECT 1 FROM {p:records} AS r WHERE r.grp IS NULL AND r.topic = t.topic AND r.stage = 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp IS NULL AND r.topic = t.topic AND r.stage IN (2, 3) LIMIT 1) IS NOT NULL), NULL::bigint
        FROM unnest(topics) AS t (topic);
        RETURN QUERY SELECT NULL::text, m.logged, (SELECT 1 FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = -1 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:lanes} AS l WHERE hashtextextended(l.grp, 1) = hashtextextended($1, 1) AND l.grp IS NOT DISTINCT FROM $1 AND l.paused_by IS NOT NULL LIMIT 1) IS NOT NULL,
            m.pauses FROM {p:meta} AS m WHERE m.only_row;
    ELSE
        RETURN QUERY SELECT NULL::text, m.logged, false, m.pauses FROM {p:meta} AS m WHERE m.only_row;
    END IF;
END
$outmill$;

-- The topics of the group $1 with records that are aside, or with paused lanes, for pauses that
-- are gone, and the numbers of these pauses: 1,000 pairs at most. It finds the pairs by two
-- index searches for each. A comparison of (topic, paused_by) would read all entries that are
-- equal to the last ones.
CREATE FUNCTION {p:resumed}(text) RETURNS TABLE (topic text, number bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH RECURSIVE t (topic) AS (
            (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = -1 ORDER BY r.grp, r.topic LIMIT 1)
            UNION ALL SELECT (SELECT r.topic FROM {p:records} AS r WHERE r.grp = $1 AND r.stage = -1 AND r.topic > t.topic ORDER BY r.grp, r.topic LIMIT 1)
            FROM t WHERE t.topic IS NOT NULL),
        p (topic, number) AS (
            SELECT t.topic, (SELECT r.paused_by FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = t.topic AND r.stage = -1 ORDER BY r.paused_by LIMIT 1)
            FROM t WHERE t.topic IS NOT NULL
            UNION ALL SELECT p.topic, (SELECT r.paused_by FROM {p:records} AS r WHERE r.grp = $1 AND r.topic = p.topic AND r.stage = -1 AND r.paused_by > p.number
                ORDER BY r.paused_by LIMIT 1) FROM p WHERE p.number IS NOT NULL)
        SELECT p.topic, p.number FROM p WHERE p.number IS NOT NULL AND p.number NOT IN (SELECT q.number FROM {p:pauses} AS q) LIMIT 1000;
    RETURN QUERY WITH RECURSIVE t (topic) AS (
            (SELECT l.topic FROM {p:lanes} AS l WHERE hashtextextended(l.grp, 1) = hashtextextended($1, 1) AND l.grp IS NOT DISTINCT FROM $1
                AND l.paused_by IS NOT NULL ORDER BY hashtextextended(l.grp, 1), l.topic LIMIT 1)
            UNION ALL SELECT (SELECT l.topic FROM {p:lanes} AS l WHERE hashtextextended(l.grp, 1) = hashtextextended($1, 1) AND l.grp IS NOT DISTINCT FROM $1
                AND l.paused_by IS NOT NULL AND l.topic > t.topic ORDER BY hashtextextended(l.grp, 1), l.topic LIMIT 1)
            FROM t WHERE t.topic IS NOT NULL),
        p (topic, number) AS (
            SELECT t.topic, (SELECT l.paused_by FROM {p:lanes} AS l WHERE hashtextextended(l.grp, 1) = hashtextextended($1, 1) AND l.grp IS NOT DISTINCT FROM $1
                AND l.topic = t.topic AND l.paused_by IS NOT NULL ORDER BY l.paused_by LIMIT 1)
            FROM t WHERE t.topic IS NOT NULL
            UNION ALL SELECT p.topic, (SELECT l.paused_by FROM {p:lanes} AS l WHERE hashtextextended(l.grp, 1) = hashtextextended($1, 1) AND l.grp IS NOT DISTINCT FROM $1
                AND l.topic = p.topic AND l.paused_by IS NOT NULL AND l.paused_by > p.number ORDER BY l.paused_by LIMIT 1) FROM p WHERE p.number IS NOT NULL)
        SELECT p.topic, p.number FROM p WHERE p.number IS NOT NULL AND p.number NOT IN (SELECT q.number FROM {p:pauses} AS q) LIMIT 1000;
END
$outmill$;
