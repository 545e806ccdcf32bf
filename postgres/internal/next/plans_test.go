package next_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/next"
)

// scans are the lines of a plan that read one of the tables that grow.
var scans = regexp.MustCompile(`(Seq|Index|Index Only) Scan.* on (records|notes|entries)\b`)

// unbounded are the statements that read the first rows of a whole index: they have a limit of their own.
var unbounded = map[string]bool{"by_open": true, "state": true}

// ofLog are the names of the statements of the log and its upkeep.
var ofLog = regexp.MustCompile("^(log|segment|upkeep|tidy|cluster)")

// Each statement has an index that finds its rows, with generic plans and empty tables. TestPlans_Million looks at full ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 1, nil)
	d := next.New(next.PoolOf(db), next.Config{Name: "next", Schema: "outmill"})
	require.NoError(t, d.Ensure(t.Context()))
	names, texts := d.Texts()
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), texts["settings"], true)
	require.NoError(t, err)
	seen := 0
	for _, name := range names {
		if ofLog.MatchString(name) {
			continue
		}
		prepared, err := tx.Prepare(t.Context(), name, texts[name])
		require.NoError(t, err, name)
		call := pgx.Identifier{name}.Sanitize()
		if n := len(prepared.ParamOIDs); n > 0 {
			call += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, name)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, name)
		for i, line := range plan {
			if !scans.MatchString(line) {
				continue
			}
			seen++
			if !unbounded[name] {
				assert.Contains(t, plan[min(i+1, len(plan)-1)], "Index Cond", "%s: %s", name, line)
			}
		}
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Greater(t, seen, 100, "the plans are read")
}
