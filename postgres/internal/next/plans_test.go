package next_test

import (
	"regexp"
	"testing"

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

// Each statement has an index that finds its rows, with generic plans and small tables, whatever their statistics say: a plan that was made
// when the tables were empty stays while they grow. TestPlans_Million looks at full ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 1, nil)
	d := next.New(next.PoolOf(db), next.Config{Name: "next", Schema: "outmill"})
	require.NoError(t, d.Ensure(t.Context()))
	store := opened{db: db, driver: d}
	requireIndexes(t, store, "before the first ANALYZE")
	execute(t, db, "VACUUM ANALYZE outmill.records, outmill.notes, outmill.entries")
	requireIndexes(t, store, "with the statistics of empty tables")
	execute(t, db, sqlFill, 20)
	execute(t, db, "ANALYZE outmill.records")
	requireIndexes(t, store, "with the statistics of few rows")
}
