package driver

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed log_driver.sql
var logFunctions string

//go:embed log_readable.sql
var logReadable string

// Statements of the records that read the log, too, in one snapshot: the name is that of the records behind logOf. Their further
// parameters are the chain or, of several lines, the chains, the begins of the chains, and the stamp. Those of one line have then what a
// page brings of the content, at most how many bytes of it, and of how many rows.

// logOf begins the names of those statements.
const logOf = "log "

// logParts are what a statement has beside that of the records, by what it replaces.
var logParts = map[string][][2]string{
	"state": {{"IS NOT NULL\nFROM {p:meta} AS m",
		"IS NOT NULL,\n\t(SELECT stamp FROM {p:events}), (SELECT last FROM {p:events}), m.segment\nFROM {p:meta} AS m"}},
	"acked_steps": {
		{"SELECT /* outmill acked_steps */ r.id", "SELECT /* outmill acked_steps */ u.id"},
		{" JOIN {p:records} AS r ON r.id = ANY (ARRAY[u.id])\nWHERE r.stage",
			"\n\tLEFT JOIN {p:records} AS r ON r.id = ANY (ARRAY[u.id])\n\tAND r.stage"},
		{" AND COALESCE(r.step::text, '') <> ''", "\nWHERE r.id IS NULL OR r.step IS NOT NULL"},
	},
	"page": {
		{"keys AS (SELECT key FROM held UNION", `logs AS MATERIALIZED (SELECT g.* FROM
	{p:log_page}($2::text, $7::bigint, $8::bigint, nullif($9::text, '')::pg_snapshot, $4::bigint, $11::integer <> 0) AS g
	WHERE (SELECT stamp FROM {p:events}) = $10::bigint),
brought AS MATERIALIZED (SELECT max(f.pos) AS upto FROM
	(SELECT pos, row_number() OVER given AS nth, sum(least(size, 1 << 30)::integer) OVER given AS bytes
	FROM logs WHERE seen IS NULL AND $11::integer <> 0 WINDOW given AS (ROWS UNBOUNDED PRECEDING)) AS f
	WHERE f.nth <= $13::bigint AND f.bytes <= $12::bigint),
keys AS MATERIALIZED (SELECT key FROM held UNION SELECT key FROM logs WHERE seen IS NULL UNION`},
		{"SELECT 0 AS kind", "SELECT p.*" + logNothing + " FROM (SELECT 0 AS kind"},
		{"WHERE $6::boolean AND k.key <> ''", `WHERE $6::boolean AND k.key <> ''
	AND (SELECT waiting OR delayed OR leased OR held OR dead FROM flags)) AS p` + logRows("0", logNothing, logBrought, `
	(SELECT l.key, min(w.owner) AS owner FROM {p:log_in_work}($2::text, $7::bigint) AS w CROSS JOIN LATERAL {p:log_keys_of}(w) AS l (key)
	WHERE w.owner <> $3::text AND (l.key IN (SELECT key FROM keys)) IS TRUE GROUP BY l.key)`)},
	},
	"pages": {
		{"SELECT u.topic, u.line FROM unnest($2::text[]) WITH ORDINALITY AS u (topic, line)),", `SELECT * FROM
	unnest($2::text[], $7::text::bigint[], $8::text::bigint[], $9::text[]) WITH ORDINALITY AS u (topic, chain, begin_pos, begin_seen, line)),
logs AS MATERIALIZED (SELECT l.line, l.topic, g.* FROM lines AS l CROSS JOIN LATERAL
	{p:log_page}(l.topic, l.chain, l.begin_pos, nullif(l.begin_seen, '')::pg_snapshot, $4::bigint) AS g
	WHERE l.chain >= 0 AND (SELECT stamp FROM {p:events}) = $10::bigint),`},
		{"alone AS MATERIALIZED (SELECT l.line FROM lines AS l WHERE\n\t", `alone AS MATERIALIZED (SELECT l.line FROM lines AS l WHERE
	(SELECT 1 FROM logs AS g WHERE g.line = l.line AND g.flag LIMIT 1) IS NOT NULL
	OR (SELECT 1 FROM {p:log_in_work}(l.topic, l.chain) AS b WHERE b.lease_until <= (SELECT now FROM at) LIMIT 1) IS NOT NULL
	OR `},
		{"keys AS (SELECT DISTINCT line, topic, key FROM ready WHERE $6::boolean AND key <> '')", `keys AS MATERIALIZED (
	SELECT line, topic, key FROM ready WHERE $6::boolean AND key <> ''
	UNION SELECT line, topic, key FROM logs WHERE $6::boolean AND key <> '')`},
		{"{last}) AS due) AS s", "{last}) AS due) AS s" + logRows("line", "", "", `(SELECT n.line, l.key, min(w.owner) AS owner
	FROM lines AS n CROSS JOIN LATERAL {p:log_in_work}(n.topic, n.chain) AS w CROSS JOIN LATERAL {p:log_keys_of}(w) AS l (key)
	WHERE w.owner <> $3::text AND ((n.line, l.key) IN (SELECT line, key FROM keys)) IS TRUE GROUP BY n.line, l.key)`)},
	},
}

// logBrought are the columns of the content that a page brings of a row of the log, and logNothing those of other rows. If it brings
// none of a row, the first one is empty. See pageRow.
const (
	logBrought = `, CASE WHEN pos <= (SELECT upto FROM brought) THEN coalesce(message_id, id::text) ELSE '' END,
	coalesce(correlation_id, ''), coalesce(causation_id, ''), coalesce(traceparent, ''), coalesce(tracestate, ''), coalesce(dedup_key, ''),
	CASE WHEN $11::integer & 1 <> 0 AND pos <= (SELECT upto FROM brought) THEN coalesce(metadata, '') ELSE '' END,
	CASE WHEN $11::integer & 2 <> 0 AND pos <= (SELECT upto FROM brought) THEN payload END`
	logNothing = ", '', '', '', '', '', '', '', NULL::bytea"
)

// logRows are the rows of a page that the log has, with these further columns: see kindLogHead.
func logRows(line, nothing, brought, others string) string {
	return strings.NewReplacer("{line}", line, "{nothing}", nothing, "{brought}", brought).Replace(`
UNION ALL SELECT 5, {line}, pos, {none}, '', '', fresh::integer, size, 0, 0, 0, 0, 0, 0, 0, seen, '', '', {none}, {none}, flag, 0,
	''{nothing} FROM logs WHERE seen IS NOT NULL
UNION ALL SELECT 6, {line}, pos, id, key, tenant_id, created_at, size, 0, 0, created_at, event, 0, 0, 0, '', '', '', {none}, {none},
	flag, 0,
	''{brought} FROM logs WHERE seen IS NULL
UNION ALL SELECT 7, {line}, 0, {none}, key, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, owner, '', '', {none}, {none}, false, 0, ''{nothing}
	FROM `) + others + " AS o"
}

// withLog is the statement with what the log adds to it.
func withLog(name, statement string) string {
	for _, part := range logParts[name] {
		if strings.Count(statement, part[0]) != 1 {
			panic("statement " + name + " has not once: " + part[0])
		}
		statement = strings.Replace(statement, part[0], part[1], 1)
	}
	return statement
}

const (
	// logSegments is the number of segments, and insertInto begins the names of the appends to one. oneInto begins those of a single row.
	logSegments = 3
	insertInto  = "log_insert_"
	oneInto     = "log_insert_one_"
)

// addLogTemplates adds the statements that read the log, too, and the appends to each segment.
func addLogTemplates(all map[string]string) {
	for name := range logParts {
		all[logOf+name] = withLog(name, all[name])
	}
	const insert = "log_insert"
	check := strings.Replace(all["log_check"], "/* outmill log_check */ ", "", 1)
	for n := range logSegments {
		text := strings.NewReplacer("{segment}", strconv.Itoa(n), "{checked}", check).Replace(all[insert])
		all[insertInto+strconv.Itoa(n)], all[oneInto+strconv.Itoa(n)] = text, ofOne(text)
	}
	delete(all, insert)
}

// ofOne is the append of a list as that of one row, whose values are the items of its lists: lists take half as much again.
func ofOne(insert string) string {
	before, rest, found := strings.Cut(insert, "unnest(")
	lists, after, ends := strings.Cut(rest, ") WITH ORDINALITY AS u (")
	if !found || !ends {
		panic("the append of the log has no lists")
	}
	return before + "(VALUES (" + strings.ReplaceAll(lists, "[]", "") + ", 1)) AS u (" + after
}

// itemsOf are the items of lists that have one. A list without items has an empty text.
func itemsOf(lists []any) []any {
	items := make([]any, len(lists))
	for i, list := range lists {
		switch list := list.(type) {
		case string:
			items[i] = strings.Trim(list, "{}")
		case []string:
			items[i] = strings.Join(list, "")
		}
	}
	return items
}
