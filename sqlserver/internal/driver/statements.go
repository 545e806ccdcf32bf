package driver

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

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
		"by_line", "by_held", "by_hold", "by_place", "coming", "any_order", "by_later", "by_key", "by_parked", "by_stage_later",
		"by_stage_settled",
	} {
		all[countOf+name] = count(all[name])
	}
	all[moving+"change"] = strings.ReplaceAll(all["change"], "{moves}", ", grp = u.to_grp")
	all["change"] = strings.ReplaceAll(all["change"], "{moves}", "")
	return all
})

const (
	// countOf begins the names of the statements that count what the searches of a line find.
	countOf = "count of "
	// moving begins the name of the statement for rows that get another group.
	moving = "moving "
)

// count returns a statement that counts what a search finds: the rows, those that are later, and the first time.
func count(search string) string {
	return `SELECT COUNT_BIG(*) AS n, ISNULL(SUM(CASE WHEN f.next_at > @now AND f.stage <> 4 THEN 1 ELSE 0 END), 0) AS later,
	ISNULL(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= @now THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0) AS oldest
FROM (` + strings.TrimSuffix(search, ";") + ") AS f;"
}

// rowColumns are the columns that rowInto reads.
var rowColumns = []string{
	"seq", "id", "grp", "topic", "[key]", "tenant_id", "created_at", "size", "stage", "wake_at", "next_at", "expires_at", "attempts", "claims",
	"expiries", "owner", "worker", "under", "step", "waits_for", "parked", "processed_at", "processed_by",
}

// columnsOf is a list of columns of an alias. The rows of a page have neither group nor topic, which are those of its line.
func columnsOf(alias string, page bool) string {
	var list []string
	for _, column := range rowColumns {
		if !page || column != "grp" && column != "topic" {
			list = append(list, alias+"."+column)
		}
	}
	return strings.Join(list, ", ")
}

const (
	// bin is the collation of the columns: a text of a list has that of the database, and the two cannot be compared.
	bin = "COLLATE Latin1_General_100_BIN2"
	// none is an id that is none.
	none = "CAST(0x AS BINARY(16))"
	// blocked says that a row is held under the note of its key, and that this note is not open.
	blocked = `CAST(CASE WHEN r.stage = 1 AND r.hold = 1 AND EXISTS (SELECT 1 FROM {p:notes} AS n WITH (FORCESEEK)
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> N'') THEN 1 ELSE 0 END AS BIT)`
	// empty are the columns of a page's row, up to its step.
	empty = "CAST(0 AS BIGINT) AS seq, " + none + " AS id, N'' AS [key], N'' AS tenant_id, CAST(0 AS BIGINT) AS created_at, " +
		"0 AS size, 0 AS stage, CAST(0 AS BIGINT) AS wake_at, CAST(0 AS BIGINT) AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, " +
		"0 AS expiries, N'' AS owner, N'' AS worker, N'' AS under, " + none + " AS step, " + none + " AS waits_for"
	// was is what is read of a row that is written, in a list.
	was = "seq BIGINT, id VARCHAR(32), stage SMALLINT, wake BIGINT, claims INT, owner NVARCHAR(40), grp NVARCHAR(255), step VARCHAR(32)"
	// last is driver.None.
	last = "9223372036854775807"
	// openGone has the next claim look at the notes of the keys in @gone. One that a claim writes at this moment is left out.
	openGone = `UPDATE n SET blocker = N'', look_at = 0, looks = 0, paused = 0
FROM (SELECT DISTINCT TOP (9223372036854775807) g.grp, g.topic, N'k' + g.[key] AS name FROM @gone AS g WHERE g.[key] <> N''
	ORDER BY g.grp, g.topic, name) AS k
INNER LOOP JOIN {p:notes} AS n WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON n.grp = k.grp AND n.topic = k.topic AND n.name = k.name
WHERE n.blocker <> N'' OR n.look_at <> 0 OR n.looks <> 0;`

	// settles, begins, ends and leased are the parts that the procedures of leases share.
	settles = `SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @token NVARCHAR(40) = LOWER(CONVERT(NVARCHAR(36), @owner));
    IF @owner IS NULL
        THROW 50905, N'outmill: @owner must not be NULL', 1;
    IF (SELECT COUNT(*) FROM @leases AS l) > 900
        THROW 50905, N'outmill: @leases has at most 900 rows', 1;`
	begins = `DECLARE @own BIT = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END, @now BIGINT = {p:now}();
    DECLARE @gone TABLE (id BINARY(16) NOT NULL PRIMARY KEY, grp NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
        topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL, [key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
    IF @own = 1
        BEGIN TRANSACTION;`
	ends = `IF @own = 1
        COMMIT TRANSACTION;
    SELECT g.id FROM @gone AS g;`
	leased = "r.stage = 4 AND r.owner = @token AND r.claims = l.claims AND r.step IS NULL AND r.waits_for IS NULL"
	// tried puts an attempt in front of a history: its time and error are those in place of $1 and $2. See engine/history.go.
	tried = `SUBSTRING(CAST(CAST((N'[' + CAST($1 AS NVARCHAR(20)) + N',"' + STRING_ESCAPE(r.worker, 'json') + N'","'
            + STRING_ESCAPE(SUBSTRING($2, 1, 256), 'json') + N'"]' + NCHAR(10))
            COLLATE Latin1_General_100_BIN2_UTF8 AS VARCHAR(MAX)) AS VARBINARY(MAX)) + ISNULL(r.history, 0x), 1, 3072)`
)

var triedAt = regexp.MustCompile(`\{tried:([^,]+), (.+?)\}`)

// fixed are the placeholders that do not depend on the schema's name. Texts are sent without a length, so that a statement has one
// plan, and have that of their column here.
var fixed = strings.NewReplacer(
	"{row}", columnsOf("r", false), "{columns}", columnsOf("h", true), "{empty}", empty, "{blocked}", blocked, "{none}", none, "{last}", last,
	"{bin}", bin, "{was}", was, "{group}", "CAST(@group AS NVARCHAR(255))", "{topic}", "CAST(@topic AS NVARCHAR(260))",
	"{key}", "CAST(@key AS NVARCHAR(255))", "{owner}", "CAST(@owner AS NVARCHAR(40))", "{kind}", "CAST(@kind AS NVARCHAR(200))",
	"{prefix}", "CAST(@prefix AS NVARCHAR(600))",
	"{open_gone}", openGone, "{settles}", settles, "{begin}", begins, "{end}", ends, "{leased}", leased,
)

const (
	// within begins what is sent in a caller's transaction: outside of one each statement would be a transaction by itself. A caller's level
	// may be one at which the server refuses READPAST. The setting ends with the text, because the server runs a text with parameters as
	// a procedure (sp_executesql).
	within = "SET NOCOUNT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n" +
		"IF @@TRANCOUNT = 0 THROW 50902, N'outmill: no transaction is open', 1;\n"
	// alone begins what is sent in a transaction of the driver's own: any error ends it, and in a deadlock with a user's transaction it is the
	// one that ends, because the driver repeats it. A connection of the pool may have another level of its last use.
	alone = "SET NOCOUNT, XACT_ABORT ON;\nSET DEADLOCK_PRIORITY LOW;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"
)

// The hints of searches.
const (
	seek     = "WITH (FORCESEEK)"
	seekFree = "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)"
)

// names convert templates to statements for one schema and table. {p:records} is the qualified name of a table, view, type, function or
// procedure, and {i:line} the bare one of an index or a constraint.
type names struct {
	schema, table string
	made          sync.Map
}

// endings are what names have behind that of the table of records; others have theirs behind a _.
var endings = map[string]string{
	"records": "", "notes": "Note", "entries": "Entry", "meta": "Meta", "readable": "Readable", "joins": "Join", "steps": "JoinMember",
	"new_records": "New", "leases": "Lease", "now": "_Now", "key_state": "_KeyState",
	"claim": "_Claim", "ack": "_Ack", "abandon": "_Abandon", "fail": "_Fail", "reap": "_Reap",
}

var placeholder = regexp.MustCompile(`\{(p|i):([a-z0-9_]+)\}`)

type made struct {
	name  string
	locks bool
}

// text returns a named statement. locks says that the rows of its searches are locked.
func (n *names) text(name string, locks bool) string {
	key := made{name, locks}
	if text, ok := n.made.Load(key); ok {
		return text.(string)
	}
	template, known := templates()[name]
	if !known {
		panic(fmt.Sprintf("there is no statement %q", name))
	}
	hints := seek
	if locks {
		hints = seekFree
	}
	text := n.in(strings.ReplaceAll(template, "{free}", hints))
	n.made.Store(key, text)
	return text
}

func (n *names) in(template string) string {
	text := triedAt.ReplaceAllString(fixed.Replace(template), tried)
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		match := placeholder.FindStringSubmatch(found)
		if match[1] == "i" {
			return "[" + n.index(match[2]) + "]"
		}
		return n.qualified(match[2])
	})
}

func (n *names) index(name string) string { return n.table + "_" + name }

func (n *names) qualified(name string) string {
	ending, known := endings[name]
	if !known {
		ending = "_" + name
	}
	return "[" + n.schema + "].[" + n.table + ending + "]"
}

// typeName is the name of a table type for go-mssqldb, which takes no brackets.
func (n *names) typeName(name string) string { return n.schema + "." + n.table + endings[name] }
