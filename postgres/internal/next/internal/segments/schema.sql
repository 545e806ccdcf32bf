
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
