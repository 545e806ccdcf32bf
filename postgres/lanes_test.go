package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

var bothLanes = []postgres.Lane{postgres.LaneRows, postgres.LaneLog}

// eachLane runs the test on stores of either lane. Tests that do not depend on the lane run on
// one of them.
func eachLane(t *testing.T, options storetest.Options, test func(t *testing.T, r *ring)) {
	t.Helper()
	for _, lane := range bothLanes {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			if lane != postgres.LaneLog {
				testenv.Long(t, "tests of either lane on rows")
			}
			test(t, newRing(t, lane, options))
		})
	}
}

// sqlEverywhere selects where each record is: in the log if no claim has passed it, in a batch
// if it is in work, or among the records. It is one statement, so it sees each record in one
// place.
const sqlEverywhere = `SELECT l.id, l.pos AS place, l.grp, l.topic, l.key, l.message_id, 'log' AS of, false AS ended FROM {log} AS l
	WHERE NOT {log_passed}(l.line, l.xid, l.pos)
UNION ALL SELECT l.id, u.pos, l.grp, l.topic, l.key, coalesce(l.message_id, 'no row of the log at ' || u.pos), 'batch', false
	FROM {batches} AS b CROSS JOIN LATERAL unnest(b.positions) WITH ORDINALITY AS u (pos, nth) LEFT JOIN {log} AS l ON l.line = b.line
	AND l.pos = u.pos
	WHERE get_bit(b.done, u.nth::integer - 1) = 0 AND (b.line, b.n, b.token) NOT IN (SELECT line, n, token FROM {ended})
UNION ALL SELECT id, seq, grp, topic, key, message_id, 'records', stage >= 6 FROM {records}`

// inOrder returns the names of the records that a group has, in the order of
// their places.
func (r *ring) inOrder(group string) []string {
	r.t.Helper()
	rows, err := r.db.Query(r.t.Context(), r.sql(`SELECT message_id FROM (`+sqlEverywhere+`) AS e WHERE grp = $1 ORDER BY place`), group)
	require.NoError(r.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r.t, err)
	return names
}

// count returns the number of all records.
func (r *ring) count() int {
	r.t.Helper()
	return valueOf[int](r.t, r.db, r.sql(`SELECT count(*) FROM (`+sqlEverywhere+`) AS e`))
}

// census checks that the store has exactly the records of these names, each in one place. It
// also checks the batches.
func (r *ring) census(names ...string) {
	r.t.Helper()
	r.batchesAreSound()
	names = slices.Sorted(slices.Values(names))
	require.Equal(r.t, strings.Join(names, ", "), strings.Join(r.names(`(`+sqlEverywhere+`)`), ", "))
	require.Equal(r.t, strings.Join(names, ", "), strings.Join(r.names(`{readable}`), ", "), "the view for people")
}

// names returns the message ids of all records, sorted.
func (r *ring) names(from string) []string {
	r.t.Helper()
	rows, err := r.db.Query(r.t.Context(), r.sql(`SELECT message_id FROM `+from+` AS e`))
	require.NoError(r.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r.t, err)
	slices.Sort(found)
	return found
}

const (
	sqlUnsound = `SELECT coalesce(string_agg(b::text, ' '), '') FROM (
	SELECT *, lag(pos) OVER (PARTITION BY line ORDER BY n) AS pos_before, first_value(low) OVER (PARTITION BY line
	ORDER BY n DESC) AS lowest FROM {batches}) AS b
WHERE open <> length(replace(done::text, '1', '')) OR pos < pos_before OR low > n OR n < lowest AND open > 0
AND (line, n, token) NOT IN (SELECT line, n, token FROM {ended})
	OR positions <> ARRAY(SELECT unnest(positions) ORDER BY 1) OR positions[cardinality(positions)] > pos
	OR (open > 0) <> (lease_until IS NOT NULL) OR cardinality(positions) <> CASE WHEN open > 0 THEN length(done) ELSE 0 END
	OR cardinality(keys) <> cardinality(positions)`

	sqlUnsoundLate = `SELECT count(*) FROM {late} AS l
WHERE from_pos > to_pos OR to_pos > (SELECT max(pos) FROM {batches} AS b WHERE b.line = l.line)`
)

func (r *ring) batchesAreSound() {
	r.t.Helper()
	require.Empty(r.t, valueOf[string](r.t, r.db, r.sql(sqlUnsound)), "batches")
	require.Zero(r.t, valueOf[int](r.t, r.db, r.sql(sqlUnsoundLate)), "late lists")
}

// extendAll extends all leases, of either lane, in a transaction of the test's
// own.
func (r *ring) extendAll() pgx.Tx {
	r.t.Helper()
	tx := r.begin()
	r.execIn(tx, `UPDATE {records} SET available_at = available_at + interval '1 minute' WHERE stage = 4`)
	r.execIn(tx, `UPDATE {batches} SET lease_until = lease_until + interval '1 minute' WHERE lease_until IS NOT NULL`)
	return tx
}

// leasing returns a part of the statement with which a claim leases the records that it has
// found.
func (r *ring) leasing() string {
	if r.store.config.Lane == postgres.LaneLog {
		return addsBatch
	}
	return "SET stage = CASE WHEN r.expires_at"
}
