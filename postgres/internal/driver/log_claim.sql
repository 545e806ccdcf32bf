-- The claim of its own of a line whose rows of the log are all that it has: see "A claim of its own" in docs/postgres-log.md.

-- What the chain has next, of one snapshot: seen. given is how many rows behind the cursor the claim may take, up to the place upto; 0 is that
-- there is none. It is NULL if another claim must decide: the schema or the stamp of the history is another one, a pause has changed, the line has notes, or
-- records that are ready, held or due, or rows that wait to be adopted, the chain has rows that were left, late or skipped, or a batch whose lease
-- has ended, with keyed one of the keys waits for a retry, is leased or in another owner's batch (with alone: any), or, with parks, parked, or a row is
-- larger than largest, or the first one than most. The rows end before one with which all are larger than most. low is the first batch in work.
CREATE FUNCTION {p:log_next}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, of_version integer, of_stamp bigint, of_pauses bigint, of_group text,
    of_owner text, want bigint, most bigint, largest bigint, parks boolean, alone boolean, keyed boolean, OUT cur {p:log_cursor}, OUT low bigint, OUT upto bigint,
    OUT given bigint, OUT seen pg_snapshot) LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    -- One time, so that the searches by it use the index.
    moment CONSTANT bigint := {p:now}();
    others boolean;
    over boolean;
    bytes bigint;
    largest_row bigint;
    many bigint;
    -- The keys of records that wait or are leased.
    busy text[] := '{}';
    parked boolean := false;
BEGIN
    IF (SELECT e.stamp FROM {p:events} AS e) IS DISTINCT FROM of_stamp OR (SELECT m.pauses FROM {p:meta} AS m
            WHERE m.version >= of_version AND m.compatible <= of_version) IS DISTINCT FROM of_pauses
        OR EXISTS (SELECT 1 FROM {p:notes} AS t WHERE t.grp = of_group AND t.topic = of_topic)
        OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 0)
        OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 1)
        OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = '' AND r.stage IN (0, 3) AND r.topic = of_topic) THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.wake_at <> 0) THEN
        IF EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 2 AND r.wake_at <> 0 AND r.wake_at <= moment)
            OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 3 AND r.wake_at <> 0 AND r.wake_at <= moment)
            OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 4 AND r.wake_at <> 0 AND r.wake_at <= moment)
        THEN
            RETURN;
        END IF;
        IF keyed OR alone THEN
            busy := ARRAY(SELECT r.key FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 2 AND r.wake_at <> 0 LIMIT 501)
                || ARRAY(SELECT r.key FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 4 AND r.wake_at <> 0 LIMIT 501);
            IF cardinality(busy) > (CASE WHEN alone THEN 0 ELSE 500 END) THEN
                RETURN;
            END IF;
        END IF;
    END IF;
    IF parks THEN
        parked := EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 6 AND r.stage > 4);
    END IF;
    cur := {p:log_cursor_of}(of_topic, of_chain, begin_pos, begin_seen);
    IF EXISTS (SELECT 1 FROM {p:left_rows} AS k WHERE k.topic = of_topic AND k.chain = of_chain)
        OR EXISTS (SELECT 1 FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > cur.pos)
        OR EXISTS (SELECT 1 FROM {p:skip_ranges} AS g WHERE g.topic = of_topic AND g.chain = of_chain AND g.to_pos > cur.pos) THEN
        RETURN;
    END IF;
    IF cur.late THEN
        IF EXISTS (SELECT 1 FROM {p:log_late}(of_topic, of_chain, cur)) THEN
            RETURN;
        END IF;
    END IF;
    SELECT min(b.n), coalesce(bool_or(b.lease_until <= moment), false), coalesce(bool_or(b.owner <> of_owner), false) INTO low, over, others
        FROM {p:log_in_work}(of_topic, of_chain) AS b;
    IF over OR others AND alone THEN
        RETURN;
    END IF;
    seen := pg_current_snapshot();
    SELECT count(*), max(p.pos), coalesce(sum(p.size), 0), max(p.size) INTO many, upto, bytes, largest_row
        FROM (SELECT l.pos, {p:log_size}(l) AS size FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos ORDER BY l.pos LIMIT want) AS p;
    IF largest_row > largest THEN
        RETURN;
    END IF;
    IF bytes > most THEN
        SELECT count(*), max(s.pos) INTO many, upto FROM (
            SELECT p.pos, sum(p.size) OVER (ORDER BY p.pos ROWS UNBOUNDED PRECEDING) AS total
            FROM (SELECT l.pos, {p:log_size}(l) AS size FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos ORDER BY l.pos LIMIT want) AS p) AS s
        WHERE s.total <= most;
        IF many = 0 THEN
            RETURN;
        END IF;
    END IF;
    -- Each condition has a search of its own behind it: a search that nobody needs is neither planned nor begun.
    IF keyed AND others THEN
        IF EXISTS (SELECT 1 FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos AND l.pos <= upto AND (l.key IN (
                SELECT k.key FROM {p:log_in_work}(of_topic, of_chain) AS b CROSS JOIN LATERAL {p:log_keys_of}(b) AS k (key) WHERE b.owner <> of_owner)) IS TRUE) THEN
            RETURN;
        END IF;
    END IF;
    IF cardinality(busy) > 0 THEN
        IF EXISTS (SELECT 1 FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos AND l.pos <= upto
                AND (l.key IN (SELECT u.key FROM unnest(busy) AS u (key))) IS TRUE) THEN
            RETURN;
        END IF;
    END IF;
    IF parked THEN
        IF EXISTS (SELECT 1 FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos AND l.pos <= upto
                AND (SELECT 1 FROM {p:records} AS r WHERE r.lane = hashtextextended(l.key, hashtextextended(of_topic, hashtextextended(of_group, 0)))
                    AND r.parked AND r.grp = of_group AND r.topic = of_topic AND r.key = l.key LIMIT 1) IS NOT NULL) THEN
            RETURN;
        END IF;
    END IF;
    given := many;
END
$outmill$;

-- Leases what log_next finds, for lease microseconds, as one batch that is a range. The caller has the chain's lock, or names it with of_lock: then
-- a chain that another transaction has gives nothing. It returns the number of the batch, how many rows it has (NULL: see log_next), and until
-- when they are leased.
CREATE FUNCTION {p:log_claim}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, of_version integer, of_stamp bigint, of_pauses bigint, of_group text,
    of_owner text, of_worker text, of_token bigint, lease bigint, want bigint, most bigint, largest bigint, parks boolean, alone boolean, keyed boolean,
    of_lock bigint, OUT number bigint, OUT given bigint, OUT until bigint) LANGUAGE plpgsql AS $outmill$
DECLARE
    next record;
BEGIN
    IF of_lock <> 0 AND NOT pg_try_advisory_xact_lock(of_lock) THEN
        given := 0;
        RETURN;
    END IF;
    -- A statement of its own, so that its snapshot is behind the lock. What comes behind the cursor is searched before the transaction has a number.
    SELECT * INTO next FROM {p:log_next}(of_topic, of_chain, begin_pos, begin_seen, of_version, of_stamp, of_pauses, of_group, of_owner, want, most, largest, parks, alone, keyed);
    given := next.given;
    IF given > 0 THEN
        until := {p:now}() + lease;
        number := {p:log_batch}(of_topic, of_chain, next.cur, next.seen, next.upto, next.upto, next.low, until, of_token, given::integer, of_owner, of_worker, NULL);
    END IF;
END
$outmill$;
