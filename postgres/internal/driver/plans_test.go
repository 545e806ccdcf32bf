package driver_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

var (
	// scans are the lines of a plan that read one of the tables that grow, and logScans those that read one of the log.
	scans    = regexp.MustCompile(`(Seq|Index|Index Only) Scan.* on (records|notes|entries)\b`)
	logScans = regexp.MustCompile(`(Seq|Index|Index Only|Bitmap Heap) Scan.* on ` +
		`(log_\d|batches|ended|skips|skip_ranges|left_rows|records|notes|entries)\b`)
	scanned = regexp.MustCompile(`using (\w+) on (records|notes|entries)\b`)
	// parent are those that read the table of all segments itself.
	parent = regexp.MustCompile(`Scan.* on log( \w+)?  `)
	// byTopic are conditions that find no more of the log than its topic.
	byTopic = regexp.MustCompile(`Index Cond: \(topic = [^()]*(\([^()]*\)[^()]*)?\)$`)
	// ofLog are the names of the statements of the log and its upkeep.
	ofLog = regexp.MustCompile("^(log|segment|upkeep|tidy|cluster)")
)

// unbounded are the statements that read the first rows of a whole index: they have a limit of their own.
var unbounded = map[string]bool{"by_open": true, "state": true, "log_topics": true, "log_all_ended": true}

// Each statement has an index that finds its rows, with generic plans and small tables, whatever their statistics say: a plan that was made
// when the tables were empty stays while they grow. TestPlans_Million looks at full ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	store := plannedStore(t)
	requireIndexes(t, store, "before the first ANALYZE")
	execute(t, store.db, "VACUUM ANALYZE outmill.records, outmill.notes, outmill.entries")
	requireIndexes(t, store, "with the statistics of empty tables")
	execute(t, store.db, sqlFill, 20)
	execute(t, store.db, "ANALYZE outmill.records")
	requireIndexes(t, store, "with the statistics of few rows")
}

// The statements about the log look each row up by its place or id, and never go through its topic. What the schema's functions do is in
// no plan.
func TestPlans_OfLog(t *testing.T) {
	t.Parallel()
	store := plannedStore(t)
	for _, when := range []string{"before the first ANALYZE", "with the statistics of empty tables"} {
		seen := 0
		plans(t, store, when, func(name string) bool {
			return strings.HasPrefix(name, "log") || slices.Contains([]string{"page_with_log", "pages", "state", "acked_steps"}, name)
		}, func(name, line, below string) {
			assert.True(t, unbounded[name] || !parent.MatchString(line), "%s: %s reads the empty table: %s", when, name, line)
			if !logScans.MatchString(line) || unbounded[name] {
				return
			}
			seen++
			assert.Contains(t, below, "Index Cond", "%s: %s: %s", when, name, line)
			if strings.Contains(line, " on log_") {
				assert.NotRegexp(t, byTopic, below, "%s: %s: %s", when, name, line)
			}
		})
		require.Greater(t, seen, 90, "the plans are read")
		execute(t, store.db, "VACUUM ANALYZE")
	}
}

func plannedStore(t *testing.T) opened {
	t.Helper()
	db := connect(t, postgrestest.Database(t), 1, nil)
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"})
	require.NoError(t, d.Ensure(t.Context()))
	return opened{db: db, driver: d}
}

// requireIndexes looks at the plan of each statement about the records.
func requireIndexes(t *testing.T, store opened, when string) {
	t.Helper()
	seen := 0
	plans(t, store, when, func(name string) bool { return !ofLog.MatchString(name) }, func(name, line, below string) {
		if !scans.MatchString(line) {
			return
		}
		if seen++; !unbounded[name] {
			assert.Contains(t, below, "Index Cond", "%s: %s: %s", when, name, line)
		}
		assert.Regexp(t, scanned, line, "%s: %s", when, name)
	})
	require.Greater(t, seen, 100, "the plans are read")
}

// plans calls see for each line of the generic plan of each statement that pick picks, with the line below it.
func plans(t *testing.T, store opened, when string, pick func(name string) bool, see func(name, line, below string)) {
	t.Helper()
	names, texts := store.driver.Texts()
	tx, err := store.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), texts["settings"], true)
	require.NoError(t, err)
	for i, name := range names {
		if !pick(name) {
			continue
		}
		call := fmt.Sprint("plan ", i, when)
		prepared, err := tx.Prepare(t.Context(), call, texts[name])
		require.NoError(t, err, name)
		call = pgx.Identifier{call}.Sanitize()
		if n := len(prepared.ParamOIDs); n > 0 {
			call += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, name)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, name)
		for i, line := range plan {
			see(name, line, plan[min(i+1, len(plan)-1)])
		}
	}
}
