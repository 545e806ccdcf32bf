package driver_test

import (
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

var writes = flag.Bool("write-statements", false, "write testdata/statements.sql")

const statementsFile = "testdata/statements.sql"

// testdata/statements.sql shows a reviewer each statement with its plan:
//
//	go test -run TestStatements ./sqlite/internal/driver -write-statements
func TestStatements(t *testing.T) {
	t.Parallel()

	t.Run("testdata/statements.sql has each statement and its plan", func(t *testing.T) {
		t.Parallel()
		text := statementsOf(t, newHarness(t, storetest.Options{}, 0).store)
		if *writes {
			require.NoError(t, os.MkdirAll(filepath.Dir(statementsFile), 0o750))
			require.NoError(t, os.WriteFile(statementsFile, []byte(text), 0o600))
		}
		require.Equal(t, written(t), text)
	})

	t.Run("OBX-119 no statement scans the records, the notes or the entries, or sorts records", func(t *testing.T) {
		t.Parallel()
		requireGoodPlans(t, newHarness(t, storetest.Options{}, 0).store)
	})

	t.Run("the plan of each statement is tested", func(t *testing.T) {
		t.Parallel()
		known := map[string]bool{}
		for _, statement := range newHarness(t, storetest.Options{}, 0).store.driver.Texts() {
			known[statement.Name] = true
		}
		files, err := filepath.Glob("*.go")
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(filepath.Clean(file))
			require.NoError(t, err)
			for _, name := range declared.FindAllStringSubmatch(string(text), -1) {
				require.True(t, known[name[1]] || contains(others, name[1]), "%s of %s is not in the list of export_test.go", name[1], file)
			}
		}
	})
}

func written(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(statementsFile)
	require.NoError(t, err)
	return string(text)
}

func TestStatements_Million(t *testing.T) {
	t.Parallel()

	t.Run("at a million records the plans are the same, with and without ANALYZE", func(t *testing.T) {
		t.Parallel()
		testenv.Unraced(t, "plans of SQLite at a million records")
		s := newHarness(t, storetest.Options{}, 0).store
		for _, fill := range []string{million, millionNotes, millionEntries} {
			_, err := s.DB().ExecContext(t.Context(), fill)
			require.NoError(t, err)
		}
		require.Equal(t, written(t), statementsOf(t, s))
		_, err := s.DB().ExecContext(t.Context(), "ANALYZE")
		require.NoError(t, err)
		require.Equal(t, written(t), statementsOf(t, s))
	})
}

// million fills the table with 1,000,000 records in every stage. The first 100,000 ready ones have one key.
const million = `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000),
kinds AS (SELECT i, now, CASE
	WHEN i <= 750000 THEN 0 WHEN i <= 800000 THEN 1 WHEN i <= 850000 THEN 2 WHEN i <= 900000 THEN 3 WHEN i <= 930000 THEN 4
	WHEN i % 2 = 0 THEN 5 ELSE 6 END AS stage FROM n, clock)
INSERT INTO outmill_records (id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, owner, under, parked,
	processed_at, step, waits_for, due_at, message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata,
	payload)
SELECT printf('00000000-0000-7000-8000-%012d', i), CASE WHEN i % 10 = 0 AND i > 100000 AND stage = 0 THEN '' ELSE 'readers' END,
	CASE WHEN i <= 100000 THEN 'orders' ELSE 'orders' || (i % 50) END,
	CASE WHEN i <= 100000 THEN 'blocked' WHEN i % 3 = 0 THEN '' ELSE 'k' || (i % 20000) END, '', now, 100, stage,
	CASE WHEN stage IN (2, 3, 4) THEN now + 3600000000 + i ELSE 0 END, now, CASE WHEN i % 100 = 0 THEN now + 3600000000 ELSE 0 END,
	CASE stage WHEN 4 THEN '00000000-0000-7000-8000-000000000000' ELSE '' END, CASE stage WHEN 1 THEN 'kk' || (i % 20000) ELSE '' END,
	stage = 6 AND i % 3 = 0, CASE stage WHEN 5 THEN now ELSE 0 END,
	CASE WHEN i % 5 = 0 THEN printf('00000000-0000-7000-8000-%012d', i) END,
	CASE WHEN stage IN (2, 3) AND i % 5 = 1 THEN printf('00000000-0000-7000-9000-%012d', i % 100000) END,
	now, printf('m%d', i), '', '', '', '', '', '', '', zeroblob(50)
FROM kinds`

const millionNotes = `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
INSERT INTO outmill_notes (grp, topic, name, blocker, head, look_at, looks)
SELECT 'readers', 'orders' || (i % 50), 'kk' || i, CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN 'waiting' ELSE 'p' || (i % 7) END, i, i % 2, 0
FROM n`

const millionEntries = `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999999)
INSERT INTO outmill_entries (kind, key, at, made_at, value) SELECT 'kind' || (i % 5), 'key' || i, i, i, '' FROM n`

// declared matches the constant of a statement.
var declared = regexp.MustCompile(`(?m)^\s*(?:const )?(sql[A-Z]\w*)\s+= `)

// others read no records, notes or entries, or are the beginning of statements.
var others = []string{"sqlInsert", "sqlHasMeta", "sqlTaken", "sqlVersion", "sqlSetVersion", "sqlMainFile", "sqlParts",
	"sqlReached", "sqlOutside", "sqlLockAll"}

// statementsOf returns the statements and their plans as text.
func statementsOf(t *testing.T, s store) string {
	t.Helper()
	var all strings.Builder
	all.WriteString("-- Generated by TestStatements. SQLite runs each with the plan that follows it.\n")
	for _, statement := range s.driver.Texts() {
		text := statement.Text
		if strings.HasPrefix(text, "INSERT") && strings.Count(text, "(?") > 1 {
			head, rows, _ := strings.Cut(text, "VALUES")
			text = head + "VALUES … -- " + strconv.Itoa(strings.Count(rows, "(?")) + " rows"
		}
		all.WriteString("\n-- " + statement.Name + "\n" + text + ";\n")
		for _, line := range planOf(t, s.DB(), statement.Text) {
			all.WriteString("--   " + line + "\n")
		}
	}
	return all.String()
}

var (
	// reads matches a line of a plan that reads the records, notes or entries.
	reads = regexp.MustCompile(`^(SCAN|SEARCH) (outmill_\w+|r|n|e)\b`)
	// found matches one that reads them by an index, by the place in the order, or by the primary key.
	found = regexp.MustCompile(`^SEARCH \w+ USING (((COVERING )?INDEX|INTEGER PRIMARY KEY) ?\w* \(.+\)|PRIMARY KEY \(\w+[=<]\?)`)
)

// scans are allowed: each reads the first entry of an index, or the only row.
var scans = []string{"sqlState", "sqlByOpen"}

// sorts are allowed: they sort topics, notes of a page, or what several searches of a few rows have found.
var sorts = []string{"sqlNotes", "sqlDueTopics", "sqlDueNames", "sqlTopicsOf"}

func requireGoodPlans(t *testing.T, s store) {
	t.Helper()
	for _, statement := range s.driver.Texts() {
		for _, line := range planOf(t, s.DB(), statement.Text) {
			if reads.MatchString(line) && !contains(scans, statement.Name) {
				require.Regexp(t, found, line, statement.Text)
			}
			if !contains(sorts, statement.Name) {
				require.NotContains(t, line, "USE TEMP B-TREE", statement.Text)
			}
		}
	}
}

func contains(list []string, name string) bool {
	for _, one := range list {
		if one == name {
			return true
		}
	}
	return false
}

func planOf(t *testing.T, db *sql.DB, text string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, parameters(text))...)
	require.NoError(t, err, text)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	require.NoError(t, rows.Err())
	return plan
}

// parameters counts ?1 to ?20, or ? without a number.
func parameters(text string) int {
	for n := 20; n > 0; n-- {
		if strings.Contains(text, "?"+strconv.Itoa(n)) {
			return n
		}
	}
	return strings.Count(text, "?")
}
