-- Rights with the log, besides those of the records.
-- Who publishes. A row is written to a segment by its name. This must not read the log:
-- GRANT INSERT ON {p:log_0}, {p:log_1}, {p:log_2} TO publisher
-- GRANT USAGE ON SEQUENCE {p:records_seq_seq} TO publisher
-- GRANT SELECT ON {p:events}, {p:server} TO publisher
-- Who publishes messages with ids of its own, besides publishing:
-- GRANT SELECT (id) ON {p:log} TO namer
-- Who subscribes or forwards, and operates:
-- GRANT INSERT ON {p:records} TO worker
-- GRANT SELECT ON {p:log} TO worker
-- GRANT SELECT, INSERT, UPDATE ON {p:batches} TO worker
-- GRANT SELECT, INSERT ON {p:ended}, {p:skips}, {p:skip_ranges} TO worker
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {p:left_rows} TO worker
-- GRANT SELECT, INSERT, UPDATE ON {p:readings} TO worker
-- GRANT SELECT, UPDATE ON {p:events} TO worker
-- GRANT SELECT ON {p:server} TO worker
-- GRANT SELECT ON SEQUENCE {p:records_seq_seq} TO worker
-- One of those at least, which then gives the log's space back, and makes a log that was restored here one of this server. For that it
-- needs TEMPORARY on the database, too, which is everybody's unless it was revoked:
-- GRANT SELECT, INSERT, TRUNCATE ON {p:log_0} TO keeper
-- GRANT SELECT, TRUNCATE ON {p:log_1}, {p:log_2} TO keeper
-- GRANT DELETE ON {p:batches}, {p:ended}, {p:skips} TO keeper
-- GRANT UPDATE, DELETE ON {p:skip_ranges} TO keeper
-- GRANT SELECT, UPDATE ON {p:upkeep} TO keeper
-- GRANT UPDATE ON {p:server} TO keeper
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {p:retired} TO keeper
-- Who looks on:
-- GRANT SELECT ON {p:log}, {p:batches}, {p:ended}, {p:left_rows}, {p:skips}, {p:skip_ranges}, {p:readings}, {p:events}, {p:server} TO reader
-- Functions, where those of everybody were revoked:
-- GRANT EXECUTE ON FUNCTION {p:server_now} TO publisher, worker, reader
-- GRANT EXECUTE ON FUNCTION {p:log_any}, {p:log_copy_id}, {p:log_cursor_of}, {p:log_in_work}, {p:log_late} TO worker, reader
-- GRANT EXECUTE ON FUNCTION {p:log_lines}, {p:log_page}, {p:log_places}, {p:log_rows_of}, {p:log_size} TO worker, reader
-- GRANT EXECUTE ON FUNCTION {p:log_skipped}, {p:log_unread} TO worker, reader
-- GRANT EXECUTE ON FUNCTION {p:log_batch}, {p:log_change_leased}, {p:log_change_unread}, {p:log_claim}, {p:log_dropped} TO worker
-- GRANT EXECUTE ON FUNCTION {p:log_due}, {p:log_extend_rows}, {p:log_keys_of}, {p:log_known}, {p:log_move_ended} TO worker
-- GRANT EXECUTE ON FUNCTION {p:log_move_leased}, {p:log_move_read}, {p:log_next}, {p:log_open_notes}, {p:log_registered} TO worker
-- GRANT EXECUTE ON FUNCTION {p:log_settle}, {p:log_skip}, {p:log_swept}, {p:log_take}, {p:quiet}, {p:resting}, {p:resting_of} TO worker
-- GRANT EXECUTE ON FUNCTION {p:log_leased}, {p:segment_adapt}, {p:segment_stop}, {p:segment_truncate} TO keeper
-- GRANT EXECUTE ON FUNCTION {p:log_chains}, {p:log_mask}, {p:log_numbered}, {p:selects}, {p:topic_matches} TO reader
--
-- The log: see docs/postgres-log.md. xid stands before pos, so a transaction has its number before it has a place. topic names the line of
-- the topic and part. Rows are never updated or deleted. NULL is an empty text, of message_id the text of id. event is the last event of the
-- registrations that the append knew, from which the ids of the row's copies follow. The log is read by this table, which has no rows of its
-- own: they are in the segments, and an append writes to one of these.
CREATE TABLE {p:log} (
    xid            xid8   NOT NULL DEFAULT pg_current_xact_id(),
    pos            bigint NOT NULL DEFAULT nextval({q:records_seq_seq}),
    created_at     bigint NOT NULL,
    event          bigint NOT NULL DEFAULT 0,
    id             uuid   NOT NULL,
    topic          text COLLATE "C" NOT NULL, -- as in the records
    key            text COLLATE "C",
    message_id     text COLLATE "C",
    tenant_id      text COLLATE "C",
    correlation_id text COLLATE "C",
    causation_id   text COLLATE "C",
    traceparent    text COLLATE "C",
    tracestate     text COLLATE "C",
    dedup_key      text COLLATE "C",
    metadata       text COLLATE "C", -- a JSON object
    payload        bytea,
    -- No row can be so. Each search names one of these columns, so that the planner leaves the table itself out, which has no index: with it
    -- the order of the places costs a sort.
    CHECK (topic IS NULL AND id IS NULL AND pos IS NULL) NO INHERIT
);

-- The segments. A child of a table has no column for the segment, which a partition would need.
CREATE TABLE {p:log_0} () INHERITS ({p:log})
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE {p:log_1} () INHERITS ({p:log})
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE {p:log_2} () INHERITS ({p:log})
WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);

-- The next rows of a topic line, and those of one transaction between two places.
CREATE INDEX {i:log_0_next} ON {p:log_0} (topic, pos, xid);
CREATE INDEX {i:log_1_next} ON {p:log_1} (topic, pos, xid);
CREATE INDEX {i:log_2_next} ON {p:log_2} (topic, pos, xid);

-- One row for each claim of a chain. The newest one is the chain's cursor: it was read up to pos, as of the snapshot seen. Transactions
-- from horizon on have no place up to bound. since has, for each transaction that seen has in progress, a place behind which all
-- its rows are, and, last, such a place for those from the end of seen on. The batch is the rows at positions or, if that is NULL, all
-- rows behind from_pos and up to pos that seen shows. done has a bit for each row in the order of the places (NULL: none is done).
-- No batch before low is in work.
CREATE TABLE {p:batches} (
    chain       bigint      NOT NULL,
    n           bigint      NOT NULL,
    pos         bigint      NOT NULL,
    bound       bigint      NOT NULL,
    horizon     xid8        NOT NULL,
    low         bigint      NOT NULL,
    from_pos    bigint      NOT NULL,
    lease_until bigint      NOT NULL,
    token       bigint      NOT NULL, -- a crash may undo a claim, and another one then has its number
    size        integer     NOT NULL, -- 0: the claim has leased nothing
    topic       text COLLATE "C" NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    worker      text COLLATE "C" NOT NULL,
    seen        pg_snapshot NOT NULL,
    since       bigint[]    NOT NULL,
    done        bit varying,
    positions   bigint[],
    PRIMARY KEY (topic, chain, n)
);

-- The batches that are over.
CREATE TABLE {p:ended} (
    chain bigint NOT NULL,
    n     bigint NOT NULL,
    token bigint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, chain, n, token)
);

-- Rows of a transaction that a cursor has passed as finished, and that are still to be read: those behind from_pos, up to to_pos.
CREATE TABLE {p:left_rows} (
    chain    bigint NOT NULL,
    xid      xid8   NOT NULL,
    from_pos bigint NOT NULL,
    to_pos   bigint NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, chain, xid, to_pos)
);

-- Rows that the chain must not read, because they have moved or are deleted.
CREATE TABLE {p:skips} (
    chain bigint NOT NULL,
    pos   bigint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, chain, pos)
);

-- The same for many rows that follow one another in their line: those behind from_pos and up to to_pos, the place of the last one, that the
-- snapshot shows; all of them if it is NULL. Each transaction with rows in it has a number before horizon, which upkeep sets later. Ranges of a
-- chain do not overlap, and a place of skips may be in one.
CREATE TABLE {p:skip_ranges} (
    chain    bigint NOT NULL,
    from_pos bigint NOT NULL,
    to_pos   bigint NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    seen     pg_snapshot,
    horizon  xid8,
    PRIMARY KEY (topic, chain, to_pos)
);

-- The registrations with their history: see logReading. Numbers are those of events, in their order.
CREATE TABLE {p:readings} (
    number     bigint  NOT NULL PRIMARY KEY,
    takes      bigint  NOT NULL, -- 0: it holds
    ended      bigint  NOT NULL, -- 0: it lives
    swept      bigint  NOT NULL, -- 0: what it had not read may still wait
    dropping   boolean NOT NULL,
    begin_pos  bigint  NOT NULL,
    end_pos    bigint  NOT NULL,
    grp        text COLLATE "C" NOT NULL,
    topics     json    NOT NULL,
    begin_seen pg_snapshot NOT NULL,
    end_seen   pg_snapshot
);

-- The number of the last event, and the stamp of the history: a random number that each transaction with an event sets. Numbers may come again
-- after a failover, and the stamp does not. An event begins with the lock of this row.
CREATE TABLE {p:events} (
    last     bigint  NOT NULL,
    stamp    bigint  NOT NULL,
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row) -- a publication needs a key
);
INSERT INTO {p:events} VALUES (0, 0);

CREATE TYPE {p:log_cursor} AS (n bigint, pos bigint, bound bigint, horizon xid8, seen pg_snapshot, since bigint[], rest bigint, late boolean);

-- The cursor of a chain, which begins at the mark $3 and $4. rest is the last of since or, if that is more, what bound says of the same
-- transactions. late says that log_late may find rows of transactions that had not ended: without it nobody needs to ask.
CREATE FUNCTION {p:log_cursor_of}(text, bigint, bigint, pg_snapshot) RETURNS {p:log_cursor} LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    found {p:log_cursor};
BEGIN
    SELECT b.n, b.pos, b.bound, b.horizon, b.seen, b.since, CASE WHEN pg_snapshot_xmax(b.seen) >= b.horizon
            THEN greatest(b.bound, b.since[cardinality(b.since)]) ELSE b.since[cardinality(b.since)] END, false
        INTO found FROM {p:batches} AS b WHERE b.topic = $1 AND b.chain = $2 ORDER BY b.n DESC LIMIT 1;
    IF found.n IS NULL THEN
        found := ROW(NULL, $3, -1, '0'::xid8, $4, array_fill(-1::bigint, ARRAY[(SELECT count(*)::integer + 1 FROM pg_snapshot_xip($4))]), -1, false)::{p:log_cursor};
    END IF;
    found.late := found.rest < found.pos OR cardinality(found.since) > 1;
    RETURN found;
END
$outmill$;

-- The rows that a cursor has passed and that are still to be read, as far as the caller's snapshot shows them: what was left, and the
-- rows of transactions that had not ended in the snapshot of the cursor.
CREATE FUNCTION {p:log_late}(of_topic text, of_chain bigint, cur {p:log_cursor}) RETURNS TABLE (pos bigint, xid xid8) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    finished xid8[];
    after bigint;
BEGIN
    RETURN QUERY SELECT l.pos, l.xid FROM {p:left_rows} AS k CROSS JOIN LATERAL (SELECT g.pos, g.xid FROM {p:log} AS g
            WHERE g.topic = of_topic AND g.pos > k.from_pos AND g.pos <= k.to_pos AND g.xid = k.xid OFFSET 0) AS l
        WHERE k.topic = of_topic AND k.chain = of_chain;
    SELECT array_agg(p.xid), min(p.since) INTO finished, after FROM ROWS FROM (pg_snapshot_xip(cur.seen), unnest(cur.since)) AS p (xid, since)
        WHERE p.xid IS NOT NULL AND pg_visible_in_snapshot(p.xid, pg_current_snapshot());
    IF after < cur.pos THEN
        RETURN QUERY SELECT l.pos, l.xid FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > after AND l.pos <= cur.pos AND l.xid = ANY (finished);
    END IF;
    IF cur.rest < cur.pos THEN
        RETURN QUERY SELECT l.pos, l.xid FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > cur.rest AND l.pos <= cur.pos
            AND l.xid >= pg_snapshot_xmax(cur.seen);
    END IF;
END
$outmill$;

-- Whether the row of the transaction $4 at the place $3 is skipped.
CREATE FUNCTION {p:log_skipped}(text, bigint, bigint, xid8) RETURNS boolean LANGUAGE sql STABLE AS $outmill$
    SELECT (SELECT 1 FROM {p:skips} AS s WHERE s.topic = $1 AND s.chain = $2 AND s.pos = $3) IS NOT NULL
        OR coalesce((SELECT r.from_pos < $3 AND (r.seen IS NULL OR pg_visible_in_snapshot($4, r.seen))
            FROM {p:skip_ranges} AS r WHERE r.topic = $1 AND r.chain = $2 AND r.to_pos >= $3 ORDER BY r.to_pos LIMIT 1), false)
$outmill$;

-- What a claim of the chain may take: at most want rows, first the late ones, and then those behind the cursor, in the order of their
-- places. The last row returned is the head: the place of the cursor, whether some of the rows behind the cursor are skipped, the snapshot,
-- whether the transaction has no number yet, and, as its size, the place to which the cursor may go if there is no other row (0: it stays).
-- With content it returns metadata and payload, too; where a value is in a table of its own, it is not read there before the caller uses it.
-- It is STABLE, so it reads with the snapshot of the statement that calls it, which may read other tables, too.
CREATE FUNCTION {p:log_page}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, want bigint, content boolean DEFAULT false)
RETURNS TABLE (pos bigint, flag boolean, seen text, fresh boolean, id uuid, created_at bigint, key text, tenant_id text, size bigint, event bigint, message_id text,
    correlation_id text, causation_id text, traceparent text, tracestate text, dedup_key text, metadata text, payload bytea) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}(of_topic, of_chain, begin_pos, begin_seen);
    skipped bigint := least((SELECT s.pos FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > cur.pos ORDER BY s.pos LIMIT 1),
        (SELECT r.from_pos + 1 FROM {p:skip_ranges} AS r WHERE r.topic = of_topic AND r.chain = of_chain AND r.to_pos > cur.pos ORDER BY r.to_pos LIMIT 1));
    ever CONSTANT bigint := 9223372036854775807;
    reach bigint := 0;
    odd boolean := false;
    given bigint;
    more bigint;
    -- The rows behind after and up to until are read next: if inside is not NULL, those that it does not show.
    after bigint := cur.pos;
    until bigint := CASE WHEN skipped IS NULL THEN ever ELSE greatest(skipped - 1, cur.pos) END;
    inside pg_snapshot;
    singles bigint := 0;
    around {p:skip_ranges};
BEGIN
    -- Each by a search of its own: a join might go over the whole line.
    RETURN QUERY SELECT l.pos, true, NULL::text, false, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.size, l.event,
            l.message_id, l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key, CASE WHEN content THEN l.metadata END, CASE WHEN content THEN l.payload END
        FROM (SELECT DISTINCT q.pos FROM {p:log_late}(of_topic, of_chain, cur) AS q WHERE NOT {p:log_skipped}(of_topic, of_chain, q.pos, q.xid)
            ORDER BY q.pos LIMIT want) AS f
        CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = of_topic AND g.pos = f.pos OFFSET 0) AS l ORDER BY l.pos;
    GET DIAGNOSTICS given = ROW_COUNT;
    -- What is before the first skip is read without a look at them. The rows between two ranges are read at once, without the single places
    -- that are skipped there, and a range is jumped over, but for the rows in it that it does not cover.
    LOOP
        RETURN QUERY SELECT l.pos, false, NULL::text, false, l.id, l.created_at, coalesce(l.key, ''), coalesce(l.tenant_id, ''), {p:log_size}(l), l.event,
            l.message_id, l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key, CASE WHEN content THEN l.metadata END, CASE WHEN content THEN l.payload END
            FROM {p:log} AS l WHERE l.topic = of_topic AND l.pos > after AND l.pos <= until AND l.xid >= coalesce(pg_snapshot_xmin(inside), '0'::xid8)
                AND (inside IS NULL OR NOT pg_visible_in_snapshot(l.xid, inside))
                AND (singles = 0 OR l.pos NOT IN (SELECT s.pos FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > after AND s.pos <= until))
            ORDER BY l.pos LIMIT want - given;
        GET DIAGNOSTICS more = ROW_COUNT;
        given := given + more;
        EXIT WHEN given >= want OR until = ever;
        odd := true;
        after := until;
        LOOP
            SELECT r.* INTO around FROM {p:skip_ranges} AS r WHERE r.topic = of_topic AND r.chain = of_chain AND r.to_pos > after ORDER BY r.to_pos LIMIT 1;
            EXIT WHEN around.from_pos IS NULL OR around.from_pos > after OR around.seen IS NOT NULL;
            after := around.to_pos;
        END LOOP;
        inside := CASE WHEN around.from_pos <= after THEN around.seen END;
        until := coalesce(CASE WHEN inside IS NULL THEN around.from_pos ELSE around.to_pos END, ever);
        -- So many single places that the rows between them fill the page, or all.
        SELECT count(*), CASE WHEN count(*) = want - given + 100 THEN max(s.pos) ELSE until END INTO singles, until
            FROM (SELECT s.pos FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > after AND s.pos <= until
                ORDER BY s.pos LIMIT want - given + 100) AS s;
    END LOOP;
    IF given = 0 THEN
        reach := coalesce(greatest((SELECT max(s.pos) FROM {p:skips} AS s WHERE s.topic = of_topic AND s.chain = of_chain AND s.pos > cur.pos),
            (SELECT max(r.to_pos) FROM {p:skip_ranges} AS r WHERE r.topic = of_topic AND r.chain = of_chain AND r.to_pos > cur.pos)), 0);
    END IF;
    RETURN QUERY SELECT cur.pos, odd, pg_current_snapshot()::text, pg_current_xact_id_if_assigned() IS NULL,
        '00000000-0000-0000-0000-000000000000'::uuid, 0::bigint, '', '', reach, 0::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
        NULL::text, NULL::bytea;
END
$outmill$;

-- Takes rows, none of which is skipped, out of a chain. Many that follow one another become one range: the statement that finds that
-- nothing is between them gives the range its snapshot.
CREATE FUNCTION {p:log_skip}(of_topic text, of_chain bigint, places bigint[]) RETURNS void LANGUAGE sql AS $outmill$
    WITH ends AS MATERIALIZED (SELECT min(u.pos) AS first, max(u.pos) AS last FROM unnest(places) AS u (pos)),
    line AS MATERIALIZED (SELECT l.pos FROM {p:log} AS l WHERE cardinality(places) >= 64 AND l.topic = of_topic
        AND l.pos >= (SELECT e.first FROM ends AS e) AND l.pos <= (SELECT e.last FROM ends AS e) ORDER BY l.pos LIMIT 2 * cardinality(places)),
    -- Grouped, not joined: the driver joins lists row by row.
    marked AS MATERIALIZED (SELECT b.pos, max(b.own) AS own FROM (SELECT l.pos, 0 AS own FROM line AS l UNION ALL
        SELECT u.pos, 1 FROM unnest(places) AS u (pos) WHERE u.pos <= (SELECT max(l.pos) FROM line AS l)) AS b GROUP BY b.pos),
    runs AS MATERIALIZED (SELECT min(g.pos) AS first, max(g.pos) AS last
        FROM (SELECT b.pos, b.own, count(*) FILTER (WHERE b.own = 0) OVER (ORDER BY b.pos) AS nth FROM marked AS b) AS g
        WHERE g.own = 1 GROUP BY g.nth HAVING count(*) >= 64),
    ranges AS MATERIALIZED (SELECT n.first, n.last FROM runs AS n WHERE (SELECT 1 FROM {p:skip_ranges} AS r WHERE r.topic = of_topic AND r.chain = of_chain
        AND r.to_pos >= n.first AND r.from_pos < n.last LIMIT 1) IS NULL),
    written AS (INSERT INTO {p:skip_ranges} (topic, chain, from_pos, to_pos, seen)
        SELECT of_topic, of_chain, n.first - 1, n.last, pg_current_snapshot() FROM ranges AS n)
    INSERT INTO {p:skips} (topic, chain, pos) SELECT of_topic, of_chain, u.pos FROM unnest(places) AS u (pos)
    WHERE (SELECT 1 FROM ranges AS n WHERE u.pos >= n.first AND u.pos <= n.last LIMIT 1) IS NULL
$outmill$;

-- The number of bytes of a row's content, without reading it.
CREATE FUNCTION {p:log_size}({p:log}) RETURNS bigint LANGUAGE sql STABLE
RETURN coalesce(octet_length($1.payload), 0) + coalesce(octet_length($1.metadata), 0) + octet_length($1.topic) + coalesce(octet_length($1.key), 0)
    + coalesce(octet_length($1.message_id), 36) + coalesce(octet_length($1.tenant_id), 0) + coalesce(octet_length($1.correlation_id), 0)
    + coalesce(octet_length($1.causation_id), 0) + coalesce(octet_length($1.traceparent), 0) + coalesce(octet_length($1.tracestate), 0)
    + coalesce(octet_length($1.dedup_key), 0);

-- Writes the batch that is the next cursor of a chain behind cur, up to upto: the rows at positions or, if that is NULL, all that seen shows. place
-- is one that this transaction had seen before it got its number, and low the first batch in work, if there is one. It returns the number of the
-- batch.
CREATE FUNCTION {p:log_batch}(of_topic text, of_chain bigint, cur {p:log_cursor}, page_seen pg_snapshot, place bigint, upto bigint, first_open bigint,
    until bigint, of_token bigint, rows integer, of_owner text, of_worker text, places bigint[]) RETURNS bigint LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    number bigint := coalesce(cur.n, greatest(upto, 0)) + 1;
    to_pos bigint := greatest(upto, cur.pos);
    to_bound bigint := least(place, to_pos);
    to_horizon xid8 := pg_current_xact_id();
    behind bigint := CASE WHEN pg_snapshot_xmax(page_seen) >= cur.horizon THEN greatest(cur.bound, cur.rest) ELSE cur.rest END;
    places_since bigint[];
BEGIN
    IF to_bound <= cur.bound THEN
        to_bound := cur.bound;
        to_horizon := cur.horizon;
    END IF;
    IF pg_snapshot_xmin(page_seen) < pg_snapshot_xmax(page_seen) THEN
        -- For the transactions that were open before the place is copied. Of the others bound says more, if they are not before horizon.
        places_since := ARRAY(SELECT coalesce(CASE WHEN p.xid < pg_snapshot_xmax(cur.seen)
                    THEN (SELECT k.since FROM ROWS FROM (pg_snapshot_xip(cur.seen), unnest(cur.since)) AS k (xid, since) WHERE k.xid = p.xid)
                    WHEN p.xid >= cur.horizon THEN greatest(cur.bound, cur.rest) ELSE cur.rest END, -1)
            FROM pg_snapshot_xip(page_seen) WITH ORDINALITY AS p (xid, nth) ORDER BY p.nth);
    END IF;
    INSERT INTO {p:batches} (topic, chain, n, pos, bound, horizon, seen, since, low, from_pos, lease_until, token, size, owner, worker, positions)
        VALUES (of_topic, of_chain, number, to_pos, to_bound, to_horizon, page_seen, places_since || behind, coalesce(first_open, number), cur.pos, until,
            of_token, rows, of_owner, of_worker, places);
    RETURN number;
END
$outmill$;

-- Moves the cursor of a chain to upto, and leases the rows taken, until that time: all rows between if whole. undecided are rows that the caller
-- was given, up to upto, and that stay to be read; if cut is not NULL, it was given the late rows up to there, and perhaps not all. page_seen
-- is the page's snapshot. place is one that this transaction had seen before it got its number. It returns the number of the batch.
CREATE FUNCTION {p:log_take}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, page_seen pg_snapshot, place bigint,
    upto bigint, taken bigint[], whole boolean, undecided bigint[], cut bigint, until bigint, of_token bigint, of_owner text, of_worker text)
RETURNS bigint LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}(of_topic, of_chain, begin_pos, begin_seen);
BEGIN
    IF cut IS NOT NULL THEN
        UPDATE {p:left_rows} SET from_pos = cut WHERE topic = of_topic AND chain = of_chain AND from_pos < cut AND to_pos > cut;
        INSERT INTO {p:left_rows} (topic, chain, xid, from_pos, to_pos)
            SELECT DISTINCT of_topic, of_chain, q.xid, cut, cur.pos FROM {p:log_late}(of_topic, of_chain, cur) AS q
            WHERE q.pos > cut AND pg_visible_in_snapshot(q.xid, page_seen) AND NOT pg_visible_in_snapshot(q.xid, cur.seen);
    END IF;
    DELETE FROM {p:left_rows} WHERE topic = of_topic AND chain = of_chain AND (cut IS NULL OR to_pos <= cut);
    INSERT INTO {p:left_rows} (topic, chain, xid, from_pos, to_pos)
        SELECT of_topic, of_chain, l.xid, l.pos - 1, l.pos FROM unnest(undecided) AS u (pos)
            CROSS JOIN LATERAL (SELECT g.pos, g.xid FROM {p:log} AS g WHERE g.topic = of_topic AND g.pos = u.pos OFFSET 0) AS l;
    RETURN {p:log_batch}(of_topic, of_chain, cur, page_seen, place, upto, (SELECT w.n FROM {p:log_in_work}(of_topic, of_chain) AS w ORDER BY w.n LIMIT 1),
        until, of_token, cardinality(taken), of_owner, of_worker, CASE WHEN whole THEN NULL ELSE taken END);
END
$outmill$;

-- The batches of a chain that are in work.
CREATE FUNCTION {p:log_in_work}(text, bigint) RETURNS SETOF {p:batches} LANGUAGE sql STABLE AS $outmill$
    -- = ANY (ARRAY[x]): see the changes' statements. The function becomes a part of statements about many chains. Where its operators are: see put_note.
    SELECT b.* FROM {p:batches} AS b
    WHERE b.topic OPERATOR(pg_catalog.=) ANY (ARRAY[$1]) AND b.chain OPERATOR(pg_catalog.=) ANY (ARRAY[$2]) AND b.size OPERATOR(pg_catalog.>) 0
        AND b.n OPERATOR(pg_catalog.>=) (SELECT i.low FROM {p:batches} AS i
            WHERE i.topic OPERATOR(pg_catalog.=) $1 AND i.chain OPERATOR(pg_catalog.=) $2 ORDER BY i.n DESC LIMIT 1)
        AND (SELECT 1 FROM {p:ended} AS e WHERE e.topic OPERATOR(pg_catalog.=) b.topic AND e.chain OPERATOR(pg_catalog.=) b.chain
            AND e.n OPERATOR(pg_catalog.=) b.n AND e.token OPERATOR(pg_catalog.=) b.token) IS NULL
$outmill$;

-- The rows of a batch with their ordinals, those that are done as well.
CREATE FUNCTION {p:log_rows_of}({p:batches}) RETURNS TABLE (ordinal integer, pos bigint) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
BEGIN
    IF $1.positions IS NOT NULL THEN
        RETURN QUERY SELECT u.nth::integer - 1, u.pos FROM unnest($1.positions) WITH ORDINALITY AS u (pos, nth);
    ELSE
        RETURN QUERY SELECT row_number() OVER (ORDER BY l.pos)::integer - 1, l.pos FROM {p:log} AS l
            WHERE l.topic = $1.topic AND l.pos > $1.from_pos AND l.pos <= $1.pos AND pg_visible_in_snapshot(l.xid, $1.seen);
    END IF;
END
$outmill$;

-- The keys of the rows of a batch that are not done. NULL is no key.
CREATE FUNCTION {p:log_keys_of}({p:batches}) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $outmill$
BEGIN
    IF $1.positions IS NULL AND $1.done IS NULL THEN
        RETURN QUERY SELECT l.key FROM {p:log} AS l WHERE l.topic = $1.topic AND l.pos > $1.from_pos AND l.pos <= $1.pos
            AND pg_visible_in_snapshot(l.xid, $1.seen);
    ELSE
        RETURN QUERY SELECT l.key FROM {p:log_rows_of}($1) AS r
                CROSS JOIN LATERAL (SELECT g.key FROM {p:log} AS g WHERE g.topic = $1.topic AND g.pos = r.pos OFFSET 0) AS l
            WHERE $1.done IS NULL OR get_bit($1.done, r.ordinal) = 0;
    END IF;
END
$outmill$;

-- Settles the rows of a batch that have a bit in mask, or all if it is NULL, and returns a bit for each that was open. The lock is a statement
-- of its own: what follows has a snapshot that shows what the session has waited for. The end of a batch does not change its row.
CREATE FUNCTION {p:log_settle}(of_topic text, of_chain bigint, of_n bigint, of_token bigint, mask bit varying) RETURNS text LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    this {p:batches};
    none bit varying;
    won bit varying;
BEGIN
    PERFORM 1 FROM {p:batches} AS b WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token FOR UPDATE;
    SELECT b.* INTO this FROM {p:log_in_work}(of_topic, of_chain) AS b WHERE b.n = of_n AND b.token = of_token;
    IF NOT FOUND THEN
        RETURN '';
    END IF;
    IF mask IS NULL AND this.done IS NULL THEN
        INSERT INTO {p:ended} (topic, chain, n, token) VALUES (of_topic, of_chain, of_n, of_token);
        RETURN repeat('1', this.size);
    END IF;
    none := repeat('0', this.size)::bit varying;
    won := ~ coalesce(this.done, none) & coalesce(mask, ~ none);
    IF (coalesce(this.done, none) | won) = ~ none THEN
        INSERT INTO {p:ended} (topic, chain, n, token) VALUES (of_topic, of_chain, of_n, of_token);
    ELSIF won <> none THEN
        UPDATE {p:batches} SET done = coalesce(this.done, none) | won WHERE topic = of_topic AND chain = of_chain AND n = of_n;
    END IF;
    RETURN won::text;
END
$outmill$;

-- Those of the rows that the chain has not read, and that may be moved: $5 are their places. The caller has the chain's lock.
CREATE FUNCTION {p:log_unread}(text, bigint, bigint, pg_snapshot, bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}($1, $2, $3, $4);
BEGIN
    -- Places that are read are the most, and not looked up.
    RETURN QUERY SELECT l.pos FROM (SELECT DISTINCT u.pos FROM unnest($5) AS u (pos)
                WHERE u.pos > cur.pos OR u.pos IN (SELECT q.pos FROM {p:log_late}($1, $2, cur) AS q)) AS u
            CROSS JOIN LATERAL (SELECT g.pos, g.xid FROM {p:log} AS g WHERE g.topic = $1 AND g.pos = u.pos OFFSET 0) AS l
        WHERE NOT {p:log_skipped}($1, $2, l.pos, l.xid) ORDER BY l.pos;
END
$outmill$;

-- Extends the lease of a batch, and reports whether it was in work. The lock is a statement of its own, as in log_settle.
CREATE FUNCTION {p:log_extend}(of_topic text, of_chain bigint, of_n bigint, of_token bigint, until bigint) RETURNS boolean LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {p:batches} AS b WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token FOR UPDATE;
    UPDATE {p:batches} AS b SET lease_until = until FROM {p:log_in_work}(of_topic, of_chain) AS w
        WHERE w.n = of_n AND w.token = of_token AND b.topic = of_topic AND b.chain = of_chain AND b.n = of_n;
    RETURN FOUND;
END
$outmill$;

-- The rows of the batches of a chain that are in work and not done, with the owner.
CREATE FUNCTION {p:log_leased}(text, bigint) RETURNS TABLE (n bigint, token bigint, size integer, lease_until bigint, owner text, ordinal integer, pos bigint)
LANGUAGE sql STABLE AS $outmill$
    SELECT b.n, b.token, b.size, b.lease_until, b.owner, r.ordinal, r.pos FROM {p:log_in_work}($1, $2) AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r
    WHERE b.done IS NULL OR get_bit(b.done, r.ordinal) = 0
$outmill$;

-- Since when something of a chain is due: a row that is not read, or the end of a lease; NULL is nothing.
CREATE FUNCTION {p:log_due}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, at bigint) RETURNS bigint LANGUAGE sql STABLE
AS $outmill$
    SELECT least((SELECT r.created_at FROM {p:log_page}($1, $2, $3, $4, 1) AS r WHERE r.seen IS NULL LIMIT 1),
        (SELECT min(b.lease_until) FROM {p:log_in_work}($1, $2) AS b WHERE b.lease_until <= $5))
$outmill$;
