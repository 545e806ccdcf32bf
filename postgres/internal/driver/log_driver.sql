-- What the driver needs of the log beyond log.sql: rows by their ids and places, moves to the records, and the registrations' events.

-- Rows by id. The copies of a row share the first 8 bytes of its id.
CREATE INDEX {i:log_0_id} ON {p:log_0} (id);
CREATE INDEX {i:log_1_id} ON {p:log_1} (id);
CREATE INDEX {i:log_2_id} ON {p:log_2} (id);

-- The id that a row of the event $2 has for a chain: $4 is what the chain changes of its last 8 bytes, first before all of the events $3, and
-- then from each of them on. See logMasks.
CREATE FUNCTION {p:log_copy_id}(uuid, bigint, bigint[], bigint[]) RETURNS uuid LANGUAGE sql IMMUTABLE
RETURN CASE WHEN $4[width_bucket($2, $3) + 1] = 0 THEN $1 ELSE (substr(replace($1::text, '-', ''), 1, 16)
    || lpad(to_hex(('x' || substr(replace($1::text, '-', ''), 17))::bit(64)::bigint # $4[width_bucket($2, $3) + 1]), 16, '0'))::uuid END;

-- Ends the transaction if the registrations have changed: it runs again with what they are now.
CREATE FUNCTION {p:log_known}(of_stamp bigint) RETURNS void LANGUAGE plpgsql AS $outmill$
BEGIN
    IF (SELECT stamp FROM {p:events}) IS DISTINCT FROM of_stamp THEN
        RAISE EXCEPTION 'outmill: the registrations have changed: the transaction runs again' USING ERRCODE = 'OM003';
    END IF;
END
$outmill$;

-- Moves those rows of a batch to the records of a group that have a bit in mask, all if it is NULL, and returns a bit for each that was open.
-- They arrive with the lease of the batch, which must end at expect, if that is not NULL. The caller has the chain's lock.
CREATE FUNCTION {p:log_move_leased}(of_topic text, of_chain bigint, of_n bigint, of_token bigint, mask bit varying, expect bigint, of_group text,
    of_events bigint[], of_masks bigint[]) RETURNS text LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    ends bigint;
    won text;
BEGIN
    SELECT b.lease_until INTO ends FROM {p:batches} AS b WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token FOR UPDATE;
    IF ends IS NULL OR ends <> expect THEN
        RETURN '';
    END IF;
    won := {p:log_settle}(of_topic, of_chain, of_n, of_token, mask);
    IF position('1' IN won) > 0 THEN
        INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, owner, worker,
            claims, message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
        SELECT l.pos, {p:log_copy_id}(l.id, l.event, of_events, of_masks), of_group, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 4,
            b.lease_until, l.created_at, 0, l.created_at, b.owner, b.worker, 1, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id,
            l.traceparent, l.tracestate, l.dedup_key, l.metadata, l.payload
        FROM {p:batches} AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = b.topic AND g.pos = r.pos OFFSET 0) AS l
        WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token AND substr(won, r.ordinal + 1, 1) = '1';
    END IF;
    RETURN won;
END
$outmill$;

-- Moves the rows of the batches of a chain whose leases have ended. They arrive with leases that have ended, so the claim goes on with them
-- as with any record. If the registrations have changed, it does nothing, and the page behind it says so.
CREATE FUNCTION {p:log_move_ended}(of_topic text, of_chain bigint, of_stamp bigint, of_group text, of_events bigint[], of_masks bigint[], most bigint) RETURNS bigint
LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    ended record;
    moved bigint := 0;
BEGIN
    FOR ended IN SELECT b.n, b.token, b.lease_until FROM {p:log_in_work}(of_topic, of_chain) AS b
        WHERE b.lease_until <= {p:now}() AND (SELECT e.stamp FROM {p:events} AS e) = of_stamp ORDER BY b.n LIMIT most
    LOOP
        PERFORM {p:log_move_leased}(of_topic, of_chain, ended.n, ended.token, NULL, ended.lease_until, of_group, of_events, of_masks);
        moved := moved + 1;
    END LOOP;
    RETURN moved;
END
$outmill$;

-- Locks a chain, and moves rows of a batch: see log_move_leased.
CREATE FUNCTION {p:log_change_leased}(chain_lock bigint, of_stamp bigint, of_topic text, of_chain bigint, of_n bigint, of_token bigint, mask bit varying,
    expect bigint, of_group text, of_events bigint[], of_masks bigint[]) RETURNS text LANGUAGE plpgsql AS $outmill$
BEGIN
    PERFORM pg_advisory_xact_lock(chain_lock);
    PERFORM {p:log_known}(of_stamp);
    RETURN {p:log_move_leased}(of_topic, of_chain, of_n, of_token, mask, expect, of_group, of_events, of_masks);
END
$outmill$;

-- Locks a chain, and takes those of the rows out of it that it has not read. With keep they are written to the records of a group, due at once.
-- It returns their places.
CREATE FUNCTION {p:log_change_unread}(chain_lock bigint, of_stamp bigint, of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot,
    places bigint[], of_group text, of_events bigint[], of_masks bigint[], keep boolean) RETURNS SETOF bigint LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    unread bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(chain_lock);
    PERFORM {p:log_known}(of_stamp);
    unread := ARRAY(SELECT u FROM {p:log_unread}(of_topic, of_chain, begin_pos, begin_seen, places) AS u);
    PERFORM {p:log_skip}(of_topic, of_chain, unread);
    IF keep THEN
        PERFORM {p:log_move_read}(of_topic, unread, of_group, of_events, of_masks);
    END IF;
    RETURN QUERY SELECT u FROM unnest(unread) AS u;
END
$outmill$;

-- Writes rows to the records of a group, due at once. The same transaction takes them out of the chain.
CREATE FUNCTION {p:log_move_read}(of_topic text, places bigint[], of_group text, of_events bigint[], of_masks bigint[]) RETURNS void LANGUAGE sql AS $outmill$
    INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at, message_id,
        correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata, payload) OVERRIDING SYSTEM VALUE
    SELECT l.pos, {p:log_copy_id}(l.id, l.event, of_events, of_masks), of_group, l.topic, coalesce(l.key, ''), coalesce(l.tenant_id, ''), l.created_at, l.size, 0, 0,
        l.created_at, 0, l.created_at, coalesce(l.message_id, l.id::text), l.correlation_id, l.causation_id, l.traceparent, l.tracestate, l.dedup_key,
        l.metadata, l.payload
    FROM unnest(places) AS u (pos) CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = of_topic AND g.pos = u.pos OFFSET 0) AS l
$outmill$;

-- Extends the lease of a batch that ends at expect, if no row is open that has no bit in mask, and returns a bit for each that was open; NULL is
-- that others are open.
CREATE FUNCTION {p:log_extend_rows}(of_topic text, of_chain bigint, of_n bigint, of_token bigint, mask bit varying, expect bigint, until bigint)
RETURNS text LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    this {p:batches};
    none bit varying;
BEGIN
    PERFORM 1 FROM {p:batches} AS b WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token FOR UPDATE;
    SELECT b.* INTO this FROM {p:log_in_work}(of_topic, of_chain) AS b WHERE b.n = of_n AND b.token = of_token;
    IF NOT FOUND OR this.lease_until <> expect THEN
        RETURN '';
    END IF;
    none := repeat('0', this.size)::bit varying;
    IF (coalesce(this.done, none) | mask) <> ~ none THEN
        RETURN NULL;
    END IF;
    UPDATE {p:batches} SET lease_until = until WHERE topic = of_topic AND chain = of_chain AND n = of_n;
    RETURN (~ coalesce(this.done, none))::text;
END
$outmill$;

-- Which of the places of a chain it has in a batch, with the batch, and, if unread is true, which it has not read: n of these is NULL.
CREATE FUNCTION {p:log_places}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, places bigint[], unread boolean)
RETURNS TABLE (pos bigint, n bigint, token bigint, size integer, ordinal integer, lease_until bigint, owner text, worker text) LANGUAGE plpgsql STABLE
AS $outmill$
#variable_conflict use_column
BEGIN
    IF unread THEN
        RETURN QUERY SELECT u, NULL::bigint, NULL::bigint, 0, 0, 0::bigint, '', '' FROM {p:log_unread}(of_topic, of_chain, begin_pos, begin_seen, places) AS u;
    END IF;
    RETURN QUERY SELECT r.pos, b.n, b.token, b.size, r.ordinal, b.lease_until, b.owner, b.worker
        FROM {p:log_in_work}(of_topic, of_chain) AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r
        WHERE (b.positions && places OR b.positions IS NULL AND b.from_pos < (SELECT max(u) FROM unnest(places) AS u)
            AND b.pos >= (SELECT min(u) FROM unnest(places) AS u)) AND r.pos = ANY (places) AND (b.done IS NULL OR get_bit(b.done, r.ordinal) = 0);
END
$outmill$;

-- Whether a chain has a row that is not read, or in work.
CREATE FUNCTION {p:log_any}(of_topic text, of_chain bigint, begin_pos bigint, begin_seen pg_snapshot, unread boolean) RETURNS boolean LANGUAGE sql STABLE
AS $outmill$
    SELECT $5 AND EXISTS (SELECT 1 FROM {p:log_page}($1, $2, $3, $4, 1) AS r WHERE r.seen IS NULL) OR EXISTS (SELECT 1 FROM {p:log_in_work}($1, $2))
$outmill$;

-- An event of a registration: 'begins', 'takes', 'ends' or 'drops'. The lock of the history comes before the mark.
CREATE FUNCTION {p:log_registered}(what text, of_group text, of_topics text, with_takes boolean, of_stamp bigint) RETURNS void LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    nth bigint;
    place bigint;
    shown pg_snapshot;
BEGIN
    UPDATE {p:events} SET last = last + 1, stamp = of_stamp RETURNING last INTO nth;
    SELECT s.last_value, pg_current_snapshot() INTO place, shown FROM {p:records_seq_seq} AS s;
    IF what = 'begins' THEN
        -- What a drop has not given back yet stays with the group.
        UPDATE {p:readings} SET dropping = false WHERE grp = of_group AND dropping;
        INSERT INTO {p:readings} (number, grp, topics, takes, ended, swept, dropping, begin_pos, begin_seen, end_pos)
            VALUES (nth, of_group, of_topics::json, CASE WHEN with_takes THEN nth ELSE 0 END, 0, 0, false, place, shown, 0);
    ELSIF what = 'takes' THEN
        UPDATE {p:readings} SET takes = nth WHERE grp = of_group AND topics::text = of_topics AND ended = 0;
    ELSE
        UPDATE {p:readings} SET ended = nth, dropping = what = 'drops', end_pos = place, end_seen = shown,
            swept = CASE what WHEN 'drops' THEN -1 ELSE 0 END -- what a drop leaves waits for the next group
            WHERE grp = of_group AND topics::text = of_topics AND ended = 0;
    END IF;
END
$outmill$;

-- What the readings of a group have left is gone: those that ended by their TTL.
CREATE FUNCTION {p:log_swept}(of_group text, of_stamp bigint) RETURNS void LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
DECLARE
    ended record;
    nth bigint;
BEGIN
    FOR ended IN SELECT r.number FROM {p:readings} AS r WHERE r.grp = of_group AND r.ended > 0 AND r.swept = 0 ORDER BY r.number LOOP
        UPDATE {p:events} SET last = last + 1, stamp = of_stamp RETURNING last INTO nth;
        UPDATE {p:readings} SET swept = nth WHERE number = ended.number;
    END LOOP;
END
$outmill$;

-- The drop of a group has ended.
CREATE FUNCTION {p:log_dropped}(of_group text, of_stamp bigint) RETURNS void LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
BEGIN
    UPDATE {p:readings} SET dropping = false WHERE grp = of_group AND dropping;
    IF FOUND THEN
        UPDATE {p:events} SET stamp = of_stamp;
    END IF;
END
$outmill$;

-- Opens the notes of the keys of rows of a batch, all if mask is NULL: the next claim looks at them. See open_notes.
CREATE FUNCTION {p:log_open_notes}(of_topic text, of_chain bigint, of_n bigint, of_token bigint, mask bit varying, of_group text) RETURNS void
LANGUAGE plpgsql AS $outmill$
#variable_conflict use_column
BEGIN
    IF (SELECT 1 FROM {p:notes} WHERE grp = of_group AND topic = of_topic LIMIT 1) IS NULL THEN
        RETURN;
    END IF;
    WITH k AS MATERIALIZED (SELECT DISTINCT 'k' || l.key AS name FROM {p:batches} AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS r
            CROSS JOIN LATERAL (SELECT g.*, {p:log_size}(g) AS size FROM {p:log} AS g WHERE g.topic = b.topic AND g.pos = r.pos OFFSET 0) AS l
            WHERE b.topic = of_topic AND b.chain = of_chain AND b.n = of_n AND b.token = of_token AND (mask IS NULL OR get_bit(mask, r.ordinal) = 1)),
        f AS MATERIALIZED (SELECT o.name FROM (SELECT name FROM k ORDER BY name LIMIT 1000000) AS k JOIN {p:notes} AS o
            ON o.grp = of_group AND o.topic = of_topic AND o.name = k.name
            WHERE o.blocker <> '' OR o.look_at <> 0 OR o.looks <> 0 FOR UPDATE OF o SKIP LOCKED)
    UPDATE {p:notes} AS n SET blocker = '', look_at = 0, looks = 0 FROM f WHERE n.grp = of_group AND n.topic = of_topic AND n.name = f.name;
END
$outmill$;
