package driver

import (
	"embed"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed statements/*.sql
var statementFiles embed.FS

// templates are the statements of the directory, by name.
var templates = sync.OnceValue(func() map[string]string {
	all, err := sqlkit.NamedStatements(statementFiles, "statements/*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{
		"by_line", "by_held", "by_place", "by_keyed", "by_paused", "coming", "any_order", "by_later", "by_key", "by_parked",
		"by_stage_later", "by_stage_settled",
	} {
		all[countOf+name] = count(all[name])
	}
	upkeep, err := sqlkit.NamedStatements(segments.Statements, "statements.sql")
	if err != nil {
		panic(err)
	}
	for name, statement := range upkeep {
		rest, each := strings.CutPrefix(name, segments.Each)
		if !each {
			all[name] = statement
			continue
		}
		for n := range segments.Count {
			number := strconv.Itoa(n)
			all[segments.Each+number+"_"+rest] = strings.ReplaceAll(statement, segments.Segment, number)
		}
	}
	// An append names its segment: by the parent of all it costs half as much again.
	for n := range segments.Count {
		number := strconv.Itoa(n)
		all[appendTo+number] = strings.ReplaceAll(all["log_append"], segments.Segment, number)
	}
	delete(all, "log_append")
	for _, name := range []string{"lease", "lease_same", "extend", "change", "delete"} {
		n := parameters(all[name])
		written := "WITH written AS (" + all[name] + ")"
		checked := "{p:demand}(count(*), $" + strconv.Itoa(n+1) + "::bigint) FROM written"
		all[allOf+name] = written + " SELECT " + checked
		if !strings.HasPrefix(name, "lease") {
			continue
		}
		// The check is first, whatever the planner does: a left join that has no condition begins with its left side.
		all[contentOf+name] = strings.Replace(written, "RETURNING r.id", "RETURNING {content:"+strconv.Itoa(n+2)+"}", 1) +
			",\nchecked AS MATERIALIZED (SELECT " + checked + ")\nSELECT written.* FROM checked LEFT JOIN written ON true"
	}
	addLogTemplates(all)
	return all
})

const (
	// appendTo begins the names of the appends to a segment.
	appendTo = "log_append_"
	// countOf begins the names of the statements that count what the searches of a line find.
	countOf = "count of "
	// allOf begins those of writes that fail unless they write as many rows as their last argument says, and contentOf those that return
	// the content of the rows, too: one more argument says what is read of it.
	allOf     = "all of "
	contentOf = "content of "
)

// nowOfSearch is now in a search that has it.
const nowOfSearch = "{now:4}"

// count returns a statement that counts what a search finds: the rows, those that are later, and the first time. If the search
// does not have now, it is the last parameter.
func count(search string) string {
	now := nowOfSearch
	if !strings.Contains(search, now) {
		now = "{now:" + strconv.Itoa(parameters(search)+1) + "}"
	}
	return "SELECT count(*), coalesce(sum((next_at > " + now + " AND stage <> 4)::integer), 0), " +
		"coalesce(min(CASE stage WHEN 4 THEN wake_at ELSE next_at END) FILTER (WHERE (expires_at = 0 OR expires_at > " + now + ")), 0)\nFROM (" +
		strings.ReplaceAll(search, "{free}", "") + ") AS found"
}

var parameter = regexp.MustCompile(`(\$|\{lane:|\{now:)(\d+)`)

// parameters is the number of the last parameter of a statement.
func parameters(text string) (last int) {
	for _, match := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[2])
		last = max(last, n)
	}
	return last
}

// rowColumns are the columns that rowInto reads.
var rowColumns = []string{
	"seq", "id", "grp", "topic", "key", "tenant_id", "created_at", "size", "stage", "wake_at", "next_at", "expires_at", "attempts", "claims",
	"expiries", "owner", "worker", "under", "step", "waits_for", "parked", "processed_at", "processed_by",
}

// contentColumns are what readContent reads. What the parameter does not ask for is not read from the disk.
const contentColumns = `r.id, r.due_at, r.message_id, coalesce(r.correlation_id, ''), coalesce(r.causation_id, ''),
	coalesce(r.traceparent, ''), coalesce(r.tracestate, ''), coalesce(r.dedup_key, ''), coalesce(r.joins, ''), coalesce(r.last_error, ''),
	CASE WHEN $N::integer & 1 <> 0 THEN coalesce(r.metadata, '') ELSE '' END AS metadata, CASE WHEN $N::integer & 2 <> 0 THEN r.payload END,
	CASE WHEN $N::integer & 4 <> 0 THEN r.history END`

const none = `'00000000-0000-0000-0000-000000000000'::uuid`

// columnsOfRow is the text of {row}. Of several lines their own columns line and topic are left out.
func columnsOfRow(without string) string {
	list := make([]string, 0, len(rowColumns))
	for _, column := range rowColumns {
		switch column {
		case without:
			continue
		case "step", "waits_for":
			list = append(list, "coalesce(r."+column+", "+none+") AS "+column)
		default:
			list = append(list, "r."+column)
		}
	}
	return strings.Join(list, ", ")
}

// blocked says that a row is held under the note of its key, and that this note is not open.
const blocked = `r.stage = 1 AND r.under >= 'k' AND r.under < 'l' AND (SELECT 1 FROM {p:notes} AS n
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> '') IS NOT NULL`

// fixed are the placeholders that do not depend on the schema's name.
var fixed = strings.NewReplacer(
	"{row}", columnsOfRow(""), "{row:line}", columnsOfRow("topic"), "{blocked}", blocked, "{none}", none,
	"{last}", strconv.FormatInt(last, 10)+"::bigint",
)

// last is driver.None.
const last int64 = 1<<63 - 1

// names convert templates to statements for one schema and prefix. {p:records} is the qualified name of a table, {q:records} that as a
// text, {i:line} the bare one of an index, {c:notify} the channel of notifications, {s:} the schema, {now:4} the time of parameter 4, or
// now if that is 0, and {lane:5} the lane of the key in parameter 5.
type names struct {
	schema, prefix string
	made           sync.Map
}

var placeholder = regexp.MustCompile(`\{(p|q|i|now|lane|content|c|s):([a-z0-9_]*)\}`)

// free has a search lock what it finds, and leave out what others have locked.
const free = "FOR NO KEY UPDATE OF r SKIP LOCKED"

type made struct {
	name  string
	locks bool
}

// text returns a named statement. locks says that its rows are locked, if it can lock them.
func (n *names) text(name string, locks bool) string {
	key := made{name, locks}
	if text, ok := n.made.Load(key); ok {
		return text.(string)
	}
	template, known := templates()[name]
	if !known {
		panic(fmt.Sprintf("there is no statement %q", name))
	}
	lock, skip := "", ""
	if locks {
		lock, skip = free, "FOR NO KEY UPDATE SKIP LOCKED"
	}
	text := n.in(strings.NewReplacer("{free}", lock, "{lock}", skip).Replace(template))
	n.made.Store(key, text)
	return text
}

func (n *names) in(template string) string {
	return placeholder.ReplaceAllStringFunc(fixed.Replace(template), func(found string) string {
		match := placeholder.FindStringSubmatch(found)
		switch match[1] {
		case "now":
			return "coalesce(nullif($" + match[2] + "::bigint, 0), (SELECT " + n.qualified("now") + "()))"
		case "content":
			return strings.ReplaceAll(contentColumns, "$N", "$"+match[2])
		case "lane":
			return "hashtextextended($" + match[2] + "::text, hashtextextended($2::text, hashtextextended($1::text, 0)))"
		case "q":
			return "'" + strings.ReplaceAll(n.qualified(match[2]), "'", "''") + "'"
		case "c":
			return "'" + n.channel() + "'"
		case "s":
			return pgx.Identifier{n.schema}.Sanitize()
		case "i":
			return pgx.Identifier{n.prefix + match[2]}.Sanitize()
		}
		return n.qualified(match[2])
	})
}

// inSchema is in for a statement of the schema. A comment stays one, also where the schema has a name of several lines.
func (n *names) inSchema(template string) string {
	lines := strings.SplitAfter(template, "\n")
	for i, line := range lines {
		text, whole := strings.CutSuffix(line, "\n")
		if text = n.in(text); strings.HasPrefix(line, "--") {
			text = strings.NewReplacer("\n", "\n-- ", "\r", "\r-- ").Replace(text)
		}
		if whole {
			text += "\n"
		}
		lines[i] = text
	}
	return strings.Join(lines, "")
}

func (n *names) qualified(name string) string {
	return pgx.Identifier{n.schema, n.prefix + name}.Sanitize()
}

// channel is the name of the channel of NOTIFY. Its length is limited like that of other identifiers.
func (n *names) channel() string {
	return "outmill_" + strconv.FormatUint(uint64(n.lockOf("notify")), 36)
}

// lockOf is the number of an advisory lock of this schema and prefix.
func (n *names) lockOf(parts ...string) int64 {
	hash := fnv.New64a()
	for _, part := range append([]string{"outmill", n.schema, n.prefix}, parts...) {
		_, _ = hash.Write([]byte(part))
		_, _ = hash.Write([]byte{0})
	}
	return int64(hash.Sum64())
}
