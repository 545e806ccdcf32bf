package sqlserver_test

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/sqlserver"
)

// These tests need no server. They prove that the statements contain the right hints. .ci/sql
// proves, with Microsoft's parser and binder, that SQL Server accepts the text. On a SQL Server
// (OUTMILL_TEST_SQLSERVER_URL), the conformance suite and engine_test.go prove that the hints
// have their effect. Babelfish ignores the hints.

// procedures returns the texts of the procedures, by name, without comments.
func procedures(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	begin := regexp.MustCompile(`CREATE PROCEDURE \[dbo\]\.\[(\w+)\]`)
	for _, batch := range newStore(t, nowhere(t), sqlserver.Config{}).Statements() {
		if name := begin.FindStringSubmatch(batch); name != nil {
			found[name[1]] = uncommented(batch)
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

var comment = regexp.MustCompile(`--[^\n]*`)

func uncommented(text string) string { return comment.ReplaceAllString(text, "") }

// inline returns the statements in the program itself, as the driver gets them if the database
// keeps no versions.
func inline(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, text := range sqlserver.Texts() {
		if !strings.Contains(name, ",") && strings.Contains(text, "[dbo].[Outbox") {
			found[name] = uncommented(text)
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

// all returns the procedures and the statements.
func all(t *testing.T) map[string]string {
	t.Helper()
	texts := procedures(t)
	for name, text := range inline(t) {
		texts[name] = text
	}
	return texts
}

var hints = regexp.MustCompile(`WITH \(((?:[A-Z, ]|INDEX\(\[\w+\]\))+)\)`)

// orders matches the beginning of a text that sets READ COMMITTED, also as maintenance.
var orders = regexp.MustCompile(`^(SET DEADLOCK_PRIORITY LOW;\n)?SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n`)

func TestStore_Hints(t *testing.T) {
	t.Parallel()

	t.Run("claims without an order lock the records they choose and skip locked ones", func(t *testing.T) {
		t.Parallel()
		claim := procedures(t)["Outbox_Claim"]
		require.Equal(t, 5, strings.Count(claim, "FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)"),
			"in line, held, waiting, delayed, leased")
		require.NotContains(t, claim, "FROM [dbo].[Outbox] WHERE")
		require.Regexp(t, `(?s)BEGIN TRANSACTION;.*INSERT @found.*UPDATE o SET Stage.*COMMIT;\s+SELECT @pauses.*SELECT o\.Seq`, claim,
			"chosen and leased in one transaction, and sent after it, so that no lock waits for the reader")
	})

	t.Run("statements that skip locked records read the records and not only an index", func(t *testing.T) {
		t.Parallel()
		// READPAST applies to the rows that are read. If an index has all columns of a statement,
		// the statement reads only the index, and the update then waits for the record.
		n := 0
		takes := regexp.MustCompile(`FROM \[dbo\]\.\[Outbox\]( AS \w)? WITH \(UPDLOCK, READPAST, ROWLOCK[^)]*\)[^@;]*[^;)]*`)
		for name, text := range all(t) {
			for _, statement := range strings.Split(text, ";") {
				for _, found := range takes.FindAllString(statement, -1) {
					n++
					reads := regexp.MustCompile(`RetryCount >= 0|RetryCount, |\bStep\b|WaitsFor`).MatchString(statement) ||
						// These columns are in no index that has the rest of the condition.
						regexp.MustCompile(`Seq, \[Key\]|SELECT TOP \(@Share\) Seq, AvailableAt AS Due`).MatchString(statement)
					require.True(t, reads, "%s: %s", name, found)
				}
			}
		}
		require.Greater(t, n, 20)
		// The same applies to lanes: a column of the condition is in no index.
		lanes := regexp.MustCompile(`(?s)UPDATE l SET BlockedBy = N'', Until = NULL, Looks = 0[^;]*;`)
		n = 0
		for name, text := range procedures(t) {
			for _, found := range lanes.FindAllString(text, -1) {
				n++
				require.Contains(t, found, "[dbo].[OutboxLane] AS l WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK, INDEX([IX_OutboxLane_Key]))", name)
				require.Contains(t, found, "l.BlockedBy <> N'' OR l.Until IS NOT NULL OR l.Looks <> 0", name)
			}
		}
		require.Equal(t, 10, n)
	})

	t.Run("queries for the records of a key contain the filter of their index", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, strings.Join(newStore(t, nowhere(t), sqlserver.Config{}).Statements(), "\n"), "WHERE Keyed = 1 AND Stage < 6;")
		// The optimizer does not match [Key] = @key AND [Key] <> N'' with a filter [Key] <> N''.
		n := 0
		for name, text := range all(t) {
			require.NotRegexp(t, `\b[ob]\.\[Key\] <> N''`, text, name)
			n += strings.Count(text, "o.Keyed = 1 AND o.Stage")
		}
		require.Equal(t, 8, n)
	})

	t.Run("a claim reads the counter of the pauses before the pauses", func(t *testing.T) {
		t.Parallel()
		// A list of pauses is kept under a number. If it were older than its number, it would be
		// kept for ever.
		texts := all(t)
		for _, name := range []string{"Outbox_Due", "Outbox_Claim", "Outbox_LineOpen", "Outbox_Extend", "sqlPauses"} {
			text := texts[name]
			counter := strings.Index(text, "SELECT Pauses FROM [dbo].[OutboxMeta]")
			require.Positive(t, counter, name)
			require.Less(t, counter, strings.Index(text+"[dbo].[OutboxPause]", "[dbo].[OutboxPause]"), name)
			require.Less(t, counter, strings.Index(text+"[dbo].[Outbox]", "[dbo].[Outbox]"), name)
		}
	})

	t.Run("queries for what is set aside contain the filter of their index", func(t *testing.T) {
		t.Parallel()
		n := 0
		for name, text := range all(t) {
			for _, found := range regexp.MustCompile(`\b([orlp])\.PausedBy [>=] g\.\w+`).FindAllStringSubmatchIndex(text, -1) {
				n++
				alias := text[found[2]:found[3]]
				require.Contains(t, text[max(0, found[0]-200):min(len(text), found[1]+200)], alias+".PausedBy IS NOT NULL", name)
			}
			// The conditions name no negative number, because no test has shown that the optimizer
			// matches the filter of an index that has one.
			require.NotRegexp(t, `Stage = -1 AND|WHERE Stage = -1`, text, name)
		}
		require.Equal(t, 6, n)
	})

	t.Run("a number of a pause ends with the stage or the block that it explains", func(t *testing.T) {
		t.Parallel()
		lanes, dead := 0, 0
		for name, text := range procedures(t) {
			for _, found := range regexp.MustCompile(`UPDATE l SET [^;]*? FROM`).FindAllString(text, -1) {
				lanes++
				require.Contains(t, found, "PausedBy = ", name)
			}
			// A lease has ended the stage already, and so has an ordered claim that parks.
			if name == "Outbox_Expire" || name == "Outbox_Fail" {
				for _, found := range regexp.MustCompile(`UPDATE o SET Stage = 7[^;]*;`).FindAllString(text, -1) {
					if strings.Contains(found, "@gone AS g ON g.Seq = o.Seq;") && name == "Outbox_Fail" {
						continue
					}
					dead++
					require.Contains(t, found, "PausedBy = NULL", name)
				}
			}
			// A stage may be negative.
			require.NotContains(t, text, "Stage TINYINT", name)
		}
		require.Equal(t, 16, lanes)
		require.Equal(t, 2, dead)
	})

	t.Run("a deadlock ends the janitor's statement", func(t *testing.T) {
		t.Parallel()
		texts := all(t)
		for _, name := range []string{
			"Outbox_Reap", "Outbox_Expire", "Outbox_Adopt", "Outbox_DropRecords", "Outbox_Sweep", "Outbox_DeleteNotes",
		} {
			require.Regexp(t, `(?s)SET DEADLOCK_PRIORITY LOW;.*BEGIN TRANSACTION`, texts[name], name)
		}
		for _, name := range []string{
			"sqlDeleteProcessed", "sqlDeleteDedup", "sqlOldWorkers", "sqlEndRegistrations", "sqlHoldGroups", "sqlDropLanes", "sqlDeleteMembers",
			"sqlDeleteJoins", "sqlHurry",
			"sqlDeleteFinishedSagas", "sqlDeleteOldSagas",
		} {
			require.Contains(t, texts[name], "SET DEADLOCK_PRIORITY LOW;\n", name)
		}
		for _, name := range []string{"Outbox_Append", "Outbox_Claim", "Outbox_Ack", "Outbox_Fail"} {
			require.NotContains(t, texts[name], "DEADLOCK_PRIORITY", name)
		}
	})

	t.Run("a claim in order admits a bounded number of records the longest due first", func(t *testing.T) {
		t.Parallel()
		open := procedures(t)["Outbox_LineOpen"]
		require.NotContains(t, open, "WHILE", "one step in a claim")
		require.Equal(t, 3, strings.Count(open, "SELECT TOP (@step) Seq, [Key], Stage, AvailableAt"), "waiting, delayed, leased")
		require.Equal(t, 3, strings.Count(open, "ORDER BY AvailableAt, Seq)"))
		require.Contains(t, open, "AS d ORDER BY d.AvailableAt, d.Seq;", "of all three together")
		require.Contains(t, open, "CASE WHEN @Page < 225 THEN 4 * @Page ELSE 900 END")
		// The remaining due records bound the records that the claim sees, in each of its reads.
		require.Equal(t, 3, strings.Count(open, "SELECT TOP (1) AvailableAt"))
		require.Contains(t, open, "@Before = @before;")
		require.Contains(t, procedures(t)["Outbox_LineLook"], "@Before = @Before;")
		require.Regexp(t, `(?s)IF @Before IS NOT NULL.*WHERE CreatedAt >= @Before\);\s+DELETE FROM @row WHERE Seq >= @cut;`,
			procedures(t)["Outbox_LineRead"])
	})

	t.Run("a text that is compared with a column is cast because parameters have no length", func(t *testing.T) {
		t.Parallel()
		bare := regexp.MustCompile(`[\w\])] (=|<>|<|>) @(group|topic|worker|grouping|selection)\b`)
		cast := 0
		for name, text := range inline(t) {
			cast += strings.Count(text, "CAST(@")
			for _, found := range bare.FindAllStringSubmatch(text, -1) {
				// A procedure's parameters; variables of its own.
				require.Contains(t, []string{"sqlLockLine", "sqlStats", "sqlTopicsLeased", "sqlTopicsSettled"}, name, found[0])
			}
			if !strings.Contains(text, "DECLARE @group") {
				require.NotRegexp(t, `@(group|topic|worker|grouping|selection) = N''.*= @(group|topic)\b`, text, name)
			}
		}
		require.Greater(t, cast, 10)
	})

	t.Run("statements that choose records to change and may skip some lock rows", func(t *testing.T) {
		t.Parallel()
		// The janitor, and the records that a claim in order makes ready.
		for _, name := range []string{"Outbox_Reap", "Outbox_Expire", "Outbox_LineOpen", "Outbox_Sweep"} {
			require.Contains(t, procedures(t)[name], "[dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)", name)
		}
		for _, name := range []string{"Outbox_Abandon", "Outbox_Snooze", "Outbox_Release", "Outbox_Fail", "Outbox_Extend", "Outbox_Ack",
			"Outbox_Requeue"} {
			require.Contains(t, procedures(t)[name], "WITH (UPDLOCK, ROWLOCK, FORCESEEK)", name)
		}
	})

	t.Run("no registration comes while the janitor decides which topics are read", func(t *testing.T) {
		t.Parallel()
		statements := inline(t)
		require.Contains(t, statements["sqlHoldGroups"], "FROM [dbo].[OutboxMeta] WITH (UPDLOCK, ROWLOCK)")
		for _, name := range []string{"sqlAddGroup", "sqlForgetGroup", "sqlEndRegistrations"} {
			require.Regexp(t, `^(SET [A-Z_ ]+;\n)*UPDATE \[dbo\]\.\[OutboxMeta\] SET Generation = Generation \+ 1`, statements[name], name)
		}
		// A renewed registration is not removed, because the delete itself checks the time.
		require.Regexp(t, `DELETE TOP \(@limit\) FROM \[dbo\]\.\[OutboxGroup\] OUTPUT [^;]* WHERE ExpiresAt IS NOT NULL\s+AND ExpiresAt <= @now;`,
			statements["sqlEndRegistrations"])
	})

	t.Run("reads that must not wait read committed rows that are not locked", func(t *testing.T) {
		t.Parallel()
		texts := all(t)
		from := regexp.MustCompile(`FROM \[dbo\]\.\[Outbox(Lane)?\]( AS \w+)?( WITH \([A-Z, ]+\))?`)
		for _, name := range []string{
			"Outbox_Due", "sqlUnrouted", "sqlGet", "sqlSearch", "sqlSearchLeased", "sqlSearchProcessed", "sqlSearchDead", "sqlTopicsLeased",
			"sqlTopicsSettled",
		} {
			text, known := texts[name]
			require.True(t, known, name)
			if strings.HasPrefix(name, "sql") && strings.Contains(text, "AS o") {
				// The lookups for each record that was found are not checked here.
				text = text[strings.LastIndex(text, "FROM [dbo].[Outbox] AS o"):]
			}
			found := from.FindAllStringSubmatch(text, -1)
			require.NotEmpty(t, found, name)
			for _, read := range found {
				require.Regexp(t, `^ WITH \(READCOMMITTEDLOCK, READPAST(, FORCESEEK)?\)$`, read[3], "%s: %s", name, read[0])
			}
		}
		// The ready records are the exception, because they are read under the line's lock.
		require.Equal(t, 4, strings.Count(texts["Outbox_LineRead"], "[Outbox] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)")+
			strings.Count(texts["Outbox_LineRead"], "[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK)"))
	})

	t.Run("SQL Server accepts the combinations of hints", func(t *testing.T) {
		t.Parallel()
		n := 0
		for name, text := range all(t) {
			for _, found := range hints.FindAllStringSubmatch(text, -1) {
				n++
				of := " " + strings.ReplaceAll(found[1], ",", " ") + " "
				has := func(hint string) bool { return strings.Contains(of, " "+hint+" ") }
				// Both set the granularity of locks: error 1047.
				require.False(t, has("READCOMMITTEDLOCK") && has("ROWLOCK"), "%s: %s", name, found[0])
				// READPAST needs READ COMMITTED or REPEATABLE READ: error 650.
				require.False(t, has("READPAST") && (has("HOLDLOCK") || has("SERIALIZABLE") || has("NOLOCK")), "%s: %s", name, found[0])
				// Under READ_COMMITTED_SNAPSHOT, READPAST needs a hint that takes locks.
				require.True(t, !has("READPAST") || has("UPDLOCK") || has("READCOMMITTEDLOCK"), "%s: %s", name, found[0])
				// Nothing reads uncommitted rows.
				require.False(t, has("NOLOCK") || has("TABLOCK") || has("TABLOCKX") || has("PAGLOCK"), "%s: %s", name, found[0])
				for hint := range strings.FieldsSeq(of) {
					require.Contains(t, []string{"UPDLOCK", "READPAST", "ROWLOCK", "READCOMMITTEDLOCK", "FORCESEEK", "INDEX([IX_OutboxJoinMember_Join])",
						"INDEX([IX_OutboxLane_Key])", "INDEX([IX_OutboxSaga_Id])"}, hint, name)
				}
			}
		}
		require.Greater(t, n, 50)
	})

	t.Run("every procedure that writes sets its level and is rolled back as a whole", func(t *testing.T) {
		t.Parallel()
		within := "|" + strings.Join(onlyWithin, "|") + "|"
		writes := regexp.MustCompile(`\b(INSERT|UPDATE|DELETE)\b`)
		for name, text := range procedures(t) {
			require.Contains(t, text, "SET NOCOUNT ON;", name)
			if strings.Contains(within, "|"+name+"|") {
				require.NotContains(t, text, "BEGIN TRANSACTION", name)
				continue
			}
			require.Contains(t, text, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;", name)
			if name == "Outbox_Due" { // changes nothing but its own variables
				require.NotRegexp(t, `(INSERT|UPDATE|DELETE( \w+ FROM)?) \[dbo\]`, text)
				continue
			}
			require.Regexp(t, writes, text, name)
			require.Contains(t, text, "SET XACT_ABORT ON;", name)
			require.Equal(t, strings.Count(text, "BEGIN TRANSACTION;"), strings.Count(text, "COMMIT;"), name)
			require.Less(t, strings.Index(text, "SET XACT_ABORT ON;"), strings.Index(text+"BEGIN TRANSACTION;", "BEGIN TRANSACTION;"), name)
		}
	})

	t.Run("a statement on the pool does not rely on the level of its session", func(t *testing.T) {
		t.Parallel()
		// A connection may keep the level of its last transaction, and a caller's transaction has
		// its own. The server refuses READPAST (error 650) under SERIALIZABLE and SNAPSHOT, and
		// no test has shown that READCOMMITTEDLOCK helps.
		n := 0
		for name, text := range inline(t) {
			if strings.Contains(text, "READPAST") {
				n++
				require.Regexp(t, orders, text, name)
			}
		}
		require.Greater(t, n, 15)
		// An append reads the groups in the caller's transaction, and then compares them under
		// READ COMMITTED. A snapshot would show it the same old groups again and again.
		for _, name := range []string{"sqlGeneration", "sqlGroups"} {
			for _, table := range regexp.MustCompile(`FROM \[dbo\]\.\[Outbox\w+\]( AS \w+)?( WITH \(\w+\))?`).FindAllStringSubmatch(inline(t)[name],
				-1) {
				require.Equal(t, " WITH (READCOMMITTEDLOCK)", table[2], "%s: %s", name, table[0])
			}
		}
	})

	t.Run("lookups for a set seek, so that they do not meet locked rows", func(t *testing.T) {
		t.Parallel()
		// A plan that scans the table would wait for a caller's open transaction.
		set := regexp.MustCompile(`FROM @\w+ AS \w+ JOIN (\[dbo\]\.\[\w+\] AS \w+)( WITH \([^)]*\))?`)
		of := regexp.MustCompile(`FROM (\[dbo\]\.\[\w+\] AS \w+)( WITH \([^)]*\))? JOIN (@|\(SELECT)`)
		n := 0
		for name, text := range all(t) {
			for _, found := range append(set.FindAllStringSubmatch(text, -1), of.FindAllStringSubmatch(text, -1)...) {
				n++
				require.Contains(t, found[2], "FORCESEEK", "%s: %s", name, found[0])
			}
		}
		require.Greater(t, n, 40)
	})

	t.Run("no statement merges", func(t *testing.T) {
		t.Parallel()
		for name, text := range all(t) {
			require.NotRegexp(t, `\bMERGE\b`, text, name)
			// Babelfish cannot run such an update, and nothing needs it.
			require.NotRegexp(t, `(?s)\bUPDATE\b[^;]*\bOUTPUT\b`, text, name)
		}
	})

	t.Run("no statement changes so many records that SQL Server locks the table", func(t *testing.T) {
		t.Parallel()
		// SQL Server tries that when a statement has 5,000 locks on a table or an index. A claim
		// without an order reads five kinds of records.
		require.Less(t, 5*sqlserver.MaxAtOnce, 5000)
		changes := regexp.MustCompile(`(?s)\b(?:UPDATE|DELETE)\b[^;]*?\[dbo\]\.\[Outbox\][^;]*`)
		filled := regexp.MustCompile(`(?s)INSERT (@\w+) [^;]*?\[dbo\]\.\[Outbox\][^;]*`)
		top := regexp.MustCompile(`TOP \((@?\w+)\)`)
		bounded := func(text string) bool { // by TOP, a set of the program's, or a set that is bounded itself
			return top.MatchString(text) || regexp.MustCompile(`JOIN @\w+`).MatchString(text) ||
				regexp.MustCompile(`FROM @\w+ AS \w+ JOIN`).MatchString(text)
		}
		ofVariable := regexp.MustCompile(`^DELETE \w+ FROM @`)
		n := 0
		for name, text := range all(t) {
			for _, change := range append(changes.FindAllString(text, -1), filled.FindAllString(text, -1)...) {
				n++
				if unbounded[name] == "" && !ofVariable.MatchString(change) {
					require.True(t, bounded(change), "%s: %s", name, change)
				}
			}
			for _, limit := range top.FindAllStringSubmatch(text, -1) {
				if literal, err := strconv.Atoi(limit[1]); err == nil {
					require.LessOrEqual(t, literal, sqlserver.MaxAtOnce, "%s: %s", name, limit[0])
				}
			}
		}
		require.Greater(t, n, 30)
		schema := strings.Join(newStore(t, nowhere(t), sqlserver.Config{}).Statements(), "\n")
		for _, table := range []string{"Outbox", "OutboxLane", "OutboxDedup", "OutboxJoin", "OutboxJoinMember", "OutboxInbox", "OutboxSaga"} {
			require.Contains(t, schema, "ALTER TABLE [dbo].["+table+"] SET (LOCK_ESCALATION = DISABLE)")
		}
	})

	// Other tools, which know nothing of Outmill, run the files too.
	t.Run("the files of the schema are plain batches with the default names", func(t *testing.T) {
		t.Parallel()
		names, err := fs.Glob(sqlserver.SchemaFiles, "schema/*/*.sql")
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(names), 9)
		begins := regexp.MustCompile(`^(SET ANSI_NULLS ON;|IF SERVERPROPERTY|CREATE (UNIQUE |CLUSTERED )*(TABLE|INDEX|TYPE|PROCEDURE|VIEW) \[)`)
		for _, name := range names {
			text, err := fs.ReadFile(sqlserver.SchemaFiles, name)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(string(text), "\nGO\n"), "%s ends a batch", name)
			require.NotContains(t, string(text), "\t", name)
			require.NotContains(t, string(text), "\r", name)
			// sqlcmd sets QUOTED_IDENTIFIER off, and a procedure keeps the setting with which it
			// was made. It could then write to no table with a filtered index (error 1934).
			if strings.Contains(string(text), "CREATE PROCEDURE") || strings.Contains(string(text), "CREATE TABLE") {
				require.Regexp(t, `^((--[^\n]*)?\n)*SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nGO\n`, string(text), name)
			}
			// No text that only one tool understands, and no text that depends on where it runs.
			require.NotRegexp(t, `(?m)^[ ]*(go|Go|gO|[ ]+GO|GO[ ;].*|:\w+.*|USE .*)$`, string(text), name)
			for _, batch := range strings.Split(strings.TrimSuffix(string(text), "\nGO\n"), "\nGO\n") {
				plain := strings.TrimSpace(uncommented(batch))
				require.Regexp(t, begins, plain, name)
				creates := regexp.MustCompile(`(?m)^CREATE `).FindAllString(plain, -1)
				require.LessOrEqual(t, len(creates), 1, "%s: one object in a batch: %s", name, plain)
				require.Equal(t, strings.Count(plain, "("), strings.Count(plain, ")"), "%s: %s", name, plain)
				require.Zero(t, strings.Count(plain, "'")%2, "%s: %s", name, plain)
				if strings.HasPrefix(plain, "CREATE PROCEDURE") {
					require.Equal(t, blocks(plain, `\bBEGIN\b`)-blocks(plain, `BEGIN TRANSACTION`)+blocks(plain, `\bCASE\b`), blocks(plain, `\bEND\b`),
						"%s: %s", name, plain)
					require.True(t, strings.HasSuffix(plain, "\nEND"), name)
				}
				requireDefaultNames(t, name, plain)
			}
		}
	})

	t.Run("the grants are plain statements with the default names", func(t *testing.T) {
		t.Parallel()
		for _, statement := range newStore(t, nowhere(t), sqlserver.Config{}).Grants("outmill") {
			require.Regexp(t, `^GRANT (SELECT, INSERT, UPDATE, DELETE|EXECUTE) ON (TYPE::)?\[dbo\]\.\[Outbox\w*\] TO \[outmill\]$`, statement)
		}
	})
}

// onlyWithin are called by other procedures, in their transaction, or only read.
var onlyWithin = []string{"Outbox_LockLine", "Outbox_LockName", "Outbox_LockDedupKey", "Outbox_ShareLines",
	"Outbox_Hold", "Outbox_CountSteps", "Outbox_LineRead", "Outbox_BringBack"}

// unbounded are the statements that change an unlimited number of records. For them the tables
// are made with LOCK_ESCALATION = DISABLE.
var unbounded = map[string]string{
	"Outbox_Requeue":  "brings back what was parked with a key",
	"Outbox_HoldDead": "one record",
	"Outbox_Edit":     "one record",
	"Outbox_Skip":     "one record, and the records of the program's limit",
	"Outbox_LineRead": "reads; the second time what the first time was no more than a page",
	"Outbox_Hold":     "gets its records from the program, 900 at most",
	"sqlHurry":        "what waits for a join: a few records",
	// All records of one message: one for each group.
	"sqlRecordToAttach": "one record for each group",
	"sqlLookAtStep":     "one record",
	"sqlNoteJoin":       "one record for each group",
}

func blocks(text, pattern string) int {
	return len(regexp.MustCompile(pattern).FindAllString(text, -1))
}

// requireDefaultNames requires names that are rewritten for Config.Schema and Table.
func requireDefaultNames(t *testing.T, file, text string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`\[dbo\][^ (,;]*`).FindAllString(text, -1) {
		require.Regexp(t, `^\[dbo\]\.\[Outbox\w*\]`, found, file)
	}
	for _, found := range regexp.MustCompile(`\bdbo\.|[^.]\[Outbox\w*\]|\[(PK|IX|UQ|FK|DF|CK)_\w*\]`).FindAllString(text, -1) {
		require.Regexp(t, `^\[(PK|IX)_Outbox\w*\]$`, found, file)
	}
}
