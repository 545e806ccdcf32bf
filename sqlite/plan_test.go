package sqlite_test

import (
	"database/sql"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlite"
)

// million fills the table with 1,000,000 records in every state. The first 100,000 ready
// records have one key. A fifth are steps of joins.
const million = `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000),
kinds AS (SELECT i, now, CASE
	WHEN i <= 800000 THEN 0
	WHEN i <= 850000 THEN 2
	WHEN i <= 900000 THEN 3
	WHEN i <= 920000 THEN 4
	WHEN i <= 930000 THEN 5
	ELSE 6 END AS stage FROM n, clock)
INSERT INTO outmill_records (id, grp, topic, key, status, stage, available_at, due_at, next_at, created_at, expires_at, size,
	owner, processed_at, message_id, step, waits_for, payload)
SELECT printf('00000000-0000-7000-8000-%012d', i),
	CASE WHEN i % 10 = 0 AND i > 100000 AND stage = 0 THEN NULL ELSE 'readers' END,
	CASE WHEN i <= 100000 THEN 'orders' ELSE 'orders' || (i % 50) END,
	CASE WHEN i <= 100000 THEN 'blocked' WHEN i % 3 = 0 THEN '' ELSE 'k' || (i % 20000) END,
	CASE stage WHEN 4 THEN 'leased' WHEN 6 THEN iif(i % 2, 'dead', 'processed') ELSE 'pending' END,
	stage, CASE WHEN stage IN (2, 3, 4) THEN now + 3600000000 + i END, now, now, now,
	CASE WHEN stage = 5 OR i % 100 = 0 THEN now + 3600000000 END, 100,
	CASE stage WHEN 4 THEN '00000000-0000-7000-8000-000000000000' ELSE '' END,
	CASE WHEN stage = 6 AND i % 2 = 0 THEN now END,
	printf('m%d', i),
	CASE WHEN i % 5 = 0 THEN printf('00000000-0000-7000-8000-%012d', i) END,
	CASE WHEN stage IN (2, 3) AND i % 5 = 1 THEN printf('00000000-0000-7000-9000-%012d', i % 100000) END, zeroblob(50)
FROM kinds`

// millionMembers makes each record a step of one of 100,000 joins, half of
// which are pending.
const millionMembers = `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)
INSERT INTO outmill_joins (id, grouping_key, status, policy, quorum, expected_steps, complete_at_deadline, created_at, updated_at,
finished_at, metadata)
SELECT printf('00000000-0000-7000-9000-%012d', i), iif(i % 5, '', 'c' || (i % 1000)),
	CASE WHEN i < 50000 THEN 'pending' WHEN i % 3 = 0 THEN 'completed' WHEN i % 3 = 1 THEN 'failed' ELSE 'cancelled' END,
	'all', 0, 20, 0, now, now, CASE WHEN i >= 50000 THEN now - i % 2 * 172800000000 END, ''
FROM n, clock;
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999999)
INSERT INTO outmill_join_members (join_id, step, open)
SELECT printf('00000000-0000-7000-9000-%012d', i / 10), printf('00000000-0000-7000-8000-%012d', i + 1), 1 FROM n`

// Half of the rows of millionNotes and millionSagas are past their retention. Nine in ten sagas
// have finished, all of one type.
const (
	millionNotes = `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999999),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)
INSERT INTO outmill_inbox (consumer, key, delete_at) SELECT 'c' || (i % 3), 'm' || i, now + (i % 2 * 2 - 1) * 3600000000 FROM n, clock`

	millionSagas = `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999999),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)
INSERT INTO outmill_sagas (id, type, correlation, version, state, finished, created_at, updated_at)
SELECT printf('00000000-0000-7000-a000-%012d', i), 'order', 'o' || i, 1, '{}', i % 10 > 0, now, now - i % 2 * 86400000000 FROM n, clock`
)

func TestStore_Plan(t *testing.T) {
	t.Parallel()

	t.Run("no statement scans the records or sorts them in a database that is new (OBX-119)", func(t *testing.T) {
		t.Parallel()
		requireGoodPlans(t, newStore(t))
	})

	t.Run("at a million records", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "plans and claims of SQLite at a million records")
		if underRace {
			t.Skip("skipped: filling the table takes minutes under -race; go test -run million ./sqlite runs it")
		}
		store := newStore(t)
		// One connection is used, so that total_changes() counts the changes of all statements.
		store.DB().SetMaxOpenConns(1)
		for _, fill := range []string{million, millionMembers, millionNotes, millionSagas} {
			_, err := store.DB().ExecContext(t.Context(), fill)
			require.NoError(t, err)
		}

		t.Run("no statement scans the records, joins, members, notes or sagas, or sorts them", func(t *testing.T) {
			requireGoodPlans(t, store)
		})
		t.Run("nor does one after ANALYZE", func(t *testing.T) {
			_, err := store.DB().ExecContext(t.Context(), "ANALYZE")
			require.NoError(t, err)
			requireGoodPlans(t, store)
		})
		t.Run("100,000 records of a blocked key are passed over once, and then cost nothing", func(t *testing.T) {
			requireBoundedClaims(t, store)
		})
	})
}

var (
	// records matches a line of a plan that reads the records, joins, members, notes or sagas.
	records = regexp.MustCompile(`^(SCAN|SEARCH) ((outmill_records|r|along|below|above|w|outmill_joins|outmill_join_members|m|` +
		`outmill_inbox|outmill_sagas)\b|j( USING|$))`)
	// found matches a line that reads by an index, by the place in the order, or by the join's
	// id.
	found = regexp.MustCompile(`^SEARCH \w+ USING (((COVERING )?INDEX|INTEGER PRIMARY KEY) ?\w* \(.+\)|PRIMARY KEY \(\w+[=<]\?)`)
)

// anyMember reads at most one member, although its plan is a scan.
const anyMember = `EXISTS (SELECT 1 FROM "outmill_join_members")`

func requireGoodPlans(t *testing.T, store file) {
	t.Helper()
	for _, template := range sqlite.AllStatements() {
		text := store.SQL(template)
		for _, line := range planOf(t, store.DB(), text) {
			if records.MatchString(line) && !strings.Contains(text, anyMember) {
				require.Regexp(t, found, line, text)
			}
			require.NotContains(t, line, "(grp,topic)>(", "SQLite reads each record of a topic to compare a pair: %s", text)
			if !slices.Contains(sqlite.Sorting(), template) {
				require.NotContains(t, line, "USE TEMP B-TREE", text)
			}
		}
	}
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

func requireBoundedClaims(t *testing.T, store file) {
	t.Helper()
	const limit = 100
	holder, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
	byKey := func(owner outmill.OwnerToken) outmill.ClaimRequest {
		req := claimRequest(owner, limit, outmill.OrderKey)
		req.Lease = time.Hour
		return req
	}
	req := byKey(holder)
	req.Limit, req.Topics.Include = 1, []string{"orders"}
	require.Len(t, claim(t, store, req), 1)

	// The rest of the topic has the key that the holder has leased.
	req = byKey(other)
	req.Topics.Include = []string{"orders"}
	require.Empty(t, claim(t, store, req))
	require.Equal(t, 99_999, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE stage = 1`))

	for range 3 {
		require.Zero(t, changes(t, store, func() { require.Empty(t, claim(t, store, req)) }), "rows changed by a claim that finds a key blocked")
	}
	for range 3 {
		changed := changes(t, store, func() { require.Len(t, claim(t, store, byKey(other)), limit) })
		require.LessOrEqual(t, changed, 4*limit, "rows changed by a claim beside a blocked key")
	}
	changed := changes(t, store, func() { require.NoError(t, store.Append(t.Context(), rec("last", "blocked"))) })
	require.LessOrEqual(t, changed, 2)
	require.Empty(t, claim(t, store, req))

	req.Owner = holder
	changed = changes(t, store, func() { require.Len(t, claim(t, store, req), limit) })
	require.LessOrEqual(t, changed, 4*limit, "rows changed by the holder's claim")
}

// changes counts the rows that fn inserts, updates and deletes.
func changes(t *testing.T, store file, fn func()) int {
	t.Helper()
	const total = `SELECT total_changes()`
	before := number(t, store.DB(), total)
	fn()
	return number(t, store.DB(), total) - before
}
