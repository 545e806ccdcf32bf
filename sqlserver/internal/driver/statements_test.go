package driver_test

import (
	"database/sql"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

var update = flag.Bool("update", false, "write testdata/statements.sql again")

func named() *sqlserver.Driver {
	return sqlserver.New(nil, sqlserver.Config{Name: "driver", Schema: "dbo", Table: "Outbox"})
}

// A reviewer reads all statements as SQL Server gets them, and so does .ci/sql, which is not written in Go.
func TestStatements(t *testing.T) {
	t.Parallel()
	names, texts := named().Texts()
	var all strings.Builder
	for _, name := range names {
		all.WriteString("-- " + name + "\n" + texts[name] + "\n\n")
	}
	if file := os.Getenv("OUTMILL_STATEMENTS_FILE"); file != "" {
		schema, err := named().StatementsFrom(0)
		require.NoError(t, err)
		text, err := json.Marshal(map[string]any{"schema": schema, "grants": named().Grants("outmill"), "statements": texts})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	file := filepath.Join("testdata", "statements.sql")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), all.String(), "run go test -run TestStatements -update, and read the difference")
}

// These rules need no server. Only one can prove that the hints have their effect.
func TestStatements_Rules(t *testing.T) {
	t.Parallel()
	_, texts := named().Texts()
	require.Greater(t, len(texts), 60)
	for name, text := range texts {
		// The binder skips silently what follows these.
		require.NotRegexp(t, `(?i)\b(COALESCE|NULLIF)\b`, text, name)
		require.NotContains(t, text, "{", name)
		// A text of a list has the collation of the database, and the server refuses to compare it with a column.
		require.NotRegexp(t, `\b[rne]\.\S+ = u\.(owner|grp|blocker|topic|name|kind|value)\b [^C]`, text, name)
		// A parameter has no length, and a column that is compared with one would be converted.
		require.NotRegexp(t, `\b[a-z]\.(\[key\]|grp|topic|owner|name|kind|under|blocker) [=<>]+ @(group|key|owner|prefix|kind)\b`, text, name)
		for _, found := range regexp.MustCompile(`WITH \([A-Z, ]*READPAST[A-Z, ]*\)`).FindAllString(text, -1) {
			require.Equal(t, "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)", found, name)
		}
		if strings.Contains(text, "UPDATE r SET") || strings.Contains(text, "DELETE r ") {
			require.Contains(t, text, "AS r WITH (UPDLOCK, ROWLOCK, FORCESEEK)", name)
		}
	}
	// Whatever is sent in a caller's transaction proves first that there is one.
	for name, text := range texts {
		if strings.Contains(text, "[dbo].[Outbox]") && !strings.Contains(name, ", with locks") {
			require.Contains(t, text, "IF @@TRANCOUNT = 0 THROW 50902", name)
		}
	}
}

// The binder does not look into lists of JSON: a list has the columns of the table that it is read into, in the same order, and the program
// sends all of them.
func TestStatements_Lists(t *testing.T) {
	t.Parallel()
	_, texts := named().Texts()
	read := regexp.MustCompile(`(?s)INSERT (@\w+) SELECT \* FROM OPENJSON\(@(\w+)\) WITH \((.*?)\);\n`)
	lists := 0
	for name, text := range texts {
		of, _, _ := strings.Cut(name, ",")
		for _, found := range read.FindAllStringSubmatch(text, -1) {
			lists++
			declared := regexp.MustCompile(`(?s)DECLARE (?:/\* [a-z_ ]+ \*/ )?` + found[1] + ` TABLE \((.*?)\);\n`).FindStringSubmatch(text)
			require.NotNil(t, declared, name)
			columns := columnsIn(found[3])
			require.Equal(t, columnsIn(declared[1]), columns, name)
			if strings.Contains(found[3], "N'$'") {
				require.Len(t, columns, 1, name)
				continue
			}
			require.Subset(t, sqlserver.Items(of), columns, name)
		}
	}
	require.Greater(t, lists, 20)
}

// columnsIn are the names and types of a list of columns.
func columnsIn(list string) (columns []string) {
	for _, column := range regexp.MustCompile(`,\s+`).Split(strings.ReplaceAll(list, "(1, 1)", ""), -1) {
		words := strings.Fields(column)
		if words[0] == "place" {
			continue // it counts the rows by itself
		}
		columns = append(columns, words[0]+" "+words[1])
	}
	return columns
}

// With IGNORE_DUP_KEY on an index that is not clustered, inserts lock ranges, and transactions wait for those that have nothing to do
// with them.
func TestSchema_OnlyClusteredKeysIgnore(t *testing.T) {
	t.Parallel()
	schema, err := named().StatementsFrom(0)
	require.NoError(t, err)
	ignore := 0
	for _, statement := range schema {
		for line := range strings.SplitSeq(statement, "\n") {
			if strings.Contains(line, "IGNORE_DUP_KEY = ON") {
				ignore++
				require.Contains(t, line, "PRIMARY KEY CLUSTERED")
			}
		}
	}
	require.Equal(t, 2, ignore, "notes and entries")
}

// The server keeps a plan for each declaration of the parameters: so texts have no length in it, and the order is always the same.
// Without a parameter it would not run the text as a procedure, and the settings at its beginning would stay.
func TestArguments(t *testing.T) {
	t.Parallel()
	for range 20 {
		require.Equal(t, []any{
			sql.Named("group", mssql.NVarCharMax("g")), sql.Named("id", []byte{1}), sql.Named("limit", int64(3)), sql.Named("stage", int64(4)),
			sql.Named("until", int64(5)),
		}, sqlserver.Arguments(map[string]any{"until": driver.Time(5), "limit": 3, "group": "g", "stage": driver.Leased, "id": []byte{1}}))
	}
	require.Len(t, sqlserver.Arguments(nil), 1)
}

// A search repeats the filter of the index that it is for, literally: the server uses a filtered index only then.
func TestStatements_Filters(t *testing.T) {
	t.Parallel()
	_, texts := named().Texts()
	for name, filter := range map[string]string{
		"by_line": "r.stage = 0", "by_held": "r.stage = 1", "by_hold": "r.stage = 1", "by_later": "r.wake_at > 0", "by_ended": "r.stage = 4",
		"by_expiry": "r.expires_at > 0 AND r.expires_at <= @now AND r.stage < 5", "by_key": "r.keyed = 1 AND r.stage IN (0, 1, 2, 3)",
		"by_parked": "r.parked = 1", "by_done": "r.stage = 5", "by_stage_later": "r.wake_at > 0", "by_stage_settled": "r.stage > 4",
		"by_unrouted": "r.grp = N''", "by_step": "r.step IS NOT NULL", "by_waiter": "r.waits_for IS NOT NULL",
	} {
		require.Contains(t, texts[name], filter, name)
	}
}
