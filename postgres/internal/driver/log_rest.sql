-- Whether the store rests: see driver.Rest in package engine. ask has the version of the program, how long processed rows are kept, the kinds
-- of entries that end and how long each is kept, and what the process knows of the log: the stamp of the history, the topics that the log
-- has, and all their chains with the begins. unread says that somebody reads a chain, or will; small is the size at
-- which the segment of the appends may need the upkeep. NULL is that the process knows too little. A record that is due later, a lease and a hold are in the index of wake_at or stage.
CREATE FUNCTION {p:resting}(ask jsonb) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
DECLARE
    moment bigint := {p:now}();
    this record;
BEGIN
    IF (SELECT 1 FROM {p:meta} AS m WHERE m.version >= (ask->>'version')::integer AND m.compatible <= (ask->>'version')::integer) IS NULL
        OR (SELECT e.stamp FROM {p:events} AS e) IS DISTINCT FROM (ask->>'stamp')::bigint THEN
        RETURN NULL;
    END IF;
    IF (SELECT 1 FROM {p:records} AS r WHERE r.stage = 0 LIMIT 1) IS NOT NULL OR (SELECT 1 FROM {p:records} AS r WHERE r.stage = 1 LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM {p:records} AS r WHERE r.wake_at <> 0 LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM {p:records} AS r WHERE r.stage - 5 = 0 AND r.processed_at <= moment - (ask->>'processed')::bigint
            ORDER BY r.processed_at, r.seq LIMIT 1) IS NOT NULL THEN
        RETURN false;
    END IF;
    FOR this IN SELECT * FROM jsonb_to_recordset(ask->'ends') AS k (kind text, kept bigint) LOOP
        IF (SELECT 1 FROM {p:entries} AS e WHERE e.kind = this.kind AND e.at <> 0 AND e.at <= moment - this.kept ORDER BY e.at, e.key LIMIT 1) IS NOT NULL THEN
            RETURN false;
        END IF;
    END LOOP;
    FOR this IN SELECT l.topic FROM {p:log_lines}() AS l (topic) LOOP
        IF NOT ask->'topics' ? this.topic THEN
            RETURN NULL;
        END IF;
    END LOOP;
    FOR this IN SELECT * FROM jsonb_to_recordset(ask->'chains') AS c (topic text, chain bigint, pos bigint, seen text, unread boolean) LOOP
        IF {p:log_any}(this.topic, this.chain, this.pos, nullif(this.seen, '')::pg_snapshot, this.unread) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN (SELECT bool_and(CASE WHEN m.segment = s.nth THEN pg_relation_size(s.of) < (ask->>'small')::bigint ELSE pg_relation_size(s.of) = 0 END)
        FROM {p:meta} AS m CROSS JOIN (VALUES (0, {q:log_0}::regclass), (1, {q:log_1}::regclass), (2, {q:log_2}::regclass)) AS s (nth, of));
END
$outmill$;

-- What the functions calls return for asks: resting of several schemas, as a text of t, f, and ? for NULL. One that fails does not rest, for
-- example because its schema was dropped, or because it waits for a lock.
CREATE FUNCTION {p:resting_of}(calls text[], asks text[]) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $outmill$
DECLARE
    answers text := '';
    answer boolean;
BEGIN
    FOR i IN 1..cardinality(calls) LOOP
        BEGIN
            EXECUTE 'SELECT ' || calls[i] || '($1)' INTO answer USING asks[i]::jsonb;
        EXCEPTION WHEN OTHERS THEN
            answer := false;
        END;
        answers := answers || CASE WHEN answer THEN 't' WHEN NOT answer THEN 'f' ELSE '?' END;
    END LOOP;
    RETURN answers;
END
$outmill$;
