-- What people see of the log. It follows from the history of the registrations which group reads a row, and which id the row has for it: the
-- driver folds the history in its own language (logChainsOf), and these functions do the same for a view.

-- The lines of the log.
CREATE FUNCTION {p:log_lines}() RETURNS SETOF text LANGUAGE sql STABLE AS $outmill$
    WITH RECURSIVE line AS (
        (SELECT topic FROM {p:log} ORDER BY topic LIMIT 1)
        UNION ALL SELECT (SELECT topic FROM {p:log} WHERE topic > line.topic ORDER BY topic LIMIT 1) FROM line WHERE topic IS NOT NULL)
    SELECT topic FROM line WHERE topic IS NOT NULL
$outmill$;

-- What a chain changes of the last 8 bytes of an id, by a name: see logMask.
CREATE FUNCTION {p:log_mask}(bytea) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN CASE WHEN length($1) = 0 THEN 0 ELSE ('x' || encode(substr(sha256($1), 1, 8), 'hex'))::bit(64)::bigint & 4611686018427387903 END;

CREATE FUNCTION {p:log_numbered}(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN {p:log_mask}(E'\\x00'::bytea || convert_to($1::text, 'UTF8'));

-- The chains of a topic: of each the group whose rows it is that are not read, if there is one, and with unread = false the one whose rows
-- are those in work. '' is no group. events and masks are what log_copy_id takes.
CREATE FUNCTION {p:log_chains}(of_topic text)
RETURNS TABLE (chain bigint, grp text, unread boolean, begin_pos bigint, begin_seen pg_snapshot, events bigint[], masks bigint[]) LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    e record;
    waiting bigint := 0; -- the chain that waits; -1: none
    waits_by bigint := 0; -- the reading with whose end it began to
    known bigint[] := '{0}';
    has jsonb := '{}'; -- the chains of the groups
    living jsonb := '{}'; -- how many readings of each group live
    firsts jsonb := '{}'; -- with which each group began to read the topic
    had jsonb := '{}'; -- the last groups of chains
    dropping bigint[] := '{}';
    named jsonb := '{}'; -- the names of the chains, and those before the event
    names jsonb;
    changed_chains bigint[] := '{}';
    changed_at bigint[] := '{}';
    changed_to bigint[] := '{}';
    others integer;
    this bigint;
    holder text;
    worker text;
BEGIN
    FOR e IN SELECT v.at, r.* FROM {p:readings} AS r CROSS JOIN LATERAL
            (SELECT DISTINCT u.at FROM unnest(ARRAY[r.number, r.takes, r.ended, r.swept]) AS u (at) WHERE u.at >= r.number) AS v
        WHERE {p:selects}(r.topics::jsonb, of_topic) ORDER BY v.at, r.number
    LOOP
        IF e.at = e.number THEN
            IF NOT living ? e.grp THEN
                firsts := firsts || jsonb_build_object(e.grp, e.number);
                known := known || e.number;
                IF waiting < 0 THEN
                    has := has || jsonb_build_object(e.grp, e.number);
                END IF;
            END IF;
            living := living || jsonb_build_object(e.grp, coalesce((living ->> e.grp)::integer, 0) + 1);
        END IF;
        IF e.at = e.takes AND waiting >= 0 THEN
            has := (SELECT jsonb_object_agg(g.name, firsts -> g.name) FROM jsonb_object_keys(living) AS g (name)) || jsonb_build_object(e.grp, waiting);
            waiting := -1;
        ELSIF e.at = e.ended THEN
            others := (living ->> e.grp)::integer - 1;
            IF others > 0 THEN
                living := living || jsonb_build_object(e.grp, others);
            ELSE
                this := (has ->> e.grp)::bigint;
                living := living - e.grp;
                has := has - e.grp;
                IF this IS NOT NULL THEN
                    had := had || jsonb_build_object(this::text, e.grp);
                    IF living = '{}' THEN
                        waiting := this;
                        waits_by := e.number;
                        dropping := array_remove(dropping, this) || CASE WHEN e.dropping THEN ARRAY[this] ELSE '{}' END;
                    END IF;
                END IF;
            END IF;
        ELSIF e.at = e.swept AND waiting >= 0 AND waits_by = e.number THEN
            waiting := e.swept;
            known := known || e.swept;
        END IF;
        -- See logChains.rename.
        IF waiting >= 0 THEN
            names := (SELECT coalesce(jsonb_object_agg(firsts ->> g.name, g.name), '{}') FROM jsonb_object_keys(living) AS g (name))
                || jsonb_build_object(waiting::text, '');
        ELSE
            names := (SELECT coalesce(jsonb_object_agg(h.chain, CASE WHEN h.nth > 1 THEN h.name ELSE '' END), '{}')
                FROM (SELECT g.value AS chain, g.key AS name, row_number() OVER (ORDER BY g.key COLLATE "C") AS nth FROM jsonb_each_text(has) AS g) AS h);
        END IF;
        SELECT changed_chains || coalesce(array_agg(c.chain), '{}'), changed_at || coalesce(array_agg(e.at), '{}'),
                changed_to || coalesce(array_agg(c.mask), '{}') INTO changed_chains, changed_at, changed_to
            FROM (SELECT n.key::bigint AS chain, {p:log_mask}(convert_to(n.value, 'UTF8')) AS mask FROM jsonb_each_text(names) AS n
                WHERE named ->> n.key IS DISTINCT FROM n.value
                UNION ALL SELECT n.key::bigint, {p:log_numbered}(n.key::bigint) FROM jsonb_each_text(named) AS n WHERE NOT names ? n.key) AS c;
        named := names;
    END LOOP;
    FOREACH this IN ARRAY known LOOP
        chain := this;
        SELECT b.pos, b.seen INTO begin_pos, begin_seen FROM (SELECT r.begin_pos AS pos, r.begin_seen AS seen, 0 AS nth FROM {p:readings} AS r WHERE r.number = this
            UNION ALL SELECT r.end_pos, r.end_seen, 1 FROM {p:readings} AS r WHERE r.swept = this AND this > 0 UNION ALL SELECT -1, NULL, 2) AS b ORDER BY b.nth LIMIT 1;
        events := ARRAY(SELECT c.at FROM unnest(changed_chains, changed_at) WITH ORDINALITY AS c (chain, at, nth) WHERE c.chain = this ORDER BY c.nth);
        masks := CASE WHEN this = 0 THEN 0 ELSE {p:log_numbered}(this) END
            || ARRAY(SELECT c.mask FROM unnest(changed_chains, changed_to) WITH ORDINALITY AS c (chain, mask, nth) WHERE c.chain = this ORDER BY c.nth);
        holder := CASE WHEN this = waiting THEN '' ELSE (SELECT g.key FROM jsonb_each_text(has) AS g WHERE g.value = this::text) END;
        worker := CASE WHEN holder <> '' AND this <> ALL (dropping) THEN holder ELSE coalesce(had ->> this::text, '') END;
        IF holder = '' OR this <> ALL (dropping) THEN
            grp := holder;
            unread := true;
            IF holder IS NOT NULL THEN
                RETURN NEXT;
            END IF;
        END IF;
        grp := worker;
        unread := false;
        RETURN NEXT;
    END LOOP;
END
$outmill$;

-- What the log has for each group, as records: the view for people shows it.
CREATE OR REPLACE FUNCTION {p:logged}() RETURNS SETOF {p:records} LANGUAGE plpgsql STABLE AS $outmill$
#variable_conflict use_column
DECLARE
    c record;
    g record;
    r {p:records};
BEGIN
    FOR c IN SELECT t.topic, k.* FROM {p:log_lines}() AS t (topic)
        CROSS JOIN LATERAL {p:log_chains}(CASE WHEN t.topic LIKE ' %' THEN substr(t.topic, 5) ELSE t.topic END) AS k
    LOOP
        FOR g IN SELECT l.*, {p:log_size}(l) AS size, w.lease_until, w.owner, w.worker FROM
                (SELECT p.pos, 0::bigint AS lease_until, '' AS owner, '' AS worker
                    FROM {p:log_page}(c.topic, c.chain, c.begin_pos, c.begin_seen, 1000000000) AS p WHERE c.unread AND p.seen IS NULL
                UNION ALL SELECT o.pos, b.lease_until, b.owner, b.worker FROM {p:log_in_work}(c.topic, c.chain) AS b CROSS JOIN LATERAL {p:log_rows_of}(b) AS o
                    WHERE NOT c.unread AND (b.done IS NULL OR get_bit(b.done, o.ordinal) = 0)) AS w
            CROSS JOIN LATERAL (SELECT i.* FROM {p:log} AS i WHERE i.topic = c.topic AND i.pos = w.pos OFFSET 0) AS l
        LOOP
            r.seq := g.pos;
            r.id := {p:log_copy_id}(g.id, g.event, c.events, c.masks);
            r.grp := c.grp;
            r.topic := g.topic;
            r.key := coalesce(g.key, '');
            r.tenant_id := coalesce(g.tenant_id, '');
            r.message_id := coalesce(g.message_id, g.id::text);
            r.stage := CASE WHEN c.unread THEN 0 ELSE 4 END;
            r.created_at := g.created_at;
            r.due_at := g.created_at;
            r.next_at := g.created_at;
            r.wake_at := g.lease_until;
            r.expires_at := 0;
            r.processed_at := 0;
            r.attempts := 0;
            r.claims := CASE WHEN c.unread THEN 0 ELSE 1 END;
            r.expiries := 0;
            r.parked := false;
            r.owner := g.owner;
            r.worker := g.worker;
            r.under := '';
            r.processed_by := '';
            r.size := g.size;
            r.correlation_id := g.correlation_id;
            r.causation_id := g.causation_id;
            r.traceparent := g.traceparent;
            r.tracestate := g.tracestate;
            r.dedup_key := g.dedup_key;
            r.metadata := g.metadata;
            r.payload := g.payload;
            RETURN NEXT r;
        END LOOP;
    END LOOP;
END
$outmill$;
