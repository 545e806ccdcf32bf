-- Whether a group has nothing that a claim could take, and no row waits for its first group: see driver.Looker in package engine. lines are
-- those of the look, or NULL for all of the group. The chains with their begins are those of the group in the log; without lines, topics are
-- all that the process has seen in the log. NULL is that the process knows too little.
CREATE FUNCTION {p:quiet}(of_group text, of_version integer, of_stamp bigint, of_pauses bigint, lines text[], topics text[],
    chain_topics text[], chains bigint[], places bigint[], seen text[]) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $outmill$
DECLARE
    this record;
BEGIN
    IF (SELECT m.pauses FROM {p:meta} AS m WHERE m.version >= of_version AND m.compatible <= of_version) IS DISTINCT FROM of_pauses
        OR (SELECT e.stamp FROM {p:events} AS e) IS DISTINCT FROM of_stamp THEN
        RETURN NULL;
    END IF;
    IF (SELECT 1 FROM {p:records} AS r WHERE r.grp = '' AND r.stage IN (0, 3) LIMIT 1) IS NOT NULL THEN
        RETURN false;
    END IF;
    IF lines IS NULL THEN
        IF (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.stage = 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.stage = 1 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.wake_at <> 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:notes} AS n WHERE n.grp = of_group AND true LIMIT 1) IS NOT NULL THEN
            RETURN false;
        END IF;
        FOR this IN SELECT l.topic FROM {p:log_lines}() AS l (topic) LOOP
            IF this.topic <> ALL (topics) THEN
                RETURN NULL;
            END IF;
        END LOOP;
    ELSIF (SELECT 1 FROM unnest(lines) AS u (topic) WHERE
            (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = u.topic AND r.stage = 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = u.topic AND r.stage = 1 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = u.topic AND r.wake_at <> 0 LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:notes} AS n WHERE n.grp = of_group AND n.topic = u.topic AND true LIMIT 1) IS NOT NULL LIMIT 1) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- A chain that has nothing in work, and no row that its cursor has not passed, needs no page. Most are so.
    FOR this IN SELECT c.* FROM unnest(chain_topics, chains, places, seen) AS c (topic, chain, pos, seen)
        CROSS JOIN LATERAL {p:log_cursor_of}(c.topic, c.chain, c.pos, nullif(c.seen, '')::pg_snapshot) AS k
        WHERE (SELECT 1 FROM {p:log} AS l WHERE l.topic = c.topic AND l.pos > k.pos LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:left_rows} AS w WHERE w.topic = c.topic AND w.chain = c.chain LIMIT 1) IS NOT NULL
            OR k.late AND (SELECT 1 FROM {p:log_late}(c.topic, c.chain, k) LIMIT 1) IS NOT NULL
            OR (SELECT 1 FROM {p:log_in_work}(c.topic, c.chain) LIMIT 1) IS NOT NULL LOOP
        IF {p:log_due}(this.topic, this.chain, this.pos, nullif(this.seen, '')::pg_snapshot, {p:now}()) IS NOT NULL THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$outmill$;
