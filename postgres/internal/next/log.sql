-- The log: see docs/postgres-next.md. xid stands before pos, so a transaction has its number before it has a place. line is the number of
-- the topic and part. Rows are never updated or deleted.
CREATE TABLE {p:log} (
    xid        xid8   NOT NULL DEFAULT pg_current_xact_id(),
    pos        bigint NOT NULL DEFAULT nextval('{p:records_seq_seq}'),
    line       bigint NOT NULL,
    created_at bigint NOT NULL,
    id         uuid   NOT NULL,
    topic      text COLLATE "C" NOT NULL, -- as in the records
    key        text COLLATE "C",          -- NULL: none
    message_id text COLLATE "C",          -- NULL: the text of id
    extra      json,                      -- what is mostly empty: tenant_id, correlation_id and so on; NULL: nothing
    metadata   text COLLATE "C",          -- a JSON object; NULL: none
    payload    bytea                      -- NULL: none
) WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647, toast.autovacuum_vacuum_insert_threshold = -1);

-- The next rows of a topic line, and those of one transaction between two places.
CREATE INDEX {i:log_next} ON {p:log} (line, pos, xid);

-- One row for each claim of a chain. The newest one is the chain's cursor: it was read up to pos, as of the snapshot seen. Transactions
-- from horizon on have no place up to pos. since has, for each transaction that seen has in progress, a place behind which all
-- its rows are, and, last, such a place for those from the end of seen up to horizon. The batch is the rows at positions or, if
-- that is NULL, all rows behind from_pos that seen shows. done has a bit for each row in the order of the places (NULL: none is done).
-- No batch before low is in work.
CREATE TABLE {p:batches} (
    line        bigint      NOT NULL,
    chain       bigint      NOT NULL,
    n           bigint      NOT NULL,
    pos         bigint      NOT NULL,
    seen        pg_snapshot NOT NULL,
    horizon     xid8        NOT NULL,
    since       bigint[]    NOT NULL,
    low         bigint      NOT NULL,
    from_pos    bigint      NOT NULL,
    lease_until bigint      NOT NULL,
    token       bigint      NOT NULL, -- a crash may undo a claim, and another one then has its number
    size        integer     NOT NULL, -- 0: the claim has leased nothing
    grp         text COLLATE "C" NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    worker      text COLLATE "C" NOT NULL,
    done        bit varying,
    positions   bigint[],
    PRIMARY KEY (line, chain, n)
);

-- The batches that are over.
CREATE TABLE {p:ended} (
    line  bigint NOT NULL,
    chain bigint NOT NULL,
    n     bigint NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (line, chain, n, token)
);

-- Rows of a transaction that a cursor has passed as finished, and that are still to be read: those behind from_pos, up to to_pos.
CREATE TABLE {p:left_rows} (
    line     bigint NOT NULL,
    chain    bigint NOT NULL,
    xid      xid8   NOT NULL,
    from_pos bigint NOT NULL,
    to_pos   bigint NOT NULL,
    PRIMARY KEY (line, chain, xid, to_pos)
);

-- Rows that the chain must not read, because they have moved or are deleted.
CREATE TABLE {p:skips} (
    line  bigint NOT NULL,
    chain bigint NOT NULL,
    pos   bigint NOT NULL,
    PRIMARY KEY (line, chain, pos)
);

-- The registrations with their history. Numbers are those of events, in their order.
CREATE TABLE {p:readings} (
    number        bigint  NOT NULL PRIMARY KEY,
    takes         bigint  NOT NULL,          -- 0: it holds
    ended         bigint  NOT NULL,          -- 0: it lives
    begin_pos     bigint  NOT NULL,
    end_pos       bigint  NOT NULL,
    dropped       boolean NOT NULL,
    grp           text COLLATE "C" NOT NULL,
    topics        json    NOT NULL,
    begin_seen    pg_snapshot NOT NULL,
    begin_horizon xid8    NOT NULL,
    end_seen      pg_snapshot,
    end_horizon   xid8
);

-- Reads the last place of the sequence, and then gets the transaction its number, so that every row up to that place has a lower one. In
-- a transaction that has a number it returns $1, which was read before. pg_sequence_last_value takes the sequence's lock: the
-- table of a sequence shows a place 32 ahead for as long as nextval writes its WAL.
CREATE FUNCTION {p:log_cap}(bigint) RETURNS bigint LANGUAGE plpgsql AS $outmill$
DECLARE
    place bigint;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        IF $1 IS NULL THEN
            RAISE EXCEPTION 'outmill: the transaction got its number before it read the sequence';
        END IF;
        RETURN $1;
    END IF;
    place := coalesce(pg_sequence_last_value('{p:records_seq_seq}'), 0);
    PERFORM pg_current_xact_id();
    RETURN place;
END
$outmill$;

CREATE TYPE {p:log_cursor} AS (n bigint, pos bigint, seen pg_snapshot, horizon xid8, since bigint[]);

-- The cursor of a chain, which begins at $3 to $5.
CREATE FUNCTION {p:log_cursor_of}(bigint, bigint, bigint, pg_snapshot, xid8) RETURNS {p:log_cursor} LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    found {p:log_cursor};
BEGIN
    SELECT b.n, b.pos, b.seen, b.horizon, b.since INTO found FROM {p:batches} AS b WHERE b.line = $1 AND b.chain = $2 ORDER BY b.n DESC LIMIT 1;
    IF found.n IS NULL THEN
        found := ROW(NULL, $3, $4, $5, array_fill(-1::bigint, ARRAY[(SELECT count(*)::integer + 1 FROM pg_snapshot_xip($4))]))::{p:log_cursor};
    END IF;
    RETURN found;
END
$outmill$;

-- The rows that a cursor has passed and that are still to be read, as far as the caller's snapshot shows them.
CREATE FUNCTION {p:log_late}(of_line bigint, of_chain bigint, cur {p:log_cursor}) RETURNS TABLE (pos bigint, xid xid8) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    finished xid8[];
    after bigint;
    rest bigint := cur.since[cardinality(cur.since)];
BEGIN
    RETURN QUERY SELECT l.pos, l.xid FROM {p:left_rows} AS k JOIN {p:log} AS l ON l.line = k.line AND l.pos > k.from_pos AND l.pos <= k.to_pos AND l.xid = k.xid
        WHERE k.line = of_line AND k.chain = of_chain;
    IF cur.seen IS NULL OR pg_snapshot_xmin(cur.seen) = cur.horizon THEN
        RETURN;
    END IF;
    SELECT array_agg(p.xid), min(p.since) INTO finished, after FROM ROWS FROM (pg_snapshot_xip(cur.seen), unnest(cur.since)) AS p (xid, since)
        WHERE p.xid IS NOT NULL AND pg_visible_in_snapshot(p.xid, pg_current_snapshot());
    IF after < cur.pos THEN
        RETURN QUERY SELECT l.pos, l.xid FROM {p:log} AS l WHERE l.line = of_line AND l.pos > after AND l.pos <= cur.pos AND l.xid = ANY (finished);
    END IF;
    IF rest < cur.pos AND pg_snapshot_xmax(cur.seen) < cur.horizon THEN
        RETURN QUERY SELECT l.pos, l.xid FROM {p:log} AS l WHERE l.line = of_line AND l.pos > rest AND l.pos <= cur.pos
            AND l.xid >= pg_snapshot_xmax(cur.seen) AND l.xid < cur.horizon;
    END IF;
END
$outmill$;

-- What a claim of the chain may take: at most want rows, first the late ones, and then those behind the cursor up to cap, in the order of
-- their places. It is STABLE, so it reads with the snapshot of the statement that calls it, which may read other tables, too.
CREATE FUNCTION {p:log_page}(of_line bigint, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, begin_horizon xid8, cap bigint, want bigint)
RETURNS TABLE (pos bigint, late boolean, odd boolean, id uuid, created_at bigint, topic text, key text, tenant_id text, size bigint) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}(of_line, of_chain, begin_pos, begin_seen, begin_horizon);
    has_skips boolean := (SELECT 1 FROM {p:skips} AS s WHERE s.line = of_line AND s.chain = of_chain LIMIT 1) IS NOT NULL;
    given bigint;
BEGIN
    RETURN QUERY SELECT l.pos, true, true, l.id, l.created_at, l.topic, coalesce(l.key, ''), coalesce(l.extra ->> 'tenant_id', ''), {p:log_size}(l)
        FROM (SELECT DISTINCT q.pos FROM {p:log_late}(of_line, of_chain, cur) AS q
            WHERE NOT has_skips OR (SELECT 1 FROM {p:skips} AS s WHERE s.line = of_line AND s.chain = of_chain AND s.pos = q.pos) IS NULL
            ORDER BY q.pos LIMIT want) AS f
        JOIN {p:log} AS l ON l.line = of_line AND l.pos = f.pos ORDER BY l.pos;
    GET DIAGNOSTICS given = ROW_COUNT;
    RETURN QUERY SELECT l.pos, false, has_skips, l.id, l.created_at, l.topic, coalesce(l.key, ''), coalesce(l.extra ->> 'tenant_id', ''), {p:log_size}(l)
        FROM {p:log} AS l WHERE l.line = of_line AND l.pos > cur.pos AND l.pos <= cap
            AND (NOT has_skips OR (SELECT 1 FROM {p:skips} AS s WHERE s.line = of_line AND s.chain = of_chain AND s.pos = l.pos) IS NULL)
        ORDER BY l.pos LIMIT want - given;
END
$outmill$;

-- The number of bytes of a row's content, without reading it.
CREATE FUNCTION {p:log_size}({p:log}) RETURNS bigint LANGUAGE sql STABLE
RETURN coalesce(octet_length($1.payload), 0) + coalesce(octet_length($1.metadata), 0) + octet_length($1.topic) + coalesce(octet_length($1.key), 0)
    + coalesce(octet_length($1.message_id), 36) + coalesce(octet_length($1.extra::text), 0);

-- Moves the cursor of a chain to upto, and leases the rows taken, until that time: all rows between if whole. undecided are rows of the
-- page up to upto that stay to be read; if cut is not NULL, the page had late rows up to there, and perhaps not all. page_seen is the
-- page's snapshot, and place its cap. It returns the number of the batch.
CREATE FUNCTION {p:log_take}(of_line bigint, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, begin_horizon xid8, page_seen pg_snapshot, place bigint,
    upto bigint, taken bigint[], whole boolean, undecided bigint[], cut bigint, until bigint, of_token bigint, of_grp text, of_owner text, of_worker text)
RETURNS bigint LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}(of_line, of_chain, begin_pos, begin_seen, begin_horizon);
    number bigint := coalesce(cur.n, place) + 1;
    rest bigint := cur.since[cardinality(cur.since)];
    after bigint := cur.since[cardinality(cur.since)];
    places bigint[];
BEGIN
    -- After another batch of this transaction, those behind the end of the snapshot may have got their numbers before that.
    IF pg_snapshot_xmax(page_seen) >= cur.horizon THEN
        after := cur.pos;
    END IF;
    IF cut IS NOT NULL THEN
        UPDATE {p:left_rows} SET from_pos = cut WHERE line = of_line AND chain = of_chain AND from_pos < cut AND to_pos > cut;
        INSERT INTO {p:left_rows} (line, chain, xid, from_pos, to_pos)
            SELECT DISTINCT of_line, of_chain, q.xid, cut, cur.pos FROM {p:log_late}(of_line, of_chain, cur) AS q
            WHERE q.pos > cut AND pg_visible_in_snapshot(q.xid, page_seen) AND NOT pg_visible_in_snapshot(q.xid, cur.seen);
    END IF;
    DELETE FROM {p:left_rows} WHERE line = of_line AND chain = of_chain AND (cut IS NULL OR to_pos <= cut);
    INSERT INTO {p:left_rows} (line, chain, xid, from_pos, to_pos)
        SELECT of_line, of_chain, l.xid, l.pos - 1, l.pos FROM unnest(undecided) AS u (pos) JOIN {p:log} AS l ON l.line = of_line AND l.pos = u.pos;
    -- A transaction that has got its number since the last claim has no place up to the cursor. For the others the place is copied.
    places := ARRAY(SELECT CASE WHEN p.xid >= cur.horizon THEN cur.pos WHEN p.xid >= pg_snapshot_xmax(cur.seen) THEN rest
            ELSE coalesce((SELECT k.since FROM ROWS FROM (pg_snapshot_xip(cur.seen), unnest(cur.since)) AS k (xid, since) WHERE k.xid = p.xid), -1) END
        FROM pg_snapshot_xip(page_seen) WITH ORDINALITY AS p (xid, nth) ORDER BY p.nth);
    INSERT INTO {p:batches} (line, chain, n, pos, seen, horizon, since, low, from_pos, lease_until, token, size, grp, owner, worker, positions)
        SELECT of_line, of_chain, number, greatest(upto, cur.pos), page_seen, pg_current_xact_id(), places || after,
            coalesce((SELECT w.n FROM {p:log_in_work}(of_line, of_chain) AS w ORDER BY w.n LIMIT 1), number), cur.pos, until, of_token,
            cardinality(taken), of_grp, of_owner, of_worker, CASE WHEN whole THEN NULL ELSE taken END;
    RETURN number;
END
$outmill$;

-- The batches of a chain that are in work.
CREATE FUNCTION {p:log_in_work}(bigint, bigint) RETURNS SETOF {p:batches} LANGUAGE sql STABLE AS $outmill$
    SELECT b.* FROM {p:batches} AS b
    WHERE b.line = $1 AND b.chain = $2 AND b.size > 0
        AND b.n >= (SELECT i.low FROM {p:batches} AS i WHERE i.line = $1 AND i.chain = $2 ORDER BY i.n DESC LIMIT 1)
        AND (SELECT 1 FROM {p:ended} AS e WHERE e.line = b.line AND e.chain = b.chain AND e.n = b.n AND e.token = b.token) IS NULL
$outmill$;

-- The rows of a batch with their ordinals, those that are done as well.
CREATE FUNCTION {p:log_rows_of}({p:batches}) RETURNS TABLE (ordinal integer, pos bigint) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
BEGIN
    IF $1.positions IS NOT NULL THEN
        RETURN QUERY SELECT u.nth::integer - 1, u.pos FROM unnest($1.positions) WITH ORDINALITY AS u (pos, nth);
    ELSE
        RETURN QUERY SELECT row_number() OVER (ORDER BY l.pos)::integer - 1, l.pos FROM {p:log} AS l
            WHERE l.line = $1.line AND l.pos > $1.from_pos AND l.pos <= $1.pos AND pg_visible_in_snapshot(l.xid, $1.seen);
    END IF;
END
$outmill$;

-- Settles rows of a batch, or all if ordinals is NULL, and returns those that were open. The lock is a statement of its own: what follows
-- has a snapshot that shows what the session has waited for. The end of a batch does not change its row.
CREATE FUNCTION {p:log_settle}(of_line bigint, of_chain bigint, of_n bigint, of_token bigint, ordinals integer[]) RETURNS integer[] LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    this {p:batches};
    bits bit varying;
    won integer[] := '{}';
BEGIN
    PERFORM 1 FROM {p:batches} AS b WHERE b.line = of_line AND b.chain = of_chain AND b.n = of_n AND b.token = of_token FOR UPDATE;
    SELECT b.* INTO this FROM {p:log_in_work}(of_line, of_chain) AS b WHERE b.n = of_n AND b.token = of_token;
    IF NOT FOUND THEN
        RETURN won;
    END IF;
    IF ordinals IS NULL AND this.done IS NULL THEN
        INSERT INTO {p:ended} (line, chain, n, token) VALUES (of_line, of_chain, of_n, of_token);
        RETURN ARRAY(SELECT generate_series(0, this.size - 1));
    END IF;
    bits := coalesce(this.done, repeat('0', this.size)::bit varying);
    FOR i IN 0..this.size - 1 LOOP
        IF (ordinals IS NULL OR i = ANY (ordinals)) AND get_bit(bits, i) = 0 THEN
            won := won || i;
            bits := set_bit(bits, i, 1);
        END IF;
    END LOOP;
    IF strpos(bits::text, '0') = 0 THEN
        INSERT INTO {p:ended} (line, chain, n, token) VALUES (of_line, of_chain, of_n, of_token);
    ELSIF cardinality(won) > 0 THEN
        UPDATE {p:batches} SET done = bits WHERE line = of_line AND chain = of_chain AND n = of_n;
    END IF;
    RETURN won;
END
$outmill$;

-- Those of the rows that the chain has not read, and that may be moved: $6 are their places. The caller has the chain's lock.
CREATE FUNCTION {p:log_unread}(bigint, bigint, bigint, pg_snapshot, xid8, bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE AS $outmill$
DECLARE
    cur {p:log_cursor} := {p:log_cursor_of}($1, $2, $3, $4, $5);
BEGIN
    RETURN QUERY SELECT l.pos FROM {p:log} AS l WHERE l.line = $1 AND l.pos = ANY ($6)
        AND (l.pos > cur.pos OR l.pos IN (SELECT q.pos FROM {p:log_late}($1, $2, cur) AS q))
        AND (SELECT 1 FROM {p:skips} AS s WHERE s.line = $1 AND s.chain = $2 AND s.pos = l.pos) IS NULL ORDER BY l.pos;
END
$outmill$;
