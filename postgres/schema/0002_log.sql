-- The log. lane is where appends write: rows or log. Once it was log, readers read the log
-- (logged). segment is the part of the log that appends write to. cluster is the system
-- identifier of the server. past is the last place of rows that were written on another server:
-- their transaction numbers have no meaning here.
ALTER TABLE {p:meta}
    ADD COLUMN lane       text        NOT NULL DEFAULT 'rows' CHECK (lane IN ('rows', 'log')),
    ADD COLUMN logged     boolean     NOT NULL DEFAULT false,
    ADD COLUMN segment    smallint    NOT NULL DEFAULT 0,
    ADD COLUMN rotated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    ADD COLUMN cluster    text        NOT NULL DEFAULT '',
    ADD COLUMN past       bigint      NOT NULL DEFAULT -1;

-- One row for each message and group, written once and never changed. pos is from the same
-- sequence as seq of the records, so that a record which moves there keeps its place. xid comes
-- before pos, so a transaction has its number before it has a place. line is the number of the
-- group and the topic.
CREATE TABLE {p:log} (
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    pos            bigint      NOT NULL DEFAULT nextval({q:records_seq_seq}),
    line           bigint      NOT NULL,
    id             uuid        NOT NULL,
    created_at     timestamptz NOT NULL,
    size           integer     NOT NULL,
    segment        smallint    NOT NULL,
    grp            text COLLATE "C" NOT NULL,
    topic          text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    message_id     text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C",                         -- NULL: none, here and below
    causation_id   text COLLATE "C",
    tenant_id      text COLLATE "C",
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    dedup_key      text COLLATE "C",
    step           uuid,
    joins          uuid[],                                   -- as in the records: NULL if step is NULL
    metadata       json,                                     -- a claim reads it as it was written
    payload        bytea                                     -- NULL: a nil payload
) PARTITION BY LIST (segment);

-- Autovacuum would uselessly freeze rows that are about to be truncated.
CREATE TABLE {p:log_0} PARTITION OF {p:log} FOR VALUES IN (0)
    WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);

CREATE TABLE {p:log_1} PARTITION OF {p:log} FOR VALUES IN (1)
    WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);

CREATE TABLE {p:log_2} PARTITION OF {p:log} FOR VALUES IN (2)
    WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);

-- The next rows of a line. With xid the index finds the rows of one transaction between two
-- places without reading the others: those of a transaction that was not finished when a claim
-- passed them.
CREATE INDEX {i:log_next} ON {p:log} (line, pos, xid);

-- Each segment has its own index, since a unique index of the whole log would have to include
-- the segment.
CREATE UNIQUE INDEX {i:log_0_id} ON {p:log_0} (id);

-- Without an identity, PostgreSQL refuses to delete rows if all tables are published.
ALTER TABLE {p:log_0} REPLICA IDENTITY USING INDEX {i:log_0_id};

CREATE UNIQUE INDEX {i:log_1_id} ON {p:log_1} (id);

ALTER TABLE {p:log_1} REPLICA IDENTITY USING INDEX {i:log_1_id};

CREATE UNIQUE INDEX {i:log_2_id} ON {p:log_2} (id);

ALTER TABLE {p:log_2} REPLICA IDENTITY USING INDEX {i:log_2_id};

CREATE INDEX {i:log_step} ON {p:log} (step) WHERE step IS NOT NULL;

-- One row for each claim of a line. The newest one has the position of the line: it was read up
-- to pos, as of the snapshot seen. Transactions from horizon on had no number then, so they
-- have no place up to pos. since has, for each transaction that seen has in progress, a place
-- behind which all its rows are. The last element is that place for the transactions from the
-- end of seen up to horizon. positions are the places that were handed out, keys a hash of the
-- key of each (NULL: none has one), done a bit for each that is settled or has moved to the
-- records, and open how many are not. No batch before low is in work. token is the claimer's
-- token: a crash may undo a claim, since claims do not wait for the disk, and another one then
-- has its number.
CREATE TABLE {p:batches} (
    line        bigint      NOT NULL,
    n           bigint      NOT NULL,
    pos         bigint      NOT NULL,
    seen        pg_snapshot NOT NULL,
    horizon     xid8        NOT NULL,
    since       bigint[]    NOT NULL,
    low         bigint      NOT NULL,
    lease_until timestamptz,
    owner       uuid        NOT NULL,
    token       bigint      NOT NULL,
    open        integer     NOT NULL,
    steps       boolean     NOT NULL,
    grp         text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    done        bit varying NOT NULL,
    positions   bigint[]    NOT NULL,
    keys        bigint[],
    PRIMARY KEY (line, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

ALTER TABLE {p:batches} ALTER COLUMN positions SET STORAGE EXTERNAL, ALTER COLUMN keys SET STORAGE EXTERNAL;

-- The finished batches, whatever their open is: they were acked, or their remaining records
-- have moved to the records. So nothing is updated or deleted for a batch that is acked at
-- once. Both tables are truncated now and then.
CREATE TABLE {p:ended} (
    line  bigint NOT NULL,
    n     bigint NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (line, n, token)
) WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);

-- The newest batch of each line from $1 to $2. It finds the lines by one index search each.
CREATE FUNCTION {p:log_newest}(bigint DEFAULT '-9223372036854775808'::bigint, bigint DEFAULT 9223372036854775807) RETURNS SETOF {p:batches} LANGUAGE sql STABLE AS $outmill$
    WITH RECURSIVE t AS (
        (SELECT b.line, b.n FROM {p:batches} AS b WHERE b.line >= $1 AND b.line <= $2 ORDER BY b.line DESC, b.n DESC LIMIT 1)
        UNION ALL SELECT p.line, p.n FROM t CROSS JOIN LATERAL (SELECT b.line, b.n FROM {p:batches} AS b WHERE b.line >= $1 AND b.line < t.line ORDER BY b.line DESC, b.n DESC LIMIT 1) AS p)
    SELECT b.* FROM t CROSS JOIN LATERAL (SELECT * FROM {p:batches} AS i WHERE i.line = t.line AND i.n = t.n OFFSET 0) AS b
$outmill$;

-- The batches in work of the lines from $1 to $2.
CREATE FUNCTION {p:log_in_work}(bigint DEFAULT '-9223372036854775808'::bigint, bigint DEFAULT 9223372036854775807) RETURNS SETOF {p:batches} LANGUAGE sql STABLE AS $outmill$
    SELECT b.* FROM {p:log_newest}($1, $2) AS last CROSS JOIN LATERAL (SELECT * FROM {p:batches} AS i WHERE i.line = last.line AND i.n >= last.low AND i.open > 0
        AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = i.line AND e.n = i.n AND e.token = i.token LIMIT 1) IS NULL OFFSET 0) AS b
$outmill$;

-- Drops the finished batches except the newest of each line, of which it keeps the position,
-- and returns the size of the rest. A session that waits for the lock has a newer snapshot
-- afterwards. It returns -1 if another session has locked the tables, or waits for this
-- transaction too. It returns -2 if more than $1 lines or $2 places would stay, because
-- sessions that wait for the lock would wait until these are written.
CREATE FUNCTION {p:log_tidy}(integer, integer) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $outmill$
DECLARE
    kept {p:batches}[];
BEGIN
    IF (SELECT count(*) FROM (SELECT 1 FROM {p:log_newest}() LIMIT $1 + 1) AS l) > $1 THEN
        RETURN -2;
    END IF;
    LOCK TABLE {p:batches}, {p:ended} IN ACCESS EXCLUSIVE MODE;
    IF (SELECT count(*) FROM (SELECT 1 FROM {p:log_newest}() LIMIT 2 * $1) AS l) >= 2 * $1 OR (SELECT coalesce(sum(b.open), 0) FROM {p:log_in_work}() AS b) > $2 THEN
        RETURN -2;
    END IF;
    kept := ARRAY(SELECT b FROM {p:log_in_work}() AS b);
    kept := kept || ARRAY(SELECT ROW(b.line, b.n, b.pos, b.seen, b.horizon, b.since, b.low, NULL, b.owner, b.token, 0, b.steps, b.grp, b.topic, '', '{}', NULL)::{p:batches}
        FROM {p:log_newest}() AS b WHERE (b.line, b.n) NOT IN (SELECT k.line, k.n FROM unnest(kept) AS k));
    TRUNCATE {p:batches}, {p:ended};
    INSERT INTO {p:batches} SELECT k.* FROM unnest(kept) AS k;
    RETURN pg_table_size({q:batches}::regclass) + pg_table_size({q:ended}::regclass);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN -1;
END
$outmill$;

-- Transactions that were not finished when a line was read past them, and that have written
-- more rows than a claim takes: their rows after from_pos and up to to_pos are still to be
-- read.
CREATE TABLE {p:late} (
    line     bigint NOT NULL,
    xid      xid8   NOT NULL,
    from_pos bigint NOT NULL,
    to_pos   bigint NOT NULL,
    PRIMARY KEY (line, xid, to_pos)
);

-- The segments without needed records, until they are truncated. Records that are written to
-- one later have a place behind pos. Snapshots from before may still see records that were
-- needed then. xid is the transaction that retired the segment, at retired_at. All such
-- snapshots are heeded until heed_until.
CREATE TABLE {p:retired} (
    segment    smallint    NOT NULL PRIMARY KEY,
    pos        bigint      NOT NULL,
    xid        xid8        NOT NULL,
    retired_at timestamptz NOT NULL,
    heed_until timestamptz
);

-- The transactions that the line $1 was read past before they were finished, and that are
-- finished in $2 (NULL: all of them). Each has the places between which it may have rows that
-- were not read. Of those that had a number but were not in the snapshot, only those count that
-- have written rows; if $2 has all of them in progress, they are not searched for. Transactions
-- of another server may have the same numbers, but their rows are not behind past. A line
-- without batches starts from the beginning. It is in PL/pgSQL because most lines need its first two
-- statements only, and a session would plan the others wherever it is used.
CREATE FUNCTION {p:log_unfinished}(bigint, pg_snapshot) RETURNS TABLE (xid xid8, from_pos bigint, to_pos bigint) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    last record;
    rest bigint;
    past bigint;
BEGIN
    SELECT b.pos, b.seen, b.horizon, b.since INTO last FROM {p:batches} AS b WHERE b.line = $1 ORDER BY b.n DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT l.xid, l.from_pos, l.to_pos FROM {p:late} AS l WHERE l.line = $1;
    IF pg_snapshot_xmin(last.seen) = pg_snapshot_xmax(last.seen) AND pg_snapshot_xmax(last.seen) = last.horizon THEN
        RETURN;
    END IF;
    past := (SELECT m.past FROM {p:meta} AS m WHERE m.only_row);
    RETURN QUERY SELECT p.xid, greatest(p.from_pos, past), last.pos FROM ROWS FROM (pg_snapshot_xip(last.seen), unnest(last.since)) AS p (xid, from_pos)
        WHERE p.xid IS NOT NULL AND greatest(p.from_pos, past) < last.pos AND coalesce(pg_visible_in_snapshot(p.xid, $2), true);
    rest := last.since[cardinality(last.since)];
    IF greatest(rest, past) >= last.pos OR (SELECT count(*) FROM pg_snapshot_xip($2) AS c (xid) WHERE c.xid >= pg_snapshot_xmax(last.seen) AND c.xid < last.horizon)
            >= last.horizon::text::bigint - pg_snapshot_xmax(last.seen)::text::bigint THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT DISTINCT g.xid, greatest(rest, past), last.pos FROM {p:log} AS g
        WHERE g.line = $1 AND g.pos > rest AND g.pos <= last.pos AND g.xid >= pg_snapshot_xmax(last.seen) AND g.xid < last.horizon
            AND coalesce(pg_visible_in_snapshot(g.xid, $2), true);
END
$outmill$;

-- Whether a claim has passed rows of a line that are finished by now. It scans the passed rows
-- once, whatever the number of transactions. It is in PL/pgSQL, as the functions below are, because a
-- session plans a function in SQL again in each call.
CREATE FUNCTION {p:log_late}(bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $outmill$
BEGIN
    RETURN (WITH c AS MATERIALIZED (SELECT u.xid, u.from_pos, u.to_pos FROM {p:log_unfinished}($1, pg_current_snapshot()) AS u)
        SELECT 1 FROM {p:log} AS l WHERE l.line = $1 AND l.pos > (SELECT min(c.from_pos) FROM c) AND l.pos <= (SELECT max(c.to_pos) FROM c)
            AND l.xid >= (SELECT c.xid FROM c ORDER BY c.xid LIMIT 1) AND l.xid <= (SELECT c.xid FROM c ORDER BY c.xid DESC LIMIT 1)
            AND coalesce(l.xid IN (SELECT c.xid FROM c), false)
            AND (SELECT 1 FROM c WHERE c.xid = l.xid AND l.pos > c.from_pos AND l.pos <= c.to_pos LIMIT 1) IS NOT NULL LIMIT 1) IS NOT NULL;
END
$outmill$;

-- Whether the line $1 may have a row that is visible now but was passed before it was finished:
-- one that its newest batch, which read up to $2 as of $3, $4 and $5 (seen, horizon, since),
-- has not seen. It costs less than a search for each transaction.
CREATE FUNCTION {p:log_maybe_late}(bigint, bigint, pg_snapshot, xid8, bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    after bigint;
BEGIN
    IF (SELECT 1 FROM {p:late} AS l WHERE l.line = $1 LIMIT 1) IS NOT NULL THEN
        RETURN true;
    END IF;
    IF pg_snapshot_xmin($3) < pg_snapshot_xmax($3) THEN
        after := (SELECT min($5[p.nth]) FROM pg_snapshot_xip($3) WITH ORDINALITY AS p (xid, nth) WHERE pg_visible_in_snapshot(p.xid, (SELECT pg_current_snapshot())));
    END IF;
    IF pg_snapshot_xmax($3) < $4 THEN
        after := least(after, $5[array_upper($5, 1)]);
    END IF;
    IF after IS NULL THEN
        RETURN false;
    END IF;
    RETURN (SELECT 1 FROM {p:log} AS l WHERE l.line = $1 AND l.pos > after AND l.pos <= $2
        AND l.xid >= pg_snapshot_xmin($3) AND NOT pg_visible_in_snapshot(l.xid, $3) LIMIT 1) IS NOT NULL;
END
$outmill$;

-- The rows of the line $1 that a claim has passed and that are finished by now, up to $2, and when the
-- first of them was appended. The other arguments are those of log_maybe_late.
CREATE FUNCTION {p:log_late_counts}(bigint, bigint, bigint, pg_snapshot, xid8, bigint[], OUT n bigint, OUT oldest timestamptz) LANGUAGE plpgsql STABLE AS $outmill$
BEGIN
    n := 0;
    IF $3 IS NULL OR NOT {p:log_maybe_late}($1, $3, $4, $5, $6) THEN
        RETURN;
    END IF;
    n := (SELECT count(*) FROM (SELECT 1 FROM {p:log_unfinished}($1, pg_current_snapshot()) AS c
        CROSS JOIN LATERAL (SELECT 1 FROM {p:log} WHERE line = $1 AND pos > c.from_pos AND pos <= c.to_pos AND xid = c.xid LIMIT $2) AS r LIMIT $2) AS late);
    oldest := (SELECT min(r.created_at) FROM {p:log_unfinished}($1, pg_current_snapshot()) AS c
        CROSS JOIN LATERAL (SELECT created_at FROM {p:log} WHERE line = $1 AND pos > c.from_pos AND pos <= c.to_pos AND xid = c.xid ORDER BY pos LIMIT 1) AS r);
END
$outmill$;

-- Who has the turn to do the upkeep of the log: until when, and when the last turn ended.
CREATE TABLE {p:upkeep} (
    only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    turn     bigint      NOT NULL,
    until    timestamptz NOT NULL,
    ended_at timestamptz NOT NULL
) WITH (fillfactor = 50);

INSERT INTO {p:upkeep} (turn, until, ended_at) VALUES (0, '-infinity', '-infinity');

-- Searches $3 lines of the segment $1, from the line $2 on, for one that needs the segment: it
-- has a record that was not read, was passed before it was finished, or is in a batch, or the
-- line was last read on another server. It returns that line, or the last one that it has
-- searched, or none at the end. It also returns the furthest place up to which any of these
-- lines was read, and the last place that any of them has in the segment.
CREATE FUNCTION {p:log_needed}(smallint, bigint, integer, OUT line bigint, OUT grp text, OUT topic text, OUT needed boolean, OUT furthest bigint, OUT latest bigint) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $outmill$
#variable_conflict use_column
DECLARE
    this record;
    last {p:batches};
    reach bigint;
    next_line bigint := $2;
BEGIN
    needed := false;
    furthest := -1;
    latest := -1;
    FOR looked IN 1..$3 LOOP
        SELECT l.line, l.grp, l.topic INTO this FROM {p:log} AS l WHERE l.segment = $1 AND l.line >= next_line ORDER BY l.line, l.pos LIMIT 1;
        IF NOT FOUND THEN
            line := NULL;
            RETURN;
        END IF;
        line := this.line;
        grp := this.grp;
        topic := this.topic;
        reach := (SELECT l.pos FROM {p:log} AS l WHERE l.segment = $1 AND l.line = this.line ORDER BY l.pos DESC LIMIT 1);
        latest := greatest(latest, reach);
        SELECT b.* INTO last FROM {p:batches} AS b WHERE b.line = this.line ORDER BY b.n DESC LIMIT 1;
        IF NOT FOUND THEN
            needed := true;
            RETURN;
        END IF;
        furthest := greatest(furthest, last.pos);
        needed := reach > last.pos OR last.horizon >= pg_snapshot_xmax(pg_current_snapshot());
        IF NOT needed AND {p:log_maybe_late}(last.line, last.pos, last.seen, last.horizon, last.since) THEN
            needed := (SELECT 1 FROM {p:log_unfinished}(this.line, pg_current_snapshot()) AS u CROSS JOIN LATERAL (SELECT 1 FROM {p:log} AS l
                WHERE l.segment = $1 AND l.line = this.line AND l.pos > u.from_pos AND l.pos <= u.to_pos AND l.xid = u.xid LIMIT 1) AS r LIMIT 1) IS NOT NULL;
        END IF;
        IF NOT needed THEN
            needed := (SELECT 1 FROM {p:batches} AS b WHERE b.line = this.line AND b.n >= last.low AND b.open > 0 AND b.positions[1] <= reach
                AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NULL LIMIT 1) IS NOT NULL;
        END IF;
        IF needed OR line = 9223372036854775807 THEN
            RETURN;
        END IF;
        next_line := line + 1;
    END LOOP;
END
$outmill$;

-- Keeps others from writing to the segment $1 until the transaction ends. It returns false if
-- another session holds the lock for longer than claims take, because others would queue behind
-- this one. Readers do not wait.
CREATE FUNCTION {p:log_stop_writing}(text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $outmill$
BEGIN
    EXECUTE 'LOCK TABLE ' || $1::regclass || ' IN SHARE MODE';
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$outmill$;

-- Truncates the segment $1, or returns false if a session reads it.
CREATE FUNCTION {p:log_truncate}(text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $outmill$
BEGIN
    EXECUTE 'LOCK TABLE ' || $1::regclass || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE 'TRUNCATE ' || $1::regclass;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$outmill$;

-- Fails a statement whose records have moved since it began.
CREATE FUNCTION {p:log_moved}() RETURNS text LANGUAGE plpgsql AS $outmill$
BEGIN
    RAISE EXCEPTION 'records have moved from the log' USING ERRCODE = 'OM001';
END
$outmill$;

-- Whether a transaction that was open for long has finished since the batch, the newest of a
-- line. A claim then notes it, so that not every later search reads all rows that were written
-- while it was open.
CREATE FUNCTION {p:log_stale}({p:batches}) RETURNS boolean LANGUAGE plpgsql STABLE AS $outmill$
BEGIN
    IF pg_snapshot_xmin($1.seen) = pg_snapshot_xmax($1.seen) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT 1 FROM ROWS FROM (pg_snapshot_xip($1.seen), unnest($1.since)) AS p (xid, from_pos)
        WHERE p.xid IS NOT NULL AND $1.pos - p.from_pos > 10000 AND pg_visible_in_snapshot(p.xid, (SELECT pg_current_snapshot())));
END
$outmill$;

-- Makes the next claim check the keys of the records at the ordinals $6 of the batch $1, $2, if the
-- owner $5 blocks any key of the group $3 and the topic $4. It runs before the records are done.
-- Where no key was ever held, a session need not plan that.
CREATE FUNCTION {p:log_open_lanes}(bigint, bigint, text, text, text, integer[]) RETURNS void LANGUAGE plpgsql AS $outmill$
BEGIN
    IF pg_relation_size({q:lanes}::regclass) = 0 THEN
        RETURN;
    END IF;
    UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL, looks = 0 WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM (SELECT DISTINCT g.key FROM (SELECT b.line, b.positions[u.nth + 1] AS pos FROM {p:batches} AS b
            CROSS JOIN unnest($6) AS u (nth)
            WHERE b.line = $1 AND b.n = $2 AND (SELECT 1 FROM {p:lanes}
                WHERE hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($4, hashtextextended($3, 0))
                AND grp IS NOT DISTINCT FROM $3 AND topic IS NOT DISTINCT FROM $4 AND blocked_by = $5 LIMIT 1) IS NOT NULL) AS f
            CROSS JOIN LATERAL (SELECT key FROM {p:log} WHERE line = f.line AND pos = f.pos OFFSET 0) AS g WHERE g.key <> '') AS k
        CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = $3 AND topic = $4 AND key = k.key FOR UPDATE SKIP LOCKED) AS l));
END
$outmill$;

-- When a claim of the line would find records in the log: now (-infinity), when one of its
-- leases ends, or never (infinity). log_due and log_due_from call it, with their planner
-- settings, because setting them for each line would take longer than the search. Most lines
-- were read while no transaction was in progress, and then they have no late rows.
CREATE FUNCTION {p:log_ready_at}(bigint) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    last {p:batches};
BEGIN
    SELECT * INTO last FROM {p:batches} WHERE line = $1 ORDER BY n DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN CASE WHEN (SELECT 1 FROM {p:log} WHERE line = $1 LIMIT 1) IS NOT NULL THEN '-infinity' ELSE 'infinity' END;
    END IF;
    -- If the line was last read on another server, the claim notices that.
    IF (SELECT 1 FROM {p:log} WHERE line = $1 AND pos > last.pos LIMIT 1) IS NOT NULL OR last.horizon >= pg_snapshot_xmax(pg_current_snapshot()) THEN
        RETURN '-infinity';
    END IF;
    IF {p:log_stale}(last) THEN
        RETURN '-infinity';
    END IF;
    IF {p:log_maybe_late}(last.line, last.pos, last.seen, last.horizon, last.since) THEN
        IF {p:log_late}($1) THEN
            RETURN '-infinity';
        END IF;
    END IF;
    RETURN coalesce((SELECT min(b.lease_until) FROM {p:batches} AS b WHERE b.line = $1 AND b.n >= last.low AND b.open > 0
            AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NULL), 'infinity');
END
$outmill$;

-- The first number that a line of the group $1 may have, of 2^48: see line_of.
CREATE FUNCTION {p:log_first_line}(text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT ('x' || encode(substr(sha256(convert_to($1, 'UTF8')), 1, 2), 'hex') || '000000000000')::bit(64)::bigint
$outmill$;

-- Whether a claim has passed a row of the log: such a row is in a batch, or done.
CREATE FUNCTION {p:log_passed}(line bigint, xid xid8, pos bigint) RETURNS boolean LANGUAGE sql STABLE AS $outmill$
    SELECT coalesce((SELECT $3 <= b.pos AND ($3 <= (SELECT m.past FROM {p:meta} AS m WHERE m.only_row) OR pg_visible_in_snapshot($2, b.seen)) FROM {p:batches} AS b WHERE b.line = $1 ORDER BY b.n DESC LIMIT 1), false)
        AND NOT EXISTS (SELECT 1 FROM {p:late} AS l WHERE l.line = $1 AND l.xid = $2 AND $3 > l.from_pos AND $3 <= l.to_pos)
$outmill$;

-- The topics of the group $1 that have records to claim in the log, among the listed ones ($2,
-- with their lines $3).
CREATE FUNCTION {p:log_due}(text, text[], bigint[]) RETURNS SETOF text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
BEGIN
    RETURN QUERY SELECT u.topic FROM unnest($2, $3) AS u (topic, line) WHERE {p:log_ready_at}(u.line) <= statement_timestamp();
END
$outmill$;

-- The topics that have records to claim in the log, among the next $3 lines of the group $1
-- after the line $2 (NULL: from its first). It finds the lines by one index search each. The
-- last row has no topic, but the last line that was searched (NULL: there are no more), and the
-- time until the next lease in these lines ends.
CREATE FUNCTION {p:log_due_from}(text, bigint, integer, OUT topic text, OUT line bigint, OUT lease_left interval) RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
#variable_conflict use_column
DECLARE
    first bigint := {p:log_first_line}($1);
    last bigint := first + 281474976710655;
    this record;
    looked integer := 0;
    soonest timestamptz := 'infinity';
BEGIN
    IF $2 < last THEN
        first := $2 + 1;
    END IF;
    -- One statement for all lines, because log_ready_at in each round of the loop takes four
    -- times as long.
    FOR this IN WITH RECURSIVE t AS (
            (SELECT l.line, l.grp, l.topic FROM {p:log} AS l WHERE l.line >= first AND l.line <= last ORDER BY l.line, l.pos LIMIT 1)
            UNION ALL SELECT n.line, n.grp, n.topic FROM t CROSS JOIN LATERAL (
                SELECT l.line, l.grp, l.topic FROM {p:log} AS l WHERE l.line > t.line AND l.line <= last ORDER BY l.line, l.pos LIMIT 1) AS n)
        SELECT t.line, t.grp, t.topic, CASE
            WHEN b.line IS NULL OR (SELECT 1 FROM {p:log} AS l WHERE l.line = t.line AND l.pos > b.pos LIMIT 1) IS NOT NULL THEN '-infinity'
            WHEN b.quiet AND (SELECT 1 FROM {p:late} AS l WHERE l.line = t.line LIMIT 1) IS NULL THEN
                coalesce((SELECT min(w.lease_until) FROM {p:batches} AS w WHERE w.line = t.line AND w.n >= b.low AND w.open > 0
                    AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = w.line AND e.n = w.n AND e.token = w.token LIMIT 1) IS NULL), 'infinity')
            ELSE {p:log_ready_at}(t.line) END AS ready
        FROM (SELECT * FROM t LIMIT $3) AS t LEFT JOIN LATERAL (
            SELECT i.line, i.pos, i.low, pg_snapshot_xmin(i.seen) = pg_snapshot_xmax(i.seen) AND pg_snapshot_xmax(i.seen) = i.horizon AND i.horizon < (SELECT pg_snapshot_xmax(pg_current_snapshot())) AS quiet
            FROM {p:batches} AS i WHERE i.line = t.line ORDER BY i.n DESC LIMIT 1) AS b ON true LOOP
        looked := looked + 1;
        CONTINUE WHEN this.grp <> $1;
        IF this.ready <= statement_timestamp() THEN
            topic := this.topic;
            RETURN NEXT;
        ELSE
            soonest := least(soonest, this.ready);
        END IF;
    END LOOP;
    IF looked = $3 AND this.line < last THEN
        line := this.line;
    END IF;
    topic := NULL;
    IF soonest < 'infinity' THEN
        lease_left := soonest - statement_timestamp();
    END IF;
    RETURN NEXT;
END
$outmill$;

-- For people: the records and the log with readable names, and the first 1,000,000 bytes of
-- each payload as text, because PostgreSQL cannot show a large one completely. It leaves out
-- finished records of the log: see log_passed, whose condition is repeated here because a
-- function would need more rights than SELECT on the view. It reads all records.
CREATE VIEW {p:readable} AS
WITH newest AS (SELECT DISTINCT ON (line) line, pos, seen, low FROM {p:batches} ORDER BY line, n DESC),
leased AS (
    SELECT b.line, u.pos, b.owner, b.lease_until FROM newest AS last JOIN {p:batches} AS b ON b.line = last.line AND b.n >= last.low AND b.open > 0
    CROSS JOIN LATERAL unnest(b.positions) WITH ORDINALITY AS u (pos, nth)
    WHERE get_bit(b.done, u.nth::integer - 1) = 0
        AND NOT EXISTS (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token))
SELECT seq, id, grp, topic, key, message_id,
       CASE stage WHEN 4 THEN 'leased' WHEN 6 THEN 'processed' WHEN 7 THEN 'dead' ELSE 'pending' END AS status,
       CASE stage WHEN -1 THEN 'aside' WHEN 0 THEN 'in line' WHEN 1 THEN 'held' WHEN 2 THEN 'waiting' WHEN 3 THEN 'delayed' WHEN 4 THEN 'leased' WHEN 5 THEN 'expired' ELSE 'settled' END AS stage,
       created_at, due_at, next_at, available_at, expires_at, processed_at,
       attempts, claims, expiries, parked, owner, processed_by, last_error,
       correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for,
       size, metadata::json, encode(substr(payload, 1, 1000000), 'escape') AS payload
FROM {p:records}
UNION ALL
SELECT l.pos, l.id, l.grp, l.topic, l.key, l.message_id,
       CASE WHEN o.owner IS NULL THEN 'pending' ELSE 'leased' END, CASE WHEN o.owner IS NULL THEN 'in line' ELSE 'leased' END,
       l.created_at, l.created_at, l.created_at, o.lease_until, NULL, NULL,
       0, CASE WHEN o.owner IS NULL THEN 0 ELSE 1 END, 0, false, o.owner, NULL, NULL,
       l.correlation_id, l.causation_id, l.tenant_id, l.traceparent, l.tracestate, l.dedup_key, l.step, l.joins, NULL,
       l.size, l.metadata, encode(substr(l.payload, 1, 1000000), 'escape')
FROM {p:log} AS l
LEFT JOIN newest AS last ON last.line = l.line
LEFT JOIN leased AS o ON o.line = l.line AND o.pos = l.pos
WHERE o.owner IS NOT NULL OR last.line IS NULL OR l.pos > last.pos
    OR l.pos > (SELECT m.past FROM {p:meta} AS m WHERE m.only_row) AND NOT pg_visible_in_snapshot(l.xid, last.seen)
    OR EXISTS (SELECT 1 FROM {p:late} AS t WHERE t.line = l.line AND t.xid = l.xid AND l.pos > t.from_pos AND l.pos <= t.to_pos);

-- Whether the topic $2 is one that the pattern $1 of a registration selects: as
-- outmill.Topics, * is any run of characters, and \* and \\ are * and \ themselves.
CREATE FUNCTION {p:topic_matches}(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT $2 COLLATE "C" LIKE coalesce((SELECT string_agg(CASE WHEN p[1] = '*' THEN '%' WHEN p[1] = E'\\*' THEN '*' WHEN p[1] IN (E'\\', E'\\\\', '%', '_') THEN E'\\' || right(p[1], 1) ELSE p[1] END, '' ORDER BY n)
        FROM regexp_matches($1 COLLATE "C", E'\\\\[\\\\*]|.', 'g') WITH ORDINALITY AS t (p, n)), '') ESCAPE E'\\'
$outmill$;

-- The groups that read the topic $1.
CREATE FUNCTION {p:readers_of}(text) RETURNS SETOF text LANGUAGE sql STABLE AS $outmill$
    SELECT DISTINCT g.grp FROM {p:groups} AS g
    WHERE (cardinality(g.include) = 0 OR EXISTS (SELECT 1 FROM unnest(g.include) AS p WHERE {p:topic_matches}(p, $1)))
        AND NOT EXISTS (SELECT 1 FROM unnest(g.exclude) AS p WHERE {p:topic_matches}(p, $1))
$outmill$;

-- The number of the line of the group $1 and the topic $2 in the log: 16 bits for the group, so
-- that the lines of a group are adjacent, and 48 for both.
CREATE FUNCTION {p:line_of}(text, text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $outmill$
    SELECT ('x' || encode(substr(sha256(convert_to($1, 'UTF8')), 1, 2) || substr(sha256(int8send(octet_length(convert_to($1, 'UTF8'))::bigint) || convert_to($1, 'UTF8') || convert_to($2, 'UTF8')), 1, 6), 'hex'))::bit(64)::bigint
$outmill$;

-- A time-ordered id (UUIDv7), as the programs make them.
CREATE FUNCTION {p:new_id}() RETURNS uuid LANGUAGE sql VOLATILE AS $outmill$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING substr(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$outmill$;

-- Appends messages for a caller that has a transaction but cannot share its connection, such as
-- watermill-sql's Publisher: see postgres.Appender, which makes the arguments and has checked
-- them. It does the same as Store.Append, in the caller's transaction and snapshot, and returns
-- the number of messages whose dedup key was not seen before. It has the rights of its owner,
-- so its callers need no others.
CREATE FUNCTION {p:append}(ids text[], topics text[], keys text[], sizes bigint[], message_ids text[], correlation_ids text[], causation_ids text[], tenant_ids text[],
    traceparents text[], tracestates text[], dedup_keys text[], metadatas text[], payloads bytea[], dues text[], expiries text[], dedup_window bigint, notify boolean)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $outmill$
DECLARE
    appended bigint;
    woken    text;
BEGIN
    -- A row of the log may get its place only after its transaction has its number.
    PERFORM pg_current_xact_id();
    WITH given AS MATERIALIZED (
        SELECT u.*, row_number() OVER (PARTITION BY u.topic, u.dedup_key ORDER BY u.nth) AS same
        FROM unnest(ids, topics, keys, sizes, message_ids, correlation_ids, causation_ids, tenant_ids, traceparents, tracestates, dedup_keys, metadatas, payloads, dues, expiries)
            WITH ORDINALITY AS u (id, topic, key, size, message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, metadata, payload, due, expires, nth)),
    free AS (
        INSERT INTO {p:dedup} AS d (topic, dedup_key, expires_at, first_id)
        SELECT g.topic, g.dedup_key, statement_timestamp() + dedup_window * interval '1 microsecond', g.id::uuid FROM given AS g WHERE g.dedup_key <> '' AND g.same = 1
        ORDER BY g.topic COLLATE "C", g.dedup_key COLLATE "C"
        ON CONFLICT (topic, dedup_key) DO UPDATE SET expires_at = excluded.expires_at, first_id = excluded.first_id WHERE d.expires_at <= statement_timestamp()
        RETURNING d.topic, d.dedup_key),
    kept AS MATERIALIZED (
        SELECT g.* FROM given AS g WHERE g.dedup_key = '' OR g.same = 1 AND (g.topic, g.dedup_key) IN (SELECT f.topic, f.dedup_key FROM free AS f)),
    readers AS MATERIALIZED (
        SELECT t.topic, r.grp, row_number() OVER (PARTITION BY t.topic ORDER BY r.grp COLLATE "C") AS copy
        FROM (SELECT DISTINCT k.topic FROM kept AS k) AS t LEFT JOIN LATERAL {p:readers_of}(t.topic) AS r (grp) ON true),
    placed AS MATERIALIZED (
        SELECT k.*, r.grp, r.copy, CASE r.copy WHEN 1 THEN k.id::uuid ELSE {p:new_id}() END AS uid FROM kept AS k JOIN readers AS r ON r.topic = k.topic),
    -- All records of one append go to the same lane, so that records of a key keep their order.
    lane AS MATERIALIZED (
        SELECT m.segment, m.lane = 'log' AND NOT EXISTS (SELECT 1 FROM placed AS p WHERE p.grp IS NULL OR p.due <> '' OR p.expires <> '') AS logged
        FROM {p:meta} AS m WHERE m.only_row),
    to_log AS (
        INSERT INTO {p:log} (line, id, created_at, size, segment, grp, topic, key, message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, metadata, payload)
        SELECT {p:line_of}(p.grp, p.topic), p.uid, statement_timestamp(), p.size, l.segment, p.grp, p.topic, p.key, p.message_id,
            nullif(p.correlation_id, ''), nullif(p.causation_id, ''), nullif(p.tenant_id, ''), nullif(p.traceparent, ''), nullif(p.tracestate, ''), nullif(p.dedup_key, ''),
            nullif(ltrim(p.metadata, '-'), '')::json, CASE WHEN p.metadata LIKE '-%' THEN NULL ELSE p.payload END
        FROM placed AS p JOIN lane AS l ON l.logged ORDER BY p.nth, p.copy),
    to_records AS (
        INSERT INTO {p:records} (id, grp, topic, key, stage, available_at, due_at, next_at, created_at, expires_at, size,
            message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, metadata, payload)
        SELECT p.uid, p.grp, p.topic, p.key, CASE WHEN d.due > now.at THEN 3 ELSE 0 END, CASE WHEN d.due > now.at THEN d.due END, d.due, d.due, now.at,
            CASE WHEN p.expires LIKE '+%' THEN now.at + p.expires::interval ELSE nullif(p.expires, '')::timestamptz END, p.size,
            p.message_id, nullif(p.correlation_id, ''), nullif(p.causation_id, ''), nullif(p.tenant_id, ''), nullif(p.traceparent, ''), nullif(p.tracestate, ''),
            nullif(p.dedup_key, ''), nullif(ltrim(p.metadata, '-'), '')::jsonb, CASE WHEN p.metadata LIKE '-%' THEN NULL ELSE p.payload END
        FROM placed AS p JOIN lane AS l ON NOT l.logged
        CROSS JOIN LATERAL (SELECT statement_timestamp() AS at) AS now
        CROSS JOIN LATERAL (SELECT CASE WHEN p.due = '' THEN now.at WHEN p.due LIKE '+%' THEN now.at + p.due::interval ELSE p.due::timestamptz END AS due) AS d
        ORDER BY p.nth, p.copy)
    SELECT count(*), json_agg(DISTINCT k.topic)::text INTO appended, woken FROM kept AS k;
    -- With a full queue the commit would fail: see sqlNotify.
    IF notify AND appended > 0 AND pg_notification_queue_usage() < 0.5 THEN
        -- PostgreSQL takes 8,000 bytes. A notification without topics stands for any topic.
        PERFORM pg_notify({c:notify}, CASE WHEN octet_length(woken) <= 7900 THEN woken ELSE '' END);
    END IF;
    RETURN appended;
END
$outmill$;

REVOKE EXECUTE ON FUNCTION {p:append} FROM PUBLIC;

-- Whether nothing is pending or leased, and a round of the janitor would find no work. $1 and $2
-- are for how many microseconds processed records and ended joins are kept. Each condition fits
-- one index, as in the function due. In the log every line must be read and settled, and no segment be due
-- to be left or truncated: 4194304 is smallSegment.
CREATE FUNCTION {p:resting}(bigint, bigint) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
DECLARE
    this record;
BEGIN
    -- All but the settled ones.
    IF {p:kinds}() & 63 > 0 THEN
        RETURN false;
    END IF;
    IF pg_relation_size({q:records}::regclass) > 0 THEN
        IF (SELECT 1 FROM {p:records} WHERE processed_at <= statement_timestamp() - $1 * interval '1 microsecond' ORDER BY processed_at LIMIT 1) IS NOT NULL THEN
            RETURN false;
        END IF;
    END IF;
    IF (SELECT 1 FROM {p:groups} WHERE expires_at <= statement_timestamp() ORDER BY expires_at LIMIT 1) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Most stores use none of these tables, and then a session need not plan what reads them.
    IF pg_relation_size({q:dedup}::regclass) + pg_relation_size({q:endings}::regclass) + pg_relation_size({q:inbox}::regclass)
        + pg_relation_size({q:sagas}::regclass) + pg_relation_size({q:joins}::regclass) > 0 THEN
        IF (SELECT 1 FROM {p:dedup} WHERE expires_at <= statement_timestamp() ORDER BY expires_at LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:endings} WHERE look_at <= statement_timestamp() ORDER BY look_at LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:inbox} WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:sagas} WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:joins} WHERE finished_at <= statement_timestamp() - $2 * interval '1 microsecond' ORDER BY finished_at LIMIT 1) IS NOT NULL THEN
            RETURN false;
        END IF;
    END IF;
    FOR this IN SELECT s.nth, s.nth = m.segment AS current,
            (SELECT pg_relation_size(c.oid) + coalesce(pg_relation_size(c.reltoastrelid), 0) FROM pg_class AS c WHERE c.oid = s.oid) AS size
        FROM {p:meta} AS m CROSS JOIN (VALUES (0::smallint, {q:log_0}::regclass), (1::smallint, {q:log_1}::regclass), (2::smallint, {q:log_2}::regclass)) AS s (nth, oid)
        WHERE m.only_row AND m.logged LOOP
        IF this.current AND this.size >= 4194304 OR NOT this.current AND this.size > 0 THEN
            RETURN false;
        END IF;
        IF this.size > 0 THEN
            IF (SELECT n.line FROM {p:log_needed}(this.nth, '-9223372036854775808'::bigint, 1000) AS n) IS NOT NULL THEN
                RETURN false;
            END IF;
        END IF;
    END LOOP;
    RETURN true;
END
$outmill$;

-- What the functions $1 return for the elements of $2 and $3: resting of several schemas. It
-- is NULL for one that fails, for example because its schema was dropped, or that waits for a lock.
CREATE FUNCTION {p:resting_of}(text[], bigint[], bigint[]) RETURNS boolean[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $outmill$
DECLARE
    answers boolean[] := '{}';
    answer boolean;
BEGIN
    FOR i IN 1..cardinality($1) LOOP
        BEGIN
            EXECUTE 'SELECT ' || $1[i] || '($1, $2)' INTO answer USING $2[i], $3[i];
        EXCEPTION WHEN OTHERS THEN
            answer := NULL;
        END;
        answers := array_append(answers, answer);
    END LOOP;
    RETURN answers;
END
$outmill$;

-- Notes, in the caller's transaction, that the consumer $1 handles the message $2, for $3
-- microseconds. It waits up to $4 milliseconds for another transaction with the same note. $5 is
-- the record of a message of this schema. If $6 is not NULL, the owner $6 must have leased the
-- record under the claim number $7; $8 to $11 are then the line, the number, the token and the
-- ordinal of its batch, or NULL if the caller does not know one. If $12 is not NULL, it is the
-- limit in milliseconds after which the server ends the transaction if its client is silent,
-- unless the caller has another one: that saves a statement. It returns 1 if it has written
-- the note, 0 if there was one, and -1 if the lease is not valid. The statement that writes the
-- note also looks at the lease, and locks neither record nor batch. The SET clause separates the
-- lock_timeout of the function from the caller's, and is right for the inbox's default.
CREATE FUNCTION {p:put_note}(text, text, bigint, bigint, uuid, uuid, integer, bigint, bigint, bigint, integer, text) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $outmill$
DECLARE
    of_line bigint := $8;
    of_batch bigint := $9;
    of_token bigint := $10;
    nth integer := $11;
    until timestamptz := statement_timestamp() + $3 * interval '1 microsecond';
BEGIN
    IF $4 <> 1000 THEN
        PERFORM set_config('lock_timeout', $4::text, true);
    END IF;
    IF $12 IS NOT NULL AND current_setting('idle_in_transaction_session_timeout') = '0' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', $12, true);
    END IF;
    IF $6 IS NULL THEN
        INSERT INTO {p:inbox} (consumer, key, delete_at, record) VALUES ($1, $2, until, $5) ON CONFLICT DO NOTHING;
        RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
    END IF;
    FOR search IN 1..2 LOOP
        -- A statement needs rights on all its tables, so only these read the log. A record that has moved is among the records.
        IF of_line IS NOT NULL THEN
            INSERT INTO {p:inbox} (consumer, key, delete_at, record) SELECT $1, $2, until, $5 FROM {p:batches} AS b
                WHERE b.line = of_line AND b.n = of_batch AND b.token = of_token AND b.owner = $6 AND CASE WHEN b.open > 0 THEN get_bit(b.done, nth) = 0 END
                AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NULL
                ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN 1;
            END IF;
        END IF;
        INSERT INTO {p:inbox} (consumer, key, delete_at, record) SELECT $1, $2, until, $5 FROM {p:records} AS r
            WHERE r.id = $5 AND r.stage + 0 = 4 AND r.owner = $6 AND r.claims = $7
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN 1;
        END IF;
        -- There is a note, or the lease was lost.
        IF (SELECT 1 FROM {p:records} AS r WHERE r.id = $5 AND r.stage + 0 = 4 AND r.owner = $6 AND r.claims = $7) IS NOT NULL THEN
            RETURN 0;
        END IF;
        IF of_line IS NOT NULL THEN
            RETURN CASE WHEN (SELECT 1 FROM {p:batches} AS b WHERE b.line = of_line AND b.n = of_batch AND b.token = of_token AND b.owner = $6 AND CASE WHEN b.open > 0 THEN get_bit(b.done, nth) = 0 END
                AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NULL) IS NULL THEN -1 ELSE 0 END;
        END IF;
        -- Another session may have claimed it from the log, where a record is claimed once.
        IF $7 <> 1 OR NOT (SELECT m.logged FROM {p:meta} AS m WHERE m.only_row) THEN
            RETURN -1;
        END IF;
        SELECT b.line, b.n, b.token, array_position(b.positions, l.pos) - 1 INTO of_line, of_batch, of_token, nth FROM {p:log} AS l CROSS JOIN {p:batches} AS b
            WHERE l.id = $5 AND b.line = l.line AND b.n >= (SELECT low FROM {p:batches} WHERE line = l.line ORDER BY n DESC LIMIT 1)
                AND b.owner = $6 AND b.open > 0 AND b.positions @> ARRAY[l.pos] LIMIT 1;
        IF NOT FOUND THEN
            RETURN -1;
        END IF;
    END LOOP;
END
$outmill$;

-- Whether the record $1 exists and is not processed: then it may be delivered.
CREATE FUNCTION {p:may_come}(uuid) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $outmill$
BEGIN
    IF (SELECT 1 FROM {p:records} AS r WHERE r.id = $1 AND r.stage <> 6) IS NOT NULL THEN
        RETURN true;
    END IF;
    IF NOT (SELECT m.logged FROM {p:meta} AS m WHERE m.only_row) THEN
        RETURN false;
    END IF;
    RETURN (SELECT 1 FROM {p:log} AS l WHERE l.id = $1 AND (NOT {p:log_passed}(l.line, l.xid, l.pos)
        OR (SELECT 1 FROM {p:batches} AS b WHERE b.line = l.line AND b.n >= (SELECT low FROM {p:batches} WHERE line = l.line ORDER BY n DESC LIMIT 1)
            AND b.positions @> ARRAY[l.pos] AND CASE WHEN b.open > 0 THEN get_bit(b.done, array_position(b.positions, l.pos) - 1) = 0 END
            AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.n = b.n AND e.token = b.token LIMIT 1) IS NULL LIMIT 1) IS NOT NULL) LIMIT 1) IS NOT NULL;
END
$outmill$;
