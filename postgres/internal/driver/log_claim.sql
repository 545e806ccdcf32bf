-- The claim of its own, of rows of the log that nothing else of their line concerns: see "A claim of its own" in docs/postgres-log.md.

-- What the chain has next, of one snapshot: seen. given is how many rows behind the cursor the claim may take, up to the place upto; 0 is that
-- there is none. The rows end before one with which all are larger than most. low is the first batch in work. of_open are the blockers that do not block
-- the claim, and of_paused those of the pauses of the line. given is NULL if another claim must decide:
--   the schema or the stamp of the history is another one, or a pause has changed;
--   the line has records that are ready or due, rows that wait to be adopted, or a note that the claim must look at;
--   the chain has rows that were left or late, or a batch whose lease has ended;
--   one of the rows is skipped, or its key or tenant is paused;
--   with keyed, one of the keys is held, waits for a retry, is leased, or is in another owner's batch; with alone, any key is; with parks, one is parked;
--   a row is larger than largest, or the first one than most.
CREATE FUNCTION {p:log_next}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, of_version integer, of_stamp bigint, of_pauses bigint, of_group text,
    of_owner text, want bigint, most bigint, largest bigint, parks boolean, alone boolean, keyed boolean,
    of_open text[], of_paused text[], paused_keys text[], paused_tenants text[], OUT cur {p:log_cursor}, OUT low bigint, OUT upto bigint,
    OUT given bigint, OUT seen pg_snapshot) LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    -- One time, so that the searches by it use the index.
    moment CONSTANT bigint := {p:now}();
    others boolean;
    over boolean;
    bytes bigint;
    largest_row bigint;
    many bigint;
    -- The keys that are paused, and those of records that are held, wait or are leased.
    busy text[] := paused_keys;
    held text[];
    noted bigint;
    asked boolean;
    met boolean;
    parked boolean := false;
BEGIN
    IF (SELECT e.stamp FROM {p:events} AS e) IS DISTINCT FROM of_stamp OR (SELECT m.pauses FROM {p:meta} AS m
            WHERE m.version >= of_version AND m.compatible <= of_version) IS DISTINCT FROM of_pauses
        OR EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 0)
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
            held := ARRAY(SELECT r.key FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 2 AND r.wake_at <> 0 LIMIT 501)
                || ARRAY(SELECT r.key FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 4 AND r.wake_at <> 0 LIMIT 501);
            IF cardinality(held) > (CASE WHEN alone THEN 0 ELSE 500 END) THEN
                RETURN;
            END IF;
            busy := busy || held;
        END IF;
    END IF;
    -- Each row that is held has its note.
    IF EXISTS (SELECT 1 FROM {p:notes} AS t WHERE t.grp = of_group AND t.topic = of_topic) THEN
        SELECT count(*), bool_or(alone OR t.blocker = ANY (of_open) OR t.look_at <> 0 AND t.look_at <= moment
                OR t.blocker >= 'p' AND t.blocker < 'r' AND t.blocker NOT IN (SELECT u.blocker FROM unnest(of_paused) AS u (blocker))
                OR CASE WHEN keyed THEN t.name >= 'q' AND t.name < 'r' ELSE t.name >= 'k' AND t.name < 'l' END),
            coalesce(array_agg(substr(t.name, 2)) FILTER (WHERE keyed AND t.name >= 'k' AND t.name < 'l'), '{}') INTO noted, asked, held
            FROM (SELECT n.* FROM {p:notes} AS n WHERE n.grp = of_group AND n.topic = of_topic LIMIT 501) AS t;
        IF asked OR noted > 500 THEN
            RETURN;
        END IF;
        busy := busy || held;
    ELSIF EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 1) THEN
        RETURN;
    END IF;
    IF parks THEN
        parked := EXISTS (SELECT 1 FROM {p:records} AS r WHERE r.grp = of_group AND r.topic = of_topic AND r.stage = 6 AND r.stage > 4);
    END IF;
    cur := {p:log_cursor_of}(of_topic, of_chain, begin_pos, begin_seen);
    IF EXISTS (SELECT 1 FROM {p:left_rows} AS k WHERE k.topic = of_topic AND k.chain = of_chain) THEN
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
    SELECT count(*), max(p.pos), coalesce(sum(p.size), 0), max(p.size), bool_or((p.key IN (SELECT u.key FROM unnest(busy) AS u (key))) IS TRUE)
        INTO many, upto, bytes, largest_row, met
        FROM (SELECT l.pos, l.key, {p:log_size}(l) AS size FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos ORDER BY l.pos LIMIT want) AS p;
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
    IF EXISTS (SELECT 1 FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > cur.pos AND s.pos <= upto)
        OR (SELECT g.from_pos FROM {p:skip_ranges} AS g WHERE g.topic = of_topic AND g.chain = of_chain AND g.to_pos > cur.pos
            ORDER BY g.to_pos LIMIT 1) < upto THEN
        RETURN;
    END IF;
    -- Each condition has a search of its own behind it: a search that nobody needs is neither planned nor begun.
    IF cardinality(paused_tenants) > 0 THEN
        IF EXISTS (SELECT 1 FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos AND l.pos <= upto
                AND (l.tenant_id IN (SELECT u.tenant FROM unnest(paused_tenants) AS u (tenant))) IS TRUE) THEN
            RETURN;
        END IF;
    END IF;
    IF keyed AND others THEN
        IF EXISTS (SELECT 1 FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.pos AND l.pos <= upto AND (l.key IN (
                SELECT k.key FROM {p:log_in_work}(of_topic, of_chain) AS b CROSS JOIN LATERAL {p:log_keys_of}(b) AS k (key) WHERE b.owner <> of_owner)) IS TRUE) THEN
            RETURN;
        END IF;
    END IF;
    -- The bytes may have left out the rows that have these keys.
    IF met THEN
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
    of_open text[], of_paused text[], paused_keys text[], paused_tenants text[], of_lock bigint, OUT number bigint, OUT given bigint, OUT until bigint) LANGUAGE plpgsql AS $outmill$
DECLARE
    next record;
BEGIN
    IF of_lock <> 0 AND NOT pg_try_advisory_xact_lock(of_lock) THEN
        given := 0;
        RETURN;
    END IF;
    -- A statement of its own, so that its snapshot is behind the lock. What comes behind the cursor is searched before the transaction has a number.
    SELECT * INTO next FROM {p:log_next}(of_topic, of_chain, begin_pos, begin_seen, of_version, of_stamp, of_pauses, of_group, of_owner, want, most, largest, parks, alone, keyed,
        of_open, of_paused, paused_keys, paused_tenants);
    given := next.given;
    IF given > 0 THEN
        until := {p:now}() + lease;
        number := {p:log_batch}(of_topic, of_chain, next.cur, next.seen, next.upto, next.upto, next.low, until, of_token, given::integer, of_owner, of_worker, NULL);
    END IF;
END
$outmill$;
