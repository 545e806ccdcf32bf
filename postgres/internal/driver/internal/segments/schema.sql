
-- Who has the turn of the upkeep, until when, and when the last one ended.
CREATE TABLE {p:upkeep} (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    turn     bigint NOT NULL DEFAULT 0,
    until    bigint NOT NULL DEFAULT 0,
    ended_at bigint NOT NULL DEFAULT 0
);
INSERT INTO {p:upkeep} DEFAULT VALUES;

-- The segments of which nothing is needed up to pos, and that are truncated as soon as no snapshot from before may come to read them: it is
-- that of a session whose xmin is not above xid. All such snapshots are heeded until heed_until.
CREATE TABLE {p:retired} (
    segment    integer NOT NULL PRIMARY KEY,
    heed_until bigint  NOT NULL DEFAULT 0,
    retired_at bigint  NOT NULL,
    pos        bigint  NOT NULL,
    xid        xid8    NOT NULL
);

-- The identity of this server; '' is that the role may not ask for it.
CREATE FUNCTION {p:server_now}() RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $outmill$
BEGIN
    IF has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') THEN
        RETURN (SELECT c.system_identifier::text FROM pg_control_system() AS c);
    END IF;
    RETURN '';
END
$outmill$;

-- The server that has given the log's transaction numbers, and the transaction that noted it. Where the row is one of another transaction, a dump was
-- restored, also to a server with the same identity, or another program has copied the row.
CREATE TABLE {p:server} (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    identity text NOT NULL,
    noted_by xid8 NOT NULL DEFAULT pg_current_xact_id()
);
INSERT INTO {p:server} (identity) VALUES ({p:server_now}());

-- Keeps others from writing to the table until the end of the transaction, or returns false if a transaction has written to it.
CREATE FUNCTION {p:segment_stop}(text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $outmill$
BEGIN
    EXECUTE 'LOCK TABLE ' || $1::regclass || ' IN SHARE MODE';
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$outmill$;

-- Truncates a segment, or returns false if a session reads it.
CREATE FUNCTION {p:segment_truncate}(text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $outmill$
BEGIN
    EXECUTE 'LOCK TABLE ' || $1::regclass || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE 'TRUNCATE ' || $1::regclass;
    RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN false;
END
$outmill$;

-- Makes the log one of this server, where its transaction numbers mean nothing: they still compare among themselves. What a number says is
-- written as places, and each row gets a number that every snapshot shows. $1 to $4 are the chains of the lines with their begins. The caller
-- has the tables alone.
CREATE FUNCTION {p:segment_adapt}(text[], bigint[], bigint[], text[]) RETURNS void LANGUAGE plpgsql AS $outmill$
DECLARE
    shown CONSTANT xid8 := '3';
    here CONSTANT xid8 := pg_current_xact_id();
BEGIN
    UPDATE {p:batches} AS b SET positions = ARRAY(SELECT r.pos FROM {p:log_rows_of}(b) AS r ORDER BY r.ordinal)
        WHERE b.size > 0 AND b.positions IS NULL;
    -- Chains that have read nothing get a cursor at their begin.
    INSERT INTO {p:batches} (topic, chain, n, pos, bound, horizon, seen, since, low, from_pos, lease_until, token, size, owner, worker)
        SELECT c.topic, c.chain, greatest(c.pos, 0), c.pos, -1, '0', coalesce(nullif(c.seen, ''), '3:3:')::pg_snapshot, ARRAY[c.pos], greatest(c.pos, 0), c.pos, 0, 0, 0, '', ''
        FROM unnest($1, $2, $3, $4) AS c (topic, chain, pos, seen)
        WHERE (SELECT 1 FROM {p:batches} AS b WHERE b.topic = c.topic AND b.chain = c.chain LIMIT 1) IS NULL;
    WITH old AS (DELETE FROM {p:left_rows} RETURNING *)
    INSERT INTO {p:left_rows} (topic, chain, xid, from_pos, to_pos) SELECT DISTINCT k.topic, k.chain, shown, k.pos - 1, k.pos FROM (
        SELECT o.topic, o.chain, l.pos FROM old AS o JOIN {p:log} AS l ON l.topic = o.topic AND l.pos > o.from_pos AND l.pos <= o.to_pos AND l.xid = o.xid
        UNION ALL SELECT b.topic, b.chain, l.pos FROM {p:batches} AS b JOIN {p:log} AS l ON l.topic = b.topic AND l.pos <= b.pos
            AND l.xid >= pg_snapshot_xmin(b.seen) AND NOT pg_visible_in_snapshot(l.xid, b.seen)
            WHERE b.n = (SELECT i.n FROM {p:batches} AS i WHERE i.topic = b.topic AND i.chain = b.chain ORDER BY i.n DESC LIMIT 1)) AS k;
    INSERT INTO {p:batches} (topic, chain, n, pos, bound, horizon, seen, since, low, from_pos, lease_until, token, size, owner, worker)
        SELECT b.topic, b.chain, b.n + 1, b.pos, b.pos, here, (here::text || ':' || here::text || ':')::pg_snapshot, ARRAY[b.pos], b.low, b.pos, 0, 0, 0, '', ''
        FROM {p:batches} AS b WHERE b.n = (SELECT i.n FROM {p:batches} AS i WHERE i.topic = b.topic AND i.chain = b.chain ORDER BY i.n DESC LIMIT 1);
    -- A range ends before each row that it does not cover, and goes on behind it.
    WITH old AS (DELETE FROM {p:skip_ranges} WHERE seen IS NOT NULL RETURNING *),
    ends AS (SELECT o.topic, o.chain, o.from_pos, o.to_pos, l.pos FROM old AS o JOIN {p:log} AS l ON l.topic = o.topic AND l.pos > o.from_pos AND l.pos <= o.to_pos
            AND l.xid >= pg_snapshot_xmin(o.seen) AND NOT pg_visible_in_snapshot(l.xid, o.seen)
        UNION ALL SELECT o.topic, o.chain, o.from_pos, o.to_pos, o.to_pos + 1 FROM old AS o),
    parts AS (SELECT e.topic, e.chain, lag(e.pos, 1, e.from_pos) OVER (PARTITION BY e.topic, e.chain, e.to_pos ORDER BY e.pos) AS from_pos, e.pos - 1 AS to_pos FROM ends AS e)
    INSERT INTO {p:skip_ranges} (topic, chain, from_pos, to_pos) SELECT p.topic, p.chain, p.from_pos, p.to_pos FROM parts AS p WHERE p.from_pos < p.to_pos;
    -- Not by UPDATE, which a publication refuses for a table without an identity.
    CREATE TEMPORARY TABLE outmill_kept ON COMMIT DROP AS SELECT * FROM {p:log};
    TRUNCATE {p:log_0}, {p:log_1}, {p:log_2};
    INSERT INTO {p:log_0} (xid, pos, created_at, event, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload)
        SELECT shown, k.pos, k.created_at, k.event, k.id, k.topic, k.key, k.message_id, k.tenant_id, k.correlation_id, k.causation_id, k.traceparent, k.tracestate, k.dedup_key,
            k.metadata, k.payload FROM outmill_kept AS k ORDER BY k.pos;
    DELETE FROM {p:retired};
END
$outmill$;
